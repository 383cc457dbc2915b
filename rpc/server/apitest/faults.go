package apitest

import (
	"context"
	"errors"
	"io"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Fail makes the next creations of clusters, and the next writes of definitions and of plugin
// resources, fail with these errors. A write that fails with problem.UnknownOutcome is carried out
// nevertheless, unless the error is also ErrLost.
func (a *Agent) Fail(errs ...error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = append(a.failures, errs...)
}

// ErrLost is a write that has not arrived.
var ErrLost = errors.New("lost on the way")

// faulty does a write, and fails as the test wants.
func (a *Agent) faulty(write func() error) error {
	a.mu.Lock()
	var err error
	if len(a.failures) > 0 {
		err, a.failures = a.failures[0], a.failures[1:]
	}
	a.mu.Unlock()
	if err != nil && (!errors.Is(err, problem.UnknownOutcome) || errors.Is(err, ErrLost)) {
		return err
	}
	if werr := write(); werr != nil {
		return werr
	}
	return err
}

type faultyDefinitions struct {
	rest.Definitions
	agent *Agent
}

func (f faultyDefinitions) Put(
	ctx context.Context, who model.Caller, defs []model.StoredDefinition, opts rest.PutOptions,
) (w api.Written, err error) {
	err = f.agent.faulty(func() (err error) {
		w, err = f.Definitions.Put(ctx, who, defs, opts)
		return err
	})
	return w, err
}

type faultyClusters struct {
	rest.Clusters
	agent *Agent
}

func (f faultyClusters) Create(ctx context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (s api.Started, err error) {
	err = f.agent.faulty(func() (err error) {
		s, err = f.Clusters.Create(ctx, who, req, dryRun)
		return err
	})
	return s, err
}

type faultyResources struct {
	rest.Resources
	agent *Agent
}

func (f faultyResources) Upload(ctx context.Context, who model.Caller, n api.NewResource, content io.Reader) (v model.ResourceVersion,
	w api.Written, err error) {
	err = f.agent.faulty(func() (err error) {
		v, w, err = f.Resources.Upload(ctx, who, n, content)
		return err
	})
	return v, w, err
}
