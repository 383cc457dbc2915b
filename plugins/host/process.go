package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	plugrunner "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/coopr/coopr/plugins/sdk/wire"
	"github.com/coopr/coopr/rpc/proto"
)

// process is one running plugin process.
type process struct {
	host   *Host
	path   string
	client *plugin.Client
	conn   *grpc.ClientConn
	run    *runner

	// users counts the calls that hold the process; guarded by supervisor.mu
	// on the way up from zero, so that an idle process can be taken away safely.
	users     atomic.Int64
	idleSince atomic.Int64 // Unix nanoseconds of the last release to zero
	heard     atomic.Int64 // Unix nanoseconds of the last message

	mu      sync.Mutex
	streams [2]*stream // of the provider, of the automator; made when first needed
	reason  error      // why it is dead or dying; set once
	dead    chan struct{}

	closeOnce sync.Once
	readers   sync.WaitGroup
}

// start starts a plugin's file, whose open and checked descriptor is taken over.
func (h *Host) start(path string, file *os.File) (*process, error) {
	p := &process{host: h, path: path, dead: make(chan struct{})}
	log := h.cfg.Logger.With("plugin", filepath.Base(path))
	// Machines clean their folder of temporary files of what is old.
	if err := os.MkdirAll(h.left.sockets, 0o700); err != nil {
		file.Close()
		return nil, fmt.Errorf("the folder of plugins' sockets: %w", err)
	}
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		Plugins:          plugin.PluginSet{"coopr": connection{}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     h.cfg.StartTimeout,
		Logger:           bridge(log),
		SyncStdout:       &lineLogger{log: log},
		SyncStderr:       &lineLogger{log: log},
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: h.left.sockets},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, socketDir string) (plugrunner.Runner, error) {
			p.run = h.newRunner(spec, file, path, socketDir)
			return p.run, nil
		},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithInitialWindowSize(wire.Window), grpc.WithInitialConnWindowSize(wire.Window),
		},
	})
	rpc, err := p.client.Client()
	if err == nil {
		var raw any
		if raw, err = rpc.Dispense("coopr"); err == nil {
			p.conn = raw.(*grpc.ClientConn)
		}
	}
	if err != nil {
		err = p.explainStart(err)
		p.client.Kill()
		if p.run == nil {
			file.Close()
		}
		return nil, err
	}
	now := time.Now().UnixNano()
	p.idleSince.Store(now)
	p.heard.Store(now)
	p.readers.Add(1)
	go func() {
		defer p.readers.Done()
		<-p.run.exited
		// Results that it sent last may still be on their way to the reader,
		// who will find the stream's end behind them.
		select {
		case <-p.dead:
		case <-time.After(pipeDrain):
		}
		p.fail(p.ended())
	}()
	return p, nil
}

// ended says how the process ended, once it has.
func (p *process) ended() error {
	return fmt.Errorf("the process of plugin %s ended: %s", filepath.Base(p.path), p.run.status)
}

// explainStart says why a process did not become a plugin.
func (p *process) explainStart(err error) error {
	name := filepath.Base(p.path)
	switch {
	case p.run == nil:
	case p.run.cmd.Process == nil:
		return fmt.Errorf("plugin %s cannot be started: it must be a program for this machine: %w", name, err)
	default:
		_ = p.run.Kill(context.Background())
		<-p.run.exited
		if p.run.status != "signal: killed" { // by itself, then
			if why := p.run.words.last(); why != "" {
				return fmt.Errorf("plugin %s ended while starting (%s): %s", name, p.run.status, why)
			}
			return fmt.Errorf("plugin %s ended while starting (%s): %w", name, p.run.status, err)
		}
	}
	return fmt.Errorf("plugin %s did not start: its standard output must begin with the plugin kit's own line, nothing may be "+
		"printed before it: %w", name, err)
}

// connection gives go-plugin's connection as it is.
type connection struct{ plugin.NetRPCUnsupportedPlugin }

func (connection) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host's side")
}

func (connection) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

// fail gives the process up: it is killed if it still runs, and everything
// that waits for it is answered. Only the first reason counts.
func (p *process) fail(reason error) {
	p.mu.Lock()
	if p.reason != nil {
		p.mu.Unlock()
		return
	}
	p.reason = reason
	streams := p.streams
	p.mu.Unlock()
	_ = p.run.Kill(context.Background())
	<-p.run.exited
	// What the process started dies before anybody may try again.
	lost := map[attempt]bool{}
	for _, s := range streams {
		if s != nil {
			s.unfinished(lost)
		}
	}
	killTasks(lost)
	close(p.dead)
	outcome := proto.Outcome_OUTCOME_UNKNOWN
	if len(lost) > 1 {
		// One of them may be to blame, and nobody can say which: the others
		// must not lose a try to it.
		outcome = proto.Outcome_OUTCOME_CANCELLED
	}
	for _, s := range streams {
		if s != nil {
			s.fail(reason, outcome)
		}
	}
}

// useful says whether the process has carried a task to its end.
func (p *process) useful() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		if s != nil && s.useful() {
			return true
		}
	}
	return false
}

// alive says whether tasks can be given to the process.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason == nil
}

// politeFor is how long an idle process has to end when it is asked to.
const politeFor = 3 * time.Second

// close ends the process, politely first, and waits until nothing of it is left.
func (p *process) close(reason error) {
	p.closeOnce.Do(func() {
		p.mu.Lock()
		polite := p.reason == nil && p.users.Load() == 0
		p.mu.Unlock()
		if polite {
			// go-plugin asks the process to end and waits for the answer, for
			// ever if the process is frozen.
			frozen := time.AfterFunc(politeFor, func() { _ = p.run.Kill(context.Background()) })
			p.client.Kill()
			frozen.Stop()
		}
		p.fail(reason)
		p.client.Kill()
		p.readers.Wait()
		_ = os.RemoveAll(p.run.socketDir)
	})
}

// stream gives the provider's or the automator's stream.
func (p *process) stream(automator bool) (*stream, error) {
	i := 0
	if automator {
		i = 1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != nil {
		return nil, p.reason
	}
	if p.streams[i] == nil {
		s, err := p.open(automator)
		if err != nil {
			return nil, err
		}
		p.streams[i] = s
	}
	return p.streams[i], nil
}

// open opens a stream. Called with mu held.
func (p *process) open(automator bool) (*stream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	limits := []grpc.CallOption{grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)}
	var bidi grpc.BidiStreamingClient[proto.ExecuteRequest, proto.ExecuteResponse]
	var err error
	if automator {
		bidi, err = proto.NewAutomatorClient(p.conn).Execute(ctx, limits...)
	} else {
		bidi, err = proto.NewProviderClient(p.conn).Execute(ctx, limits...)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("open the plugin's stream: %w", err)
	}
	s := newStream()
	p.readers.Add(2)
	go func() {
		defer p.readers.Done()
		defer cancel()
		s.write(bidi, p.dead)
	}()
	go func() {
		defer p.readers.Done()
		for {
			m, err := bidi.Recv()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = errors.New("the plugin closed its stream")
				}
				select {
				case <-p.run.exited:
					p.fail(p.ended()) // the better reason
				case <-time.After(pipeDrain):
					p.fail(fmt.Errorf("plugin %s: %w", filepath.Base(p.path), err))
				}
				return
			}
			p.heard.Store(time.Now().UnixNano())
			s.deliver(m)
		}
	}()
	return s, nil
}

// ping asks the process whether it lives.
func (p *process) ping(ctx context.Context) error {
	_, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
	return err
}

// execute carries one task out on the process.
func (p *process) execute(ctx context.Context, t *proto.Task, sink Sink) *proto.Result {
	s, err := p.stream(t.Automator)
	if err != nil {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
	}
	c := &call{task: t, sink: sink, holds: leaseOf(ctx), done: make(chan *proto.Result, 1)}
	if err := s.send(c); err != nil {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
	}
	var timeout <-chan time.Time
	if t.TimeoutMs > 0 {
		timer := time.NewTimer(time.Duration(t.TimeoutMs) * time.Millisecond)
		defer timer.Stop()
		timeout = timer.C
	}
	var reason string
	select {
	case r := <-c.done:
		return r
	case <-ctx.Done():
		reason = context.Cause(ctx).Error()
	case <-timeout:
		reason = fmt.Sprintf("timed out after %s", time.Duration(t.TimeoutMs)*time.Millisecond)
	}
	s.cancel(c, reason)
	grace := time.NewTimer(p.host.cfg.CancelGrace)
	defer grace.Stop()
	select {
	case r := <-c.done:
		if ctx.Err() == nil && r.Outcome == proto.Outcome_OUTCOME_CANCELLED {
			// Nobody but the clock told it to stop: that is a failure.
			r.Outcome, r.Message = proto.Outcome_OUTCOME_RETRYABLE, reason
		}
		return r
	case <-grace.C:
	}
	p.fail(fmt.Errorf("plugin %s was killed: task %s did not stop within %s of being told to (%s)",
		filepath.Base(p.path), t.Id, p.host.cfg.CancelGrace, reason))
	r := <-c.done
	if r.Outcome == proto.Outcome_OUTCOME_CANCELLED {
		r.Outcome = proto.Outcome_OUTCOME_UNKNOWN // this one is to blame
	}
	return r
}
