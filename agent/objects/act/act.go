// Package act carries out the acts of change objects on real machines, for the types script,
// service, filetree and ha-resource, and those that automators offer (docs/changes.md).
package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/engine/change/builtin"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/plugins/remote"
	pb "github.com/coopr/coopr/rpc/proto"
)

// grace is the time between the signals that ask a script to end and that kill it. It is
// shorter than the margin of the agent's lease.
const grace = 500 * time.Millisecond

// usualTimeout bounds scripts that set no bound.
const usualTimeout = 10 * time.Minute

// Machine is a machine that objects act on.
type Machine struct {
	remote.Node
	// Local reports whether its files are on the agent's own machine.
	Local bool
	// Close releases the machine; may be nil.
	Close func()
}

// Config of a Performer.
type Config struct {
	// Machine returns the machine of a host. node is how the host is reached if it is a
	// node of a cluster.
	Machine func(ctx context.Context, host string, node *site.Access) (*Machine, error)
	// Dir is where the performer keeps what it needs on this machine: repositories
	// of file trees, and notes of what runs.
	Dir string
	// NodeProgram is the path of coopr-node, which supervises processes here.
	NodeProgram string
	// Automate carries out a task of an automator plugin, as host.Executor does; its
	// lease included.
	Automate func(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result
	// Launcher starts git. Nil starts it unconfined.
	Launcher *confine.Launcher
	Logger   *slog.Logger
}

// Performer is the objects.Performer of real things.
type Performer struct{ cfg Config }

// New returns a performer. It ends the actions that an earlier performer left running.
func New(cfg Config) (*Performer, error) {
	p := &Performer{cfg}
	if err := os.MkdirAll(p.notes(), 0o700); err != nil {
		return nil, err
	}
	return p, p.sweep()
}

var _ objects.Performer = (*Performer)(nil)

// doer does one type's work for one object.
type doer interface {
	check(ctx context.Context) (state, note string, err error)
	run(ctx context.Context, action string) error
}

// Check finds the state of an object.
func (p *Performer) Check(ctx context.Context, j *objects.Job) (string, string, error) {
	var state, note string
	err := p.with(ctx, j, "check", func(ctx context.Context, d doer) (err error) {
		state, note, err = d.check(ctx)
		return err
	})
	return state, note, err
}

// Run carries out an action.
func (p *Performer) Run(ctx context.Context, j *objects.Job, action string) error {
	return p.with(ctx, j, action, func(ctx context.Context, d doer) error { return d.run(ctx, action) })
}

// with calls do with the doer of an object.
func (p *Performer) with(ctx context.Context, j *objects.Job, action string, do func(context.Context, doer) error) error {
	m, err := p.cfg.Machine(ctx, j.Object.Host, j.Node)
	if err != nil {
		return fmt.Errorf("%s: %w", j.Object.Host, err)
	}
	if m.Close != nil {
		defer m.Close()
	}
	o := &object{p: p, m: m, job: j, action: action, folder: path.Join(".coopr-changes", plain(j.Tenant), plain(j.Site), plain(j.Object.Name))}
	timeout := model.Millis(0)
	var d doer
	switch j.Object.Type {
	case "script":
		c := &builtin.Script{}
		err = builtin.Decode(j.Object, c)
		d, timeout = &script{o, c}, c.Timeout
	case "service":
		c := &builtin.Service{}
		err = builtin.Decode(j.Object, c)
		d, timeout = &service{o, c}, c.Timeout
	case "filetree":
		c := &builtin.FileTree{}
		err = builtin.Decode(j.Object, c)
		d = &filetree{object: o, content: c}
	case "ha-resource":
		c := &builtin.Resource{}
		err = builtin.Decode(j.Object, c)
		d, timeout = &resource{o, c}, c.Timeout
	default:
		plugin, ok := builtin.Automator(j.Object.Type)
		if !ok {
			return fmt.Errorf("this agent does not know the type %s", j.Object.Type)
		}
		c := &builtin.Automated{}
		err = builtin.Decode(j.Object, c)
		d, timeout = &automated{o, plugin, c}, c.Timeout
	}
	if err != nil {
		return err
	}
	bound := usualTimeout
	if timeout > 0 {
		bound = time.Duration(timeout) * time.Millisecond
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("not done after %s", bound))
	defer cancel()
	return do(ctx, d)
}

// plain turns a name with slashes into the name of one file. Names of objects have no "%".
func plain(name string) string { return strings.ReplaceAll(name, "/", "%") }

// object is the part that all types share.
type object struct {
	p      *Performer
	m      *Machine
	job    *objects.Job
	action string
	folder string // of this object, below the machine's folder
}

// stamp records the content that was put into place last.
type stamp struct {
	Content    uint64         `json:"content"`
	Generation uint64         `json:"generation"`
	Is         map[string]any `json:"is,omitempty"` // the content itself
}

func (o *object) file(name string) string { return path.Join(o.folder, name) }

// stamped reads the stamp; nil where nothing is in place.
func (o *object) stamped(ctx context.Context) (*stamp, error) {
	b, err := o.m.Read(ctx, o.file("stamp.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &stamp{}
	if len(b) == 0 || json.Unmarshal(b, s) != nil {
		return nil, nil // cut short by a crash: nothing is known
	}
	if s.Content == 0 {
		return nil, nil
	}
	return s, nil
}

// inPlace returns the content that was put into place last, according to the stamp. Without a stamp it
// returns now, the content of the job, and so it does if the secrets of that content are not kept any more.
func inPlace[C any](ctx context.Context, o *object, now *C) (*C, error) {
	st, err := o.stamped(ctx)
	if err != nil || st == nil {
		return now, err
	}
	is, err := site.OpenFields(st.Is, o.job.Values, func(v any) { o.job.Secrets = append(o.job.Secrets, mask.Texts(v)...) })
	if errors.Is(err, site.ErrNoValue) {
		return now, nil // its generation is not kept any more
	}
	if err != nil {
		return nil, err
	}
	was := new(C)
	b, err := json.Marshal(is)
	if err == nil {
		err = json.Unmarshal(b, was)
	}
	return was, err
}

// stamp writes the stamp of the present content, or of none.
func (o *object) stamp(ctx context.Context, inPlace bool) error {
	s := stamp{}
	if inPlace {
		s = stamp{Content: o.job.Content, Generation: o.job.Generation, Is: o.job.Stored.Content}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return o.m.Put(ctx, o.file("stamp.json"), 0o600, b)
}

// told returns the state of an object that was found up: outdated if the content in place is
// an older one. Content without a stamp does not come from Coopr, and is adopted.
func (o *object) told(ctx context.Context) (string, error) {
	s, err := o.stamped(ctx)
	switch {
	case err != nil:
		return "", err
	case s == nil:
		return "up", o.stamp(ctx, true)
	case s.Content != o.job.Content:
		return "outdated", nil
	}
	return "up", nil
}

// env is the environment of everything that runs for the object.
func (o *object) env(more map[string]string) []string {
	bin := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if o.m.Path() == "" {
		bin = os.Getenv("PATH")
		if o.p.cfg.NodeProgram != "" {
			bin = path.Dir(o.p.cfg.NodeProgram) + ":" + bin
		}
	}
	env := []string{"PATH=" + bin, "HOME=" + o.m.Dir(), "LANG=C.UTF-8",
		"COOPR_SITE=" + o.job.Site, "COOPR_OBJECT=" + o.job.Object.Name, "COOPR_HOST=" + o.job.Object.Host, "COOPR_ACTION=" + o.action,
		"COOPR_STATE_DIR=" + path.Join(o.m.Dir(), o.folder)}
	if args := o.job.Object.Actions[o.action]; len(args) > 0 {
		if b, err := json.Marshal(args); err == nil {
			env = append(env, "COOPR_ARGUMENTS="+string(b))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(more)) {
		env = append(env, k+"="+more[k])
	}
	return env
}

// tail keeps the end of its input.
type tail struct {
	b    []byte
	cut  bool       // b is not all of it
	hide *mask.Mask // nil hides nothing
}

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 8<<10 {
		t.b, t.cut = slices.Clone(t.b[len(t.b)-4<<10:]), true
	}
	return len(p), nil
}

// last returns the last line that is not empty.
func (t *tail) last() string {
	text := t.hide.Text(string(t.b))
	if t.cut { // it may begin within a secret
		text = text[min(t.hide.Longest(), len(text)):]
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return strings.ToValidUTF8(line, "�")
}

// sh runs a shell script on the object's machine. It returns the exit code and the last line
// of the output.
func (o *object) sh(ctx context.Context, body, dir string, env map[string]string) (int, string, error) {
	if dir == "" && !o.m.Local { // no automator may have been there yet
		body, dir = "mkdir -p "+quote(o.m.Dir())+" && cd "+quote(o.m.Dir())+" || exit 126\n"+body, "/"
	}
	return o.exec(ctx, []string{"/bin/sh", "-c", body}, dir, env, nil)
}

// exec runs a command on the object's machine.
func (o *object) exec(ctx context.Context, args []string, dir string, env map[string]string, stdout io.Writer) (int, string, error) {
	out := &tail{hide: mask.New(o.job.Secrets...)}
	c := remote.Command{Args: args, Dir: dir, Env: o.env(env), Stdout: out, Stderr: out, Grace: grace}
	if stdout != nil {
		c.Stdout = stdout
	}
	if o.m.Local {
		note, done, err := o.p.note(&c)
		if err != nil {
			return 0, "", err
		}
		defer done()
		c.Env = append(c.Env, noteVar+"="+note)
	}
	exit, err := o.m.Run(ctx, c)
	if err != nil {
		return 0, out.last(), err
	}
	if exit.Signal != "" {
		return -1, out.last(), fmt.Errorf("ended by signal %s: %s", exit.Signal, out.last())
	}
	return exit.Code, out.last(), nil
}

// must is sh for scripts that have to end with 0.
func (o *object) must(ctx context.Context, what, body, dir string, env map[string]string) error {
	code, said, err := o.sh(ctx, body, dir, env)
	return failed(what, code, said, err)
}

func failed(what string, code int, said string, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	case code != 0:
		return fmt.Errorf("%s: exit code %d: %s", what, code, said)
	}
	return nil
}
