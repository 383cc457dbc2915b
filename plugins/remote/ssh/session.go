package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/plugins/remote"
)

// drain is how long the remaining output of an ended program is read: one of its children may hold
// it open for ever.
const drain = 250 * time.Millisecond

// session is one program on a node.
type session struct {
	ch      ssh.Channel
	client  *ssh.Client
	release func()        // releases the connection
	started chan struct{} // closed when the mark has been read
	ended   chan struct{} // closed when exit is set, or the channel has closed without one
	exit    *remote.Exit
	copied  sync.WaitGroup
	stderr  tail
}

// errNotStarted means that a program's mark was never read, so nothing ran.
var errNotStarted = errors.New("the node did not start it")

// start opens a channel and sends a program to the node's shell, followed by input. Output after
// the mark goes to the writers.
func (n *Node) start(ctx context.Context, program, mark string, input [][]byte, stdout, stderr io.Writer) (*session, error) {
	c, ch, reqs, release, err := n.channel(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{ch: ch, client: c.client, release: release, started: make(chan struct{}), ended: make(chan struct{})}
	go s.follow(reqs)
	s.copied.Go(func() { copyTo(&afterMark{to: stdout, mark: []byte(mark + "\n"), seen: s.started}, ch) })
	s.copied.Go(func() { copyTo(io.MultiWriter(stderr, &s.stderr), ch.Stderr()) })
	stop := n.pool.limit(ctx, c)
	defer stop()
	ok, err := ch.SendRequest("exec", true, ssh.Marshal(struct{ Command string }{command(n.target.Sudo)}))
	if err == nil && !ok {
		err = errors.New("the node refuses to run commands")
	}
	for _, b := range append([][]byte{frame(program)}, input...) {
		if err == nil {
			_, err = ch.Write(b)
		}
	}
	if err != nil && !s.over() {
		s.close()
		return nil, fmt.Errorf("%w: %w", errNotStarted, err)
	}
	return s, nil
}

// limit closes a connection on which an answer takes too long, until stop is called.
func (p *Pool) limit(ctx context.Context, c *conn) (stop func()) {
	timer := time.AfterFunc(p.cfg.Answer, func() { c.client.Close() })
	cancel := context.AfterFunc(ctx, func() { timer.Reset(min(p.cfg.Answer, closing)) })
	return func() {
		cancel()
		timer.Stop()
	}
}

// channel opens a channel. A connection that turns out to be dead is replaced once, since nothing
// has been done over it. If the node refuses because it is still closing earlier sessions, channel
// retries for as long as an answer may take.
func (n *Node) channel(ctx context.Context) (*conn, ssh.Channel, <-chan *ssh.Request, func(), error) {
	patient, cancel := context.WithTimeout(ctx, n.pool.cfg.Answer)
	defer cancel()
	for again := true; ; {
		c, err := n.pool.connect(ctx, n.target)
		if err != nil {
			return nil, nil, nil, nil, err
		}
		unuse := c.use()
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			unuse()
			return nil, nil, nil, nil, context.Cause(ctx)
		}
		release := sync.OnceFunc(func() { <-c.slots; unuse() })
		stop := n.pool.limit(ctx, c)
		ch, reqs, err := c.client.OpenChannel("session", nil)
		stop()
		if err == nil {
			return c, ch, reqs, release, nil
		}
		release()
		if ctx.Err() != nil {
			return nil, nil, nil, nil, context.Cause(ctx)
		}
		var refused *ssh.OpenChannelError
		if errors.As(err, &refused) && pause(patient, 20*time.Millisecond) {
			continue
		}
		if refused != nil || !again {
			return nil, nil, nil, nil, fmt.Errorf("open a session on %s: %w", n.target.Address, err)
		}
		again = false
		c.client.Close()
		n.pool.drop(n.target.key(), c)
	}
}

// pause waits, and reports false if the context was done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// follow reads the node's messages about the program's end.
func (s *session) follow(reqs <-chan *ssh.Request) {
	defer func() {
		if !s.over() {
			close(s.ended)
		}
	}()
	for r := range reqs {
		switch r.Type {
		case "exit-status":
			var m struct{ Status uint32 }
			if ssh.Unmarshal(r.Payload, &m) == nil && !s.over() {
				s.exit = exitOf(int(m.Status))
				close(s.ended)
			}
		case "exit-signal":
			var m struct {
				Signal     string
				CoreDumped bool
				Error      string
				Lang       string
			}
			if ssh.Unmarshal(r.Payload, &m) == nil && !s.over() {
				s.exit = &remote.Exit{Code: -1, Signal: m.Signal}
				close(s.ended)
			}
		}
		if r.WantReply {
			_ = r.Reply(false, nil)
		}
	}
}

// over reports whether the end is known; follow alone closes ended.
func (s *session) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// exitOf interprets a shell's exit status: values above 128 stand for a signal.
func exitOf(status int) *remote.Exit {
	if name, ok := signals[status-128]; ok {
		return &remote.Exit{Code: -1, Signal: name}
	}
	return &remote.Exit{Code: status}
}

// signals are the names of signals that end processes, by number.
var signals = map[int]string{
	1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 6: "aborted", 7: "bus error", 8: "floating point exception", 9: "killed",
	11: "segmentation fault", 13: "broken pipe", 14: "alarm clock", 15: "terminated", 24: "CPU time limit exceeded",
	25: "file size limit exceeded", 31: "bad system call",
}

// finish waits for the rest of the output and releases everything. It returns how the program
// ended, or nil if that is unknown.
func (s *session) finish() *remote.Exit {
	<-s.ended
	copied := make(chan struct{})
	go func() { s.copied.Wait(); close(copied) }()
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-copied:
	case <-timer.C:
	}
	s.close()
	return s.exit
}

// closing is how long a node may take to confirm that a session is closed; afterwards its
// connection is closed.
const closing = 2 * time.Second

// close ends a session and releases everything.
func (s *session) close() {
	stop := s.abort()
	s.copied.Wait()
	<-s.ended
	stop()
	s.release()
}

// abort closes the channel. If the node does not confirm that in time, it closes the connection,
// unless stop is called before.
func (s *session) abort() (stop func()) {
	s.ch.Close()
	timer := time.AfterFunc(closing, func() { s.client.Close() })
	return func() { timer.Stop() }
}

// wasStarted reports whether the mark was read; valid after finish.
func (s *session) wasStarted() bool {
	select {
	case <-s.started:
		return true
	default:
		return false
	}
}

// notStarted returns the error of a program that never began.
func (s *session) notStarted() error {
	if text := strings.TrimSpace(s.stderr.String()); text != "" {
		return fmt.Errorf("%w: %s", errNotStarted, text)
	}
	return errNotStarted
}

// copyTo copies all of a stream. If the writer fails, the rest is read and dropped, as the node
// would wait otherwise.
func copyTo(to io.Writer, from io.Reader) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = io.Copy(io.Discard, from)
	}
}

// afterMark passes on everything after a mark, and closes seen at the mark.
type afterMark struct {
	to   io.Writer
	mark []byte
	seen chan struct{}
	held []byte
	open bool
}

// maxChatter bounds the output of a login shell before the mark.
const maxChatter = 64 << 10

func (w *afterMark) Write(p []byte) (int, error) {
	if w.open {
		return w.to.Write(p)
	}
	w.held = append(w.held, p...)
	i := bytes.Index(w.held, w.mark)
	if i < 0 {
		if extra := len(w.held) - maxChatter; extra > 0 {
			w.held = w.held[extra:]
		}
		return len(p), nil
	}
	w.open = true
	close(w.seen)
	rest := w.held[i+len(w.mark):]
	w.held = nil
	if len(rest) > 0 {
		if _, err := w.to.Write(rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const keep = 2 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p[max(0, len(p)-keep):]...)
	t.b = t.b[max(0, len(t.b)-keep):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
