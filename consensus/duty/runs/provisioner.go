package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/profile"
)

// Provisioner creates and deletes clusters for runs (docs/spec/profiles.md §1). Another
// leader may make the same call again at any time, so that each call must first find out
// what exists. An error marked by Again means that the call may be tried again, ErrLater
// that it has to wait for the end of an operation on the cluster. Every other error is final.
type Provisioner interface {
	// Create begins to create the cluster of the run's name. The cluster need not be up on
	// return.
	Create(ctx context.Context, r Request) (Made, error)
	// Status returns the status of the run's cluster, and the reason if it failed.
	Status(ctx context.Context, r Request) (profile.Seen, string, error)
	// Initialize prepares a cluster that is up for use, and returns it with its nodes.
	Initialize(ctx context.Context, r Request) (*profile.RunCluster, error)
	// Delete begins to delete whatever exists of the cluster, whether or not a Create
	// ever returned. It returns the id of the plan, or "".
	Delete(ctx context.Context, r Request) (operation string, err error)
	// Poll returns the pause between two calls of Status.
	Poll() time.Duration
}

// Request is the input of a call to a provisioner.
type Request struct {
	Run *profile.Run
	// Properties are the effective properties, with their secrets revealed.
	Properties map[string]string
	// Deprovision reports whether the cluster is being deleted for good.
	Deprovision bool
}

// Made is the result of Create. Cluster must not be nil.
type Made struct {
	Cluster *profile.RunCluster
	// ID is the id of the cluster in this mesh, and Operation that of its plan. Both are ""
	// for a cluster outside the mesh.
	ID, Operation string
}

// ErrLater means that a call has to wait for the end of an operation on the cluster.
var ErrLater = errors.New("an operation on the cluster has to end first")

type again struct{ error }

func (a again) Unwrap() error { return a.error }

// Again marks an error after which the call may be tried again.
func Again(err error) error { return again{err} }

// Againf returns a formatted error that is marked by Again.
func Againf(format string, args ...any) error { return again{fmt.Errorf(format, args...)} }

// Retryable reports whether an error is marked by Again.
func Retryable(err error) bool { return errors.As(err, new(again)) }
