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

// Reach reaches nodes: folders of this machine, and machines over SSH. It is safe
// for concurrent use.
type Reach struct {
	Keys  ssh.Keys       // folders of private keys
	Spawn *spawn.Spawner // of processes on this machine

	pool *ssh.Pool
}

// NewReach gives a reach; Close ends it.
func NewReach(keys ssh.Keys) *Reach {
	return &Reach{Keys: keys, Spawn: spawn.New(), pool: ssh.New(ssh.Config{})}
}

// Close stops starting processes and ends connections.
func (r *Reach) Close() {
	r.Spawn.Stop()
	r.pool.Close()
}

// Node gives the node of a task by the transport that its provider named. The
// error is marked.
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
			return nil, sdk.Fatal(fmt.Errorf("node %s cannot be reached over SSH: %w", in.NodeID, err))
		}
		return r.pool.Node(target), nil
	case "":
		return nil, sdk.Fatal(fmt.Errorf("node %s: its provider gave no \"transport\" in its results, so automators cannot reach it", in.NodeID))
	default:
		return nil, sdk.Fatal(fmt.Errorf("node %s: automators do not know the transport %q: they know local and ssh", in.NodeID, via))
	}
}

// Of gives the input and the node of a task. The error is marked.
func (r *Reach) Of(t *sdk.Task) (*model.TaskInput, remote.Node, error) {
	in, err := t.Input()
	if err != nil {
		return nil, nil, err
	}
	node, err := r.node(in, r.KeysOf(t))
	return in, node, err
}

// KeyType is the type of the automators' resources that are private keys of nodes.
const KeyType = "keys"

// Keys describes them.
var Keys = model.ResourceType{Format: "file", Permissions: "0600", Secret: true}

// KeysOf gives where a task's private keys are: its own resources, then the folders of
// the plugin's settings.
func (r *Reach) KeysOf(t *sdk.Task) ssh.Keys {
	return ssh.Keys(ResourcesFirst(t, KeyType, r.Keys))
}

// ResourcesFirst gives folders with that of a task's resources of a type before them.
func ResourcesFirst(t *sdk.Task, kind string, folders []string) []string {
	dir, ok := t.Resource(kind, ".")
	if !ok {
		return folders
	}
	return append([]string{dir}, folders...)
}

// Reached marks what no attempt can mend: a node that is not the one we know.
func Reached(err error) error {
	if errors.Is(err, ssh.ErrHostKey) {
		return sdk.Fatal(err)
	}
	return err
}

// NotBegun marks errors from before anything was run.
func NotBegun(err error) error {
	if errors.Is(err, ssh.ErrHostKey) {
		return sdk.Fatal(err)
	}
	return sdk.NothingDone(err)
}
