package ssh

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/plugins/remote"
)

// Node is one task's view of a node. It runs one command at a time, because its secrets exist only
// while a command runs.
type Node struct {
	pool   *Pool
	target *Target

	mu    sync.Mutex
	files []file // sent with the next command
}

var _ remote.Node = (*Node)(nil)

// Node returns a view of a node, without connecting to it.
func (p *Pool) Node(t *Target) *Node {
	if t.Dir == "" {
		t.Dir = DefaultDir
	}
	return &Node{pool: p, target: t}
}

// Dir returns the folder that scripts work in.
func (n *Node) Dir() string { return n.target.Dir }

// Path returns the PATH of the node's programs.
func (n *Node) Path() string { return plainPath }

const (
	defaultGrace = 5 * time.Second
	// endGrace is how long the node may take, beyond the grace of the command, to report the
	// command's end. defaultGrace, endGrace and closing together leave more than a second of the 10 s
	// after which the host kills the plugin, and with it the tasks of other nodes.
	endGrace = 1500 * time.Millisecond
)

// Run runs a command on the node and streams its output. If the connection is lost meanwhile, the
// error is remote.ErrLost: it is unknown how far the command got, though the node ends the commands
// of a lost connection.
func (n *Node) Run(ctx context.Context, c remote.Command) (remote.Exit, error) {
	if err := ctx.Err(); err != nil {
		return remote.Exit{}, context.Cause(ctx)
	}
	n.mu.Lock()
	files := slices.Clone(n.files)
	n.mu.Unlock()
	mark := rand.Text()
	if c.Stdin != nil {
		return remote.Exit{}, errors.New("commands over SSH have no standard input")
	}
	program := watched(c.Args, cmp.Or(c.Dir, n.target.Dir), c.Env, files, cmp.Or(c.Grace, defaultGrace), mark, volatile+mark,
		path.Join(n.target.Dir, remote.Record), c.Done)
	var input [][]byte
	for _, f := range files {
		input = append(input, f.content)
	}
	input = append(input, []byte(complete))
	s, err := n.start(ctx, program, mark, input, orDiscard(c.Stdout), orDiscard(c.Stderr))
	if err != nil {
		return remote.Exit{}, err
	}
	stopped := false
	select {
	case <-s.ended:
	case <-ctx.Done():
		stopped = true
		// The guard on the node notices the end of its input.
		_ = s.ch.CloseWrite()
		timer := time.NewTimer(cmp.Or(c.Grace, defaultGrace) + endGrace)
		defer timer.Stop()
		select {
		case <-s.ended:
		case <-timer.C:
			s.close()
			return remote.Exit{}, fmt.Errorf("%w: the command was cancelled (%w), but %s does not respond",
				remote.ErrLost, context.Cause(ctx), n.target.Address)
		}
	}
	exit := s.finish()
	switch {
	case exit == nil:
		// It may have started, with the report of that lost.
		return remote.Exit{}, fmt.Errorf("%w: %s", remote.ErrLost, n.target.Address)
	case stopped:
		return remote.Exit{Code: -1, Signal: "stopped"}, context.Cause(ctx)
	case !s.wasStarted():
		return remote.Exit{}, s.notStarted()
	}
	return *exit, nil
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// maxAnswer bounds the output of a small command, the content of a file included.
const maxAnswer = 128 << 20

// answer keeps the output of a small command, and ends one that writes too much.
type answer struct {
	kept bytes.Buffer
	full bool
	end  context.CancelCauseFunc
}

func (a *answer) Write(p []byte) (int, error) {
	if a.kept.Len()+len(p) > maxAnswer {
		err := fmt.Errorf("the answer has more than %d bytes", maxAnswer)
		a.full = true
		a.end(err)
		return 0, err
	}
	return a.kept.Write(p)
}

// small runs one of the small programs and returns its output.
func (n *Node) small(ctx context.Context, what string, program func(mark string) string, input ...[]byte) (string, error) {
	mark := rand.Text()
	ctx, cancel := context.WithTimeout(ctx, n.pool.cfg.Answer+time.Duration(size(input))*time.Microsecond) // 1 MB/s
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	out := &answer{end: end}
	s, err := n.start(ctx, program(mark), mark, input, out, io.Discard)
	if err != nil {
		return "", fmt.Errorf("%s on %s: %w", what, n.target.Address, err)
	}
	stop := context.AfterFunc(ctx, func() { s.abort() })
	exit := s.finish()
	stop()
	switch {
	case ctx.Err() != nil && (exit == nil || out.full):
		err = fmt.Errorf("%w: %w", remote.ErrLost, context.Cause(ctx))
	case exit == nil:
		err = remote.ErrLost
	case !s.wasStarted():
		err = s.notStarted()
	case exit.Code == exitNotThere:
		err = fs.ErrNotExist
	case *exit != remote.Exit{}:
		err = errors.New(cmp.Or(strings.TrimSpace(s.stderr.String()), fmt.Sprintf("exit status %d", exit.Code)))
	default:
		return out.kept.String(), nil
	}
	return "", fmt.Errorf("%s on %s: %w", what, n.target.Address, err)
}

// Ask runs a short script and returns its output. No guard process on the node ends the script if the
// connection is lost. If the script fails, the error has its error output. The error remote.ErrLost
// means that it is unknown whether the script ran.
func (n *Node) Ask(ctx context.Context, what, script string, args ...string) (string, error) {
	return n.small(ctx, what, func(mark string) string { return askProgram(mark, script, args) })
}

func size(input [][]byte) int {
	n := 0
	for _, b := range input {
		n += len(b)
	}
	return n
}

// below returns the path of a name within the folder.
func (n *Node) below(name string) (string, error) {
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q is not a path within %s", name, n.target.Dir)
	}
	return path.Join(n.target.Dir, name), nil
}

// Put writes a file within the folder, completely or not at all.
func (n *Node) Put(ctx context.Context, name string, mode fs.FileMode, content []byte) error {
	file, err := n.below(name)
	if err != nil {
		return err
	}
	_, err = n.small(ctx, "write "+file, func(mark string) string { return putProgram(mark, file, uint32(mode.Perm()), len(content)) },
		content)
	return err
}

// Append appends to a file within the folder and returns its new size.
func (n *Node) Append(ctx context.Context, name string, content []byte) (int64, error) {
	file, err := n.below(name)
	if err != nil {
		return 0, err
	}
	out, err := n.small(ctx, "append to "+file, func(mark string) string { return appendProgram(mark, file, len(content)) }, content)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(out), 10, 64)
}

// Read returns the content of a file within the folder.
func (n *Node) Read(ctx context.Context, name string) ([]byte, error) {
	file, err := n.below(name)
	if err != nil {
		return nil, err
	}
	out, err := n.small(ctx, "read "+file, func(mark string) string { return readProgram(mark, file) })
	return []byte(out), err
}

// Rename renames a file within the folder.
func (n *Node) Rename(ctx context.Context, from, to string) error {
	a, err := n.below(from)
	if err != nil {
		return err
	}
	b, err := n.below(to)
	if err != nil {
		return err
	}
	_, err = n.small(ctx, "rename "+a, func(mark string) string { return renameProgram(mark, a, b) })
	return err
}

// volatile begins the paths of files in the node's memory.
const volatile = "/dev/shm/.coopr-"

// Secret returns a path in the node's memory for the content. The file exists while a command of
// this Node runs, readable by its user alone. The node removes it when the command or the
// connection ends.
func (n *Node) Secret(_ context.Context, content []byte) (string, func(), error) {
	f := file{path: volatile + rand.Text(), content: content}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.files = append(n.files, f)
	return f.path, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.files = slices.DeleteFunc(n.files, func(x file) bool { return x.path == f.path })
	}, nil
}

// Script returns the path on the node of a file of this machine; the name has the hash of its
// content. The file is sent with the commands of this Node.
func (n *Node) Script(_ context.Context, name string) (string, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	f := file{path: path.Join(n.target.Dir, fmt.Sprintf(".coopr/scripts/%x-%s", sha256.Sum256(content), filepath.Base(name))),
		content: content, script: true}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.ContainsFunc(n.files, func(x file) bool { return x.path == f.path }) {
		n.files = append(n.files, f)
	}
	return f.path, nil
}

// Prepare checks that the node has the required programs and creates its folder.
func (n *Node) Prepare(ctx context.Context) error {
	_, err := n.small(ctx, "prepare "+n.target.Dir, func(mark string) string { return prepareProgram(mark, n.target.Dir) })
	return err
}

// Learn returns the host key of a node, after a login has been tried. If host keys of the target
// are known, they are enforced. Learn leaves nothing on the machine, which may belong to somebody
// else.
func (p *Pool) Learn(ctx context.Context, t *Target) (ssh.PublicKey, error) {
	probe := *t
	if len(t.HostKeys) == 0 {
		key, err := p.firstKey(ctx, t)
		if err != nil {
			return nil, err
		}
		probe.HostKeys = []ssh.PublicKey{key}
	}
	// The login and every later connection enforce that key.
	if _, err := p.Node(&probe).Ask(ctx, "log in", ":"); err != nil {
		return nil, err
	}
	return probe.HostKeys[0], nil
}

// WaitReady returns a node's host key once the node can be worked on; it retries until the context
// is done. A wrong host key ends it at once. Refused credentials do not, since a machine that is
// being created may receive them last.
func (p *Pool) WaitReady(ctx context.Context, t *Target, say func(string)) (ssh.PublicKey, error) {
	last := ""
	for wait := 100 * time.Millisecond; ; wait = min(wait*3/2, 3*time.Second) {
		key, err := p.Learn(ctx, t)
		if err == nil {
			known := *t
			known.HostKeys = []ssh.PublicKey{key}
			err = p.Node(&known).Prepare(ctx)
		}
		if err == nil || errors.Is(err, ErrHostKey) {
			return key, err
		}
		if text := err.Error(); text != last && ctx.Err() == nil {
			last = text
			say("not yet: " + text)
		}
		if !pause(ctx, wait) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}
