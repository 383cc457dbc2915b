package instance

import (
	"context"
	"time"
)

// Cloud is one cloud as the fields of a provider name it. Its methods are called
// concurrently. Errors are told apart by Fault; one that is none stands for
// something that another attempt may not meet.
type Cloud interface {
	// List gives the machines whose tags fit: empty parts of the filter fit
	// everything, but Mesh. Machines that are certain to go are left out.
	List(ctx context.Context, filter Tags) ([]Machine, error)
	// Create asks for a machine and does not wait for it. Where the cloud keeps
	// names or tokens apart, a second request for the same Spec.Token finds the
	// first one's machine.
	Create(ctx context.Context, s *Spec) (*Machine, error)
	// Delete asks for a machine's end. One that is gone is a success.
	Delete(ctx context.Context, m *Machine) error
}

// A Starter is a Cloud whose new machines may be found stopped: made by a request
// whose second half failed or was lost, or ended by somebody before they were ready.
type Starter interface {
	// Start starts a machine that is Stopped. One that is being started is a Conflict.
	Start(ctx context.Context, m *Machine) error
}

// Machine is a machine as its cloud has it.
type Machine struct {
	ID    string
	Name  string
	Tags  Tags
	State State
	// Fault says why it failed, in the cloud's words.
	Fault string
	// Public and Private are its addresses; "" where it has none, or none yet.
	Public, Private string
	Zone            string
	Created         time.Time
}

// State is what a machine does.
type State int

// The states. A machine that is Failed will never run.
const (
	Pending State = iota
	Running
	Stopped
	Failed
)

func (s State) String() string {
	return [...]string{"pending", "running", "stopped", "failed"}[s]
}

// Spec is a machine that is wanted.
type Spec struct {
	// Name follows from mesh, cluster and node number alone: letters, digits and
	// dashes, beginning with a letter, at most 63.
	Name     string
	Hostname string
	Tags     Tags
	// Token is the same for every attempt at the same machine with the same key,
	// for clouds that do a request with one token once: 32 hexadecimal digits.
	Token         string
	Flavor, Image string
	// Zone is where it shall be; "" leaves it to the cloud.
	Zone string
	// PublicKey is who may log in, as a line of authorized_keys; User under which
	// name. UserData is what tells cloud-init so: clouds with an API for keys of
	// their own need not use it.
	PublicKey, User string
	UserData        []byte
}
