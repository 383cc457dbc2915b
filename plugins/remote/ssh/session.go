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

// drain is how long the output of a program that has ended is still read:
// something that it left behind may hold it open for ever.
const drain = 250 * time.Millisecond

// session is one program on a node.
type session struct {
	ch      ssh.Channel
	client  *ssh.Client
	release func()        // of the connection
	started chan struct{} // closed when the mark was seen
	ended   chan struct{} // closed when exit is set, or the channel is gone without
	exit    *remote.Exit
	copied  sync.WaitGroup
	stderr  tail
}

// errNotStarted says that a program's mark was never seen: nothing ran.
var errNotStarted = errors.New("the node did not start it")

// start opens a channel and tells the node's shell a program; input follows it.
// Output goes to the writers, without the mark and what came before.
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

// limit closes a connection that takes longer than an answer may take, until
// it is called off.
func (p *Pool) limit(ctx context.Context, c *conn) (stop func()) {
	timer := time.AfterFunc(p.cfg.Answer, func() { c.client.Close() })
	cancel := context.AfterFunc(ctx, func() { timer.Reset(min(p.cfg.Answer, closing)) })
	return func() {
		cancel()
		timer.Stop()
	}
}

// channel opens a channel. A connection that turns out to be dead is replaced
// once: nothing has been done over it. A node that refuses, because it is still
// clearing sessions away that have ended for us, is asked again for as long as an
// answer may take.
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

// pause waits; false: the context was done first.
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

// follow reads what the node says of the program's end.
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

// over says whether the end is known; follow alone closes ended.
func (s *session) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// exitOf reads a shell's exit status: above 128 stands a signal.
func exitOf(status int) *remote.Exit {
	if name, ok := signals[status-128]; ok {
		return &remote.Exit{Code: -1, Signal: name}
	}
	return &remote.Exit{Code: status}
}

// signals are the ones that end processes, by number.
var signals = map[int]string{
	1: "hangup", 2: "interrupt", 3: "quit", 4: "illegal instruction", 6: "aborted", 7: "bus error", 8: "floating point exception", 9: "killed",
	11: "segmentation fault", 13: "broken pipe", 14: "alarm clock", 15: "terminated", 24: "CPU time limit exceeded",
	25: "file size limit exceeded", 31: "bad system call",
}

// finish waits for the rest of the output and frees everything. It gives how
// the program ended; nil: nobody knows.
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

// closing is how long a node may take to agree that a session is closed;
// afterwards its connection counts as dead.
const closing = 2 * time.Second

// close gives a session up and frees everything.
func (s *session) close() {
	stop := s.abort()
	s.copied.Wait()
	<-s.ended
	stop()
	s.release()
}

// abort closes the channel, and if the node does not agree to that in time,
// unless it is called off, the connection.
func (s *session) abort() (stop func()) {
	s.ch.Close()
	timer := time.AfterFunc(closing, func() { s.client.Close() })
	return func() { timer.Stop() }
}

// wasStarted says whether the mark came; valid after finish.
func (s *session) wasStarted() bool {
	select {
	case <-s.started:
		return true
	default:
		return false
	}
}

// notStarted is the error of a program that never began.
func (s *session) notStarted() error {
	if text := strings.TrimSpace(s.stderr.String()); text != "" {
		return fmt.Errorf("%w: %s", errNotStarted, text)
	}
	return errNotStarted
}

// copyTo copies all of a stream; a writer that fails does not stop the reader,
// or the node would wait for us.
func copyTo(to io.Writer, from io.Reader) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = io.Copy(io.Discard, from)
	}
}

// afterMark passes on what follows a mark, and tells when it comes.
type afterMark struct {
	to   io.Writer
	mark []byte
	seen chan struct{}
	held []byte
	open bool
}

// maxChatter is how much a login shell may say before the mark.
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

// tail keeps the last of what is written to it.
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
