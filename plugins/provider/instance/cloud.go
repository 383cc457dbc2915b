package instance

import (
	"context"
	"time"
)

// Cloud is the cloud that a provider's fields describe. Its methods are called concurrently. Errors
// are classified by Fault; any other error may not happen again.
type Cloud interface {
	// List returns the machines whose tags match the filter. An empty part of the filter matches
	// everything, except Mesh. Machines that are being deleted are omitted.
	List(ctx context.Context, filter Tags) ([]Machine, error)
	// Create requests a machine and does not wait for it. If the cloud has unique names or tokens,
	// a second request with the same Spec.Token returns the machine of the first.
	Create(ctx context.Context, s *Spec) (*Machine, error)
	// Delete requests a machine's deletion. A missing machine is a success.
	Delete(ctx context.Context, m *Machine) error
}

// A Starter is a Cloud whose new machines may be found stopped: the second half of their creation
// failed or was lost, or they were stopped by hand before they were ready.
type Starter interface {
	// Start starts a machine that is Stopped. If it is already being started, the error is a
	// Conflict.
	Start(ctx context.Context, m *Machine) error
}

// Machine is a machine in a cloud.
type Machine struct {
	ID    string
	Name  string
	Tags  Tags
	State State
	// Fault is the cloud's reason for the state Failed.
	Fault string
	// Public and Private are the machine's addresses, or "".
	Public, Private string
	Zone            string
	Created         time.Time
}

// State is the state of a machine.
type State int

// The states. A machine that is Failed never runs.
const (
	Pending State = iota
	Running
	Stopped
	Failed
)

func (s State) String() string {
	return [...]string{"pending", "running", "stopped", "failed"}[s]
}

// Spec describes a machine to create.
type Spec struct {
	// Name follows from mesh, cluster and node number alone. It has at most 63 letters, digits and
	// dashes, and begins with a letter.
	Name     string
	Hostname string
	Tags     Tags
	// Token is the same for every attempt at the same machine with the same key, for clouds that
	// carry out requests with one token once. It has 32 hexadecimal digits.
	Token         string
	Flavor, Image string
	// Zone is the wanted zone; "" leaves the choice to the cloud.
	Zone string
	// PublicKey is the key that may log in as User, as a line of authorized_keys. UserData passes
	// both to cloud-init; a cloud with an API for keys may use that instead.
	PublicKey, User string
	UserData        []byte
}
