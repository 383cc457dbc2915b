package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/profile"
)

// Provisioner makes and removes clusters for runs (docs/spec/profiles.md §1). A call may be
// made again, by another leader, at any moment: it must look for what is there first.
// What may be tried again fails with an error marked by Again, what has to wait for
// something that is under way with ErrLater; every other error is final.
type Provisioner interface {
	// Create asks for the cluster of the run's name. It need not be up on return.
	Create(ctx context.Context, r Request) (Made, error)
	// Status tells what is known of it, by the run's name for it, and why where it failed.
	Status(ctx context.Context, r Request) (profile.Seen, string, error)
	// Initialize makes a cluster that is up ready for use, and tells its nodes.
	Initialize(ctx context.Context, r Request) (*profile.RunCluster, error)
	// Delete asks for the end of whatever is there, whether or not a Create was ever
	// answered. It gives the id of the plan, where there is one.
	Delete(ctx context.Context, r Request) (operation string, err error)
	// Poll is the pause between two looks.
	Poll() time.Duration
}

// Request is what a provisioner is told.
type Request struct {
	Run *profile.Run
	// Properties are the final ones, with secrets in them.
	Properties map[string]string
	// Deprovision says that the cluster is being torn down for good.
	Deprovision bool
}

// Made is what a Create gave. A Cluster of nil breaks the contract.
type Made struct {
	Cluster *profile.RunCluster
	// ID is the cluster's in this mesh, Operation its plan; "" where it is none of ours.
	ID, Operation string
}

// ErrLater says that a call has to wait for something that is under way.
var ErrLater = errors.New("something else has to end first")

type again struct{ error }

func (a again) Unwrap() error { return a.error }

// Again marks an error of something that may be tried again.
func Again(err error) error { return again{err} }

// Againf is Again of a formatted error.
func Againf(format string, args ...any) error { return again{fmt.Errorf(format, args...)} }

// Retryable says whether an error is marked by Again.
func Retryable(err error) bool { return errors.As(err, new(again)) }
