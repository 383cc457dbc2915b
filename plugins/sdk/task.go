package sdk

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk/tasklog"
	"github.com/coopr/coopr/rpc/proto"
)

// Task is one task for a plugin. Its methods are safe for concurrent use until the plugin's method
// has returned.
type Task struct {
	ID        string // the same for every attempt
	Fence     uint64 // of this attempt; pass it to systems that can check it
	Attempt   int    // from 1
	Tenant    string
	Mesh      string // the mesh's own name; ids of clusters and nodes are unique within one mesh only
	Cluster   string
	Operation string
	Node      string
	Action    string // CREATE, INSTALL, …
	Service   string // "" for actions of the node
	Plugin    string // the type's name
	Timeout   time.Duration
	// Resources is the folder with the plugin resources that the task was planned with:
	// <type>/<name> is a file, or a folder if the type's format is archive. It is "" if there are
	// none. It is read-only, and exists until the plugin's method returns.
	Resources string

	raw   []byte
	input func() (*model.TaskInput, error)
	log   *tasklog.Log
	save  func(key string, value []byte)
}

// NewTask returns a task outside of a plugin process, for tests of plugins and for executors that
// call them directly. log and save may be nil.
func NewTask(t *proto.Task, log func(line string, stderr bool), save func(key string, value []byte)) *Task {
	if log == nil {
		log = func(string, bool) {}
	}
	if save == nil {
		save = func(string, []byte) {}
	}
	return newTask(t, tasklog.New(log), save)
}

func newTask(t *proto.Task, log *tasklog.Log, save func(string, []byte)) *Task {
	raw := t.Input
	return &Task{
		ID: t.Id, Fence: t.Fence, Attempt: int(t.Attempt), Tenant: t.Tenant, Mesh: t.Mesh, Cluster: t.Cluster, Operation: t.Operation,
		Node: t.Node, Action: t.Action, Service: t.Service, Plugin: t.Plugin, Timeout: time.Duration(t.TimeoutMs) * time.Millisecond,
		Resources: t.ResourcesDir,
		raw:       raw, log: log, save: save,
		input: sync.OnceValues(func() (*model.TaskInput, error) {
			in := &model.TaskInput{}
			if len(raw) == 0 {
				return in, nil
			}
			if err := json.Unmarshal(raw, in); err != nil {
				return nil, Fatal(fmt.Errorf("the task's input cannot be decoded: %w", err))
			}
			return in, nil
		}),
	}
}

// Input returns the task's input, which is decoded once. The error is marked and can be returned
// unchanged.
func (t *Task) Input() (*model.TaskInput, error) { return t.input() }

// RawInput returns the input as the leader wrote it.
func (t *Task) RawInput() json.RawMessage { return t.raw }

// Fields returns the fields for the task's plugin: those of the service's action for automators,
// those of the provider otherwise.
func (t *Task) Fields() (map[string]any, error) {
	in, err := t.input()
	if err != nil {
		return nil, err
	}
	if s := in.Config.Service; s != nil {
		return s.Action.Fields, nil
	}
	return in.Config.Provider.Provisioner, nil
}

// Stdout returns a writer to the task's log, for the output of a program. Lines are streamed to the
// agent; a write blocks while the agent is slower.
func (t *Task) Stdout() io.Writer { return t.log.Writer(false) }

// Stderr is like Stdout, but its lines are marked as error output.
func (t *Task) Stderr() io.Writer { return t.log.Writer(true) }

// Logf adds a line to the task's log.
func (t *Task) Logf(format string, args ...any) { t.log.Line(fmt.Sprintf(format, args...), false) }

// Resource returns the path of one of the task's resources, and false if there is none with this
// type and name.
func (t *Task) Resource(kind, name string) (string, bool) {
	if t.Resources == "" || !filepath.IsLocal(kind) || !filepath.IsLocal(name) {
		return "", false
	}
	path := filepath.Join(t.Resources, kind, name)
	_, err := os.Stat(path)
	return path, err == nil
}

// scriptMark begins a field's text if it is a script itself, not the name of one.
const scriptMark = "#!"

// CheckScript returns why a field's text is neither a script, which begins with #!, nor a valid
// name of a resource; "" if it is one of them.
func CheckScript(field string) string {
	if strings.HasPrefix(field, scriptMark) {
		return ""
	}
	if why := model.CheckResourceName(field); why != "" {
		return "must be a script that begins with #! and an interpreter, or the name of a resource that is one"
	}
	return ""
}

// Script returns the script of a field that satisfies CheckScript. For a name it is the task's
// resource of this type; if that is missing, the error is marked NothingDone.
func (t *Task) Script(kind, field string) (string, error) {
	if strings.HasPrefix(field, scriptMark) {
		return field, nil
	}
	path, ok := t.Resource(kind, field)
	if !ok {
		return "", NothingDone(fmt.Errorf("script %q is not among the tenant's %s that were active when this was planned: upload it (coopr "+
			"resource upload … --activate) and plan again", field, kind))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", NothingDone(err)
	}
	if !strings.HasPrefix(string(b), scriptMark) {
		return "", Fatal(fmt.Errorf("script %q does not begin with #! and an interpreter", field))
	}
	return string(b), nil
}

// Saved reads a value that an earlier task of this node has stored with Save. It returns false if
// there is none.
func (t *Task) Saved(key string, into any) (bool, error) {
	in, err := t.input()
	if err != nil {
		return false, err
	}
	raw, ok := in.Config.Saved[key]
	if !ok {
		return false, nil
	}
	return true, json.Unmarshal(raw, into)
}

// Save stores a value, as JSON, under a key in the replicated state, for later tasks of the same
// node.
func (t *Task) Save(key string, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("save %q: %w", key, err)
	}
	t.save(key, b)
	return nil
}
