package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Config holds the limits of a Pool; zero values are replaced by defaults.
type Config struct {
	Logger      *slog.Logger
	DialTimeout time.Duration // for a connection with its handshake; default 20 s
	// Answer is how long a node may take to answer a small request before its connection is given
	// up; default 20 s.
	Answer time.Duration
	Idle   time.Duration // after which an unused connection is closed; default 1 min
	// Channels is the maximum number of concurrent channels on a connection. The default, 8, is
	// below the 10 that OpenSSH allows.
	Channels int
}

// Pool keeps one connection per node and shares it among tasks. It is safe for concurrent use.
type Pool struct {
	cfg Config

	mu     sync.Mutex
	conns  map[string]*conn
	closed bool
	wg     sync.WaitGroup
}

// errClosed is the error of a closed pool.
var errClosed = errors.New("the pool of SSH connections is closed")

// New returns a pool, which the caller closes.
func New(cfg Config) *Pool {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&cfg.DialTimeout, 20 * time.Second}, {&cfg.Answer, 20 * time.Second}, {&cfg.Idle, time.Minute}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if cfg.Channels <= 0 {
		cfg.Channels = 8
	}
	return &Pool{cfg: cfg, conns: map[string]*conn{}}
}

// conn is a connection, or one that is being established.
type conn struct {
	ready  chan struct{} // closed when client or err is set
	client *ssh.Client
	err    error
	slots  chan struct{} // one per open channel

	mu    sync.Mutex
	used  time.Time // time of the last use
	users int
}

// connect returns the connection to a target and establishes it if there is none.
func (p *Pool) connect(ctx context.Context, t *Target) (*conn, error) {
	key := t.key()
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, errClosed
		}
		c, ours := p.conns[key], false
		if c == nil {
			c = &conn{ready: make(chan struct{}), slots: make(chan struct{}, p.cfg.Channels), used: time.Now()}
			p.conns[key], ours = c, true
		}
		p.mu.Unlock()
		if ours {
			c.client, c.err = p.dial(ctx, t)
			if c.err != nil {
				p.drop(key, c)
			} else if !p.watch(key, c) {
				c.client.Close()
				c.err = errClosed
			}
			close(c.ready)
			return c, c.err
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if c.err == nil || ctx.Err() == nil && !errors.Is(c.err, context.Canceled) && !errors.Is(c.err, context.DeadlineExceeded) {
			return c, c.err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// The caller that dialled was cancelled, this one was not.
	}
}

// drop removes a connection from the pool.
func (p *Pool) drop(key string, c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[key] == c {
		delete(p.conns, key)
	}
}

// watch supervises a connection: it sends keepalives, closes an idle connection, and removes a
// closed one from the pool.
func (p *Pool) watch(key string, c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	ended := make(chan struct{})
	p.wg.Go(func() {
		defer close(ended)
		defer p.drop(key, c)
		_ = c.client.Wait()
	})
	p.wg.Go(func() {
		tick := time.NewTicker(min(p.cfg.Idle, p.cfg.Answer))
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-tick.C:
				c.mu.Lock()
				idle := c.users == 0 && now.Sub(c.used) >= p.cfg.Idle
				c.mu.Unlock()
				if idle {
					c.client.Close()
					continue
				}
				alive := time.AfterFunc(p.cfg.Answer, func() {
					p.cfg.Logger.Warn("a node does not respond, so its SSH connection is closed", "address", c.client.RemoteAddr().String())
					c.client.Close()
				})
				_, _, _ = c.client.SendRequest("keepalive@openssh.com", true, nil)
				alive.Stop()
			}
		}
	})
	return true
}

// Close ends all connections.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	var open []*conn
	for _, c := range p.conns {
		open = append(open, c)
	}
	p.mu.Unlock()
	for _, c := range open {
		<-c.ready
		if c.client != nil {
			c.client.Close()
		}
	}
	p.wg.Wait()
}

// dial establishes a connection through all jump hosts.
func (p *Pool) dial(ctx context.Context, t *Target) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.DialTimeout)
	defer cancel()
	var raw net.Conn
	var err error
	if n := len(t.Jumps); n == 0 {
		raw, err = (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	} else {
		last := Target{Hop: t.Jumps[n-1], Jumps: t.Jumps[:n-1]}
		var c *conn
		if c, err = p.connect(ctx, &last); err == nil {
			unuse := c.use()
			if raw, err = c.client.DialContext(ctx, "tcp", t.Address); err == nil {
				raw = &relayed{Conn: raw, done: sync.OnceFunc(unuse)}
			} else {
				unuse()
			}
		}
		if err != nil {
			err = fmt.Errorf("through %s: %w", last.Address, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", t.Address, err)
	}
	client, err := handshake(ctx, raw, &t.Hop)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("log in to %s as %s: %w", t.Address, t.User, err)
	}
	return client, nil
}

// handshake verifies the host key and logs in.
func handshake(ctx context.Context, raw net.Conn, h *Hop) (*ssh.Client, error) {
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	asked := false // the host key was accepted, and the node has asked for credentials
	var wrongKey error
	cfg := &ssh.ClientConfig{
		User: h.User,
		HostKeyCallback: func(_ string, _ net.Addr, got ssh.PublicKey) error {
			wrongKey = h.check(got)
			return wrongKey
		},
	}
	for _, k := range h.HostKeys {
		cfg.HostKeyAlgorithms = append(cfg.HostKeyAlgorithms, algorithms(k.Type())...)
	}
	if h.Signer != nil {
		cfg.Auth = append(cfg.Auth, ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			asked = true
			return []ssh.Signer{h.Signer}, nil
		}))
	}
	if h.Password != "" {
		cfg.Auth = append(cfg.Auth, ssh.PasswordCallback(func() (string, error) {
			asked = true
			return h.Password, nil
		}))
	}
	c, chans, reqs, err := ssh.NewClientConn(raw, h.Address, cfg)
	var broken *net.OpError
	switch {
	case !stop():
		if c != nil {
			c.Close()
		}
		return nil, context.Cause(ctx)
	case wrongKey != nil:
		return nil, wrongKey
	case errors.Is(err, io.EOF) && asked:
		// sshd does so while the machine boots or shuts down, whatever the credentials.
		return nil, fmt.Errorf("the node closes the connection during the login: %w", err)
	case err != nil && asked && !errors.As(err, &broken):
		return nil, fmt.Errorf("%w: %w", ErrAuth, err)
	case err != nil:
		return nil, err
	}
	return ssh.NewClient(c, chans, reqs), nil
}

// algorithms returns the signature algorithms of a type of key.
func algorithms(kind string) []string {
	if kind == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{kind}
}

// check compares a host key with the known ones.
func (h *Hop) check(got ssh.PublicKey) error {
	if h.learned != nil {
		h.learned(got)
		return nil
	}
	if len(h.HostKeys) == 0 {
		return fmt.Errorf("%w: no host key is known", ErrHostKey)
	}
	for _, k := range h.HostKeys {
		if string(k.Marshal()) == string(got.Marshal()) {
			return nil
		}
	}
	return fmt.Errorf("%w: it has %s, but %s is known: another machine has this address, or the machine was reinstalled",
		ErrHostKey, ssh.FingerprintSHA256(got), ssh.FingerprintSHA256(h.HostKeys[0]))
}

// relayed is a connection through another machine, whose connection it keeps in use.
type relayed struct {
	net.Conn
	done func()
}

func (r *relayed) Close() error {
	r.done()
	return r.Conn.Close()
}

// firstKey returns the host key that a node presents.
func (p *Pool) firstKey(ctx context.Context, t *Target) (ssh.PublicKey, error) {
	var key ssh.PublicKey
	probe := *t
	probe.learned = func(k ssh.PublicKey) { key = k }
	client, err := p.dial(ctx, &probe)
	if err != nil {
		return nil, err
	}
	return key, client.Close()
}

// use marks the connection as used until the returned function is called.
func (c *conn) use() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.users--
		c.used = time.Now()
	}
}
