package kit

import (
	"errors"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/plugins/sdk/spawn"
)

// Reach connects to nodes: folders of this machine, and machines over SSH. It is safe for
// concurrent use.
type Reach struct {
	Keys  ssh.Keys       // folders of private keys
	Spawn *spawn.Spawner // starts processes on this machine

	pool *ssh.Pool
}

// NewReach returns a Reach, which the caller closes.
func NewReach(keys ssh.Keys) *Reach {
	return &Reach{Keys: keys, Spawn: spawn.New(), pool: ssh.New(ssh.Config{})}
}

// Close stops the start of processes and closes all connections.
func (r *Reach) Close() {
	r.Spawn.Stop()
	r.pool.Close()
}

// Node returns the node of a task. The results of the node's provider name the transport. The error
// is marked.
func (r *Reach) Node(in *model.TaskInput) (remote.Node, error) { return r.node(in, r.Keys) }

func (r *Reach) node(in *model.TaskInput, keys ssh.Keys) (remote.Node, error) {
	results := in.Config.Results
	switch via, _ := results["transport"].(string); via {
	case "local":
		dir, _ := results["providerid"].(string)
		n, err := remote.NewLocal(dir, r.Spawn)
		if err != nil {
			return nil, sdk.NothingDone(fmt.Errorf("node %s: %w", in.NodeID, err))
		}
		return n, nil
	case ssh.Transport:
		target, err := ssh.TargetOf(in, keys)
		if err != nil {
			return nil, sdk.Fatal(fmt.Errorf("node %s has no valid SSH settings: %w", in.NodeID, err))
		}
		return r.pool.Node(target), nil
	case "":
		return nil, sdk.Fatal(fmt.Errorf("node %s: the results of its provider have no \"transport\", so automators cannot reach it", in.NodeID))
	default:
		return nil, sdk.Fatal(fmt.Errorf("node %s: unknown transport %q; automators support local and ssh", in.NodeID, via))
	}
}

// Of returns the input and the node of a task. The error is marked.
func (r *Reach) Of(t *sdk.Task) (*model.TaskInput, remote.Node, error) {
	in, err := t.Input()
	if err != nil {
		return nil, nil, err
	}
	node, err := r.node(in, r.KeysOf(t))
	return in, node, err
}

// KeyType is the resource type of automators that holds private keys of nodes.
const KeyType = "keys"

// Keys is the description of KeyType.
var Keys = model.ResourceType{Format: "file", Permissions: "0600", Secret: true}

// KeysOf returns the places of a task's private keys: its own resources, then the folders of the
// plugin's settings.
func (r *Reach) KeysOf(t *sdk.Task) ssh.Keys {
	return ssh.Keys(ResourcesFirst(t, KeyType, r.Keys))
}

// ResourcesFirst returns folders, preceded by the folder of a task's resources of a type, if there
// is one.
func ResourcesFirst(t *sdk.Task, kind string, folders []string) []string {
	dir, ok := t.Resource(kind, ".")
	if !ok {
		return folders
	}
	return append([]string{dir}, folders...)
}

// Reached marks a wrong host key as fatal, because another attempt would fail too. It returns any
// other error unchanged.
func Reached(err error) error {
	if errors.Is(err, ssh.ErrHostKey) {
		return sdk.Fatal(err)
	}
	return err
}

// NotBegun marks an error that occurred before anything was run. A wrong host key is fatal; for any
// other error nothing was done.
func NotBegun(err error) error {
	if errors.Is(err, ssh.ErrHostKey) {
		return sdk.Fatal(err)
	}
	return sdk.NothingDone(err)
}
