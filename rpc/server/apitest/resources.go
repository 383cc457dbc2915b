package apitest

import (
	"context"
	"io"

	"github.com/coopr/coopr/agent/blobs"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/logformat"
	replicated "github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// shelf holds the contents of plugin resources. most bounds one resource and all those of a tenant
// together, in bytes.
type shelf struct {
	blobs     *blobs.Store
	most, all int64
}

// Shelve makes the mesh store resources for plugins of these types in dir. A resource may have at
// most most bytes, and all resources of a tenant together at most all. Without Shelve the mesh has
// no resources.
func (a *Agent) Shelve(dir string, most, all int64, types ...model.PluginType) error {
	blobs, err := blobs.OpenStore(dir)
	if err != nil {
		return err
	}
	open := &pb.OpenSession{Session: "shelf", Agent: "id-shelf", Record: &record.Agent{Id: "id-shelf"}}
	for _, t := range types {
		m, err := logformat.EncodePluginType(&t)
		if err != nil {
			return err
		}
		open.Types = append(open.Types, m)
	}
	a.runs.must(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: open}})
	a.contents = &shelf{blobs, most, all}
	return nil
}

// errNoResources is the error of a mesh without resources.
var errNoResources = problem.New(problem.NotFound, "the test mesh has no plugin resources")

// shelved stores resources as agents do, but without replication to other agents.
type shelved struct{ *Agent }

func (s shelved) view() *replicated.View { return s.runs.machine.View() }

// List returns all versions of all resources of a tenant.
func (s shelved) List(tenant string) ([]model.ResourceVersion, uint64, error) {
	var out []model.ResourceVersion
	for _, r := range s.view().PluginResources(tenant) {
		out = append(out, r.Versions...)
	}
	return out, s.view().Index(), nil
}

// Upload stores content as the next version of a resource.
func (s shelved) Upload(_ context.Context, who model.Caller, n api.NewResource, content io.Reader) (v model.ResourceVersion, w api.Written,
	err error) {
	if v.ResourcePin, err = s.contents.blobs.Upload(content, orchestrate.Lookup(s.view(), who.Tenant), n.ResourceKey, s.contents.most,
		n.SHA256); err != nil {
		return v, w, err
	}
	add, err := logformat.AddResource(&v, s.contents.all, n.Order)
	if err != nil {
		return v, w, err
	}
	subject, w, err := s.change(who, add)
	if err != nil {
		return v, w, err
	}
	all, _, _ := s.List(who.Tenant)
	for _, v := range all {
		if v.String() == subject {
			return v, w, nil
		}
	}
	return v, w, problem.New(problem.Conflict, "resource %s is gone again", subject)
}

// Order carries out an order about a version of a resource.
func (s shelved) Order(_ context.Context, who model.Caller, order string, k model.ResourceKey, version int) (api.Written, error) {
	change, err := logformat.OrderResource(order, k, version)
	if err != nil {
		return api.Written{}, err
	}
	_, w, err := s.change(who, change)
	return w, err
}

func (s shelved) change(who model.Caller, ch *pb.ChangeResource) (string, api.Written, error) {
	return s.changeTables(who, "resource.changed", func(int64) (*pb.Command, error) {
		return &pb.Command{RequestId: who.Request, Change: &pb.Command_ChangeResource{ChangeResource: ch}}, nil
	})
}

// Content returns the content of a version.
func (s shelved) Content(_ context.Context, p model.ResourcePin) (io.ReadCloser, error) {
	f, err := s.contents.blobs.Open(p.SHA256)
	if err != nil {
		return nil, problem.New(problem.Conflict, "resource %s: %w", p, err)
	}
	return f, nil
}
