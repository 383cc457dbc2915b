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

	"github.com/coopr/coopr/internal/hclogbridge"
	"github.com/coopr/coopr/plugins/sdk/wire"
	"github.com/coopr/coopr/rpc/proto"
)

// process is one running plugin process.
type process struct {
	host   *Host
	path   string
	born   time.Time
	client *plugin.Client
	conn   *grpc.ClientConn
	run    *runner

	// users counts the calls that use the process. Raising it from zero takes supervisor.mu, so
	// that an idle process can be removed safely.
	users     atomic.Int64
	idleSince atomic.Int64 // Unix nanoseconds of the last release to zero
	heard     atomic.Int64 // Unix nanoseconds of the last message

	mu      sync.Mutex
	streams [2]*stream // of the provider and of the automator; opened when first needed
	reason  error      // why the process is dead or dying; set once
	dead    chan struct{}

	closeOnce sync.Once
	readers   sync.WaitGroup
}

// start starts a plugin's file. It takes over the open descriptor whose checksum was compared.
func (h *Host) start(path string, file *os.File) (*process, error) {
	p := &process{host: h, path: path, born: time.Now(), dead: make(chan struct{})}
	if err := h.refusal(path, file); err != nil {
		file.Close()
		return nil, err
	}
	log := h.cfg.Logger.With("plugin", filepath.Base(path))
	// The folder may have been deleted by a cleaner of temporary files.
	if err := h.cfg.Launcher.Pass(h.left.sockets); err != nil {
		file.Close()
		return nil, fmt.Errorf("create the folder of plugins' sockets: %w", err)
	}
	p.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		Plugins:          plugin.PluginSet{"coopr": connection{}},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     h.cfg.StartTimeout,
		Logger:           hclogbridge.NewLeveled(log, exitsAreNormal),
		SyncStdout:       &lineLogger{log: log, hide: h.secrets.text},
		SyncStderr:       &lineLogger{log: log, hide: h.secrets.text},
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
		// The last results may still be on their way to the reader, which finds the end of the
		// stream after them.
		select {
		case <-p.dead:
		case <-time.After(pipeDrain):
		}
		p.fail(p.ended())
	}()
	return p, nil
}

// ended returns an error that describes how the process ended. It must be called after the end of the
// process.
func (p *process) ended() error {
	if why := p.run.use.over(); why != "" {
		return errors.New(why)
	}
	return fmt.Errorf("the process of plugin %s ended: %s", filepath.Base(p.path), p.run.status)
}

// explainStart returns an error with the reason why a process did not become a plugin.
func (p *process) explainStart(err error) error {
	name := filepath.Base(p.path)
	switch {
	case p.run == nil:
	case p.run.cmd.Process == nil:
		return fmt.Errorf("plugin %s cannot be started: is it a program for this machine? %w", name, err)
	default:
		_ = p.run.Kill(context.Background())
		<-p.run.exited
		if p.run.status != "signal: killed" { // so it ended by itself
			if why := p.run.words.last(); why != "" {
				return fmt.Errorf("plugin %s ended while starting (%s): %s", name, p.run.status, why)
			}
			return fmt.Errorf("plugin %s ended while starting (%s): %w", name, p.run.status, err)
		}
	}
	return fmt.Errorf("plugin %s did not start: the first line of its standard output must be that of the plugin kit; "+
		"remove what is printed before it: %w", name, err)
}

// connection returns go-plugin's connection unchanged.
type connection struct{ plugin.NetRPCUnsupportedPlugin }

func (connection) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("this is the host's side")
}

func (connection) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

// fail gives the process up: it is killed if it still runs, and every waiting call is answered.
// Only the first reason counts.
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
	// The children of the process are killed before any task can be repeated.
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
		// One of the tasks may have caused it, but it is unknown which: the others must not be
		// charged with an attempt.
		outcome = proto.Outcome_OUTCOME_CANCELLED
	}
	for _, s := range streams {
		if s != nil {
			s.fail(reason, outcome)
		}
	}
}

// useful reports whether the process has completed a task.
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

// alive reports whether the process accepts tasks.
func (p *process) alive() bool { return p.why() == nil }

// why returns the reason for which the process is dead or dying, or nil.
func (p *process) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// politeFor is how long an idle process has to end after it was asked to.
const politeFor = 3 * time.Second

// close ends the process, politely if it is idle, and waits until nothing of it is left.
func (p *process) close(reason error) {
	p.closeOnce.Do(func() {
		p.mu.Lock()
		polite := p.reason == nil && p.users.Load() == 0
		p.mu.Unlock()
		if polite {
			// go-plugin asks the process to end and waits for the answer, which never comes from a
			// frozen process.
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

// stream returns the provider's or the automator's stream, and opens it if needed.
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
				if why := p.run.use.over(); why != "" {
					p.fail(errors.New(why)) // a killed process may take long to end
					return
				}
				select {
				case <-p.run.exited:
					p.fail(p.ended()) // the exit status explains more than the end of the stream
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

// ping probes the process.
func (p *process) ping(ctx context.Context) error {
	_, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: plugin.GRPCServiceName})
	return err
}

// execute carries out one task on the process.
func (p *process) execute(ctx context.Context, t *proto.Task, sink Sink) *proto.Result {
	s, err := p.stream(t.Automator)
	if err != nil {
		return result(t, proto.Outcome_OUTCOME_NOTHING_DONE, err.Error())
	}
	c := &call{task: t, sink: sink, lease: leaseOf(ctx), done: make(chan *proto.Result, 1)}
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
			// Only the timeout stopped the task, so it has failed.
			r.Outcome, r.Message = proto.Outcome_OUTCOME_RETRYABLE, reason
		}
		return r
	case <-grace.C:
	}
	p.fail(fmt.Errorf("plugin %s was killed: task %s did not stop within %s after its cancellation (%s)",
		filepath.Base(p.path), t.Id, p.host.cfg.CancelGrace, reason))
	r := <-c.done
	if r.Outcome == proto.Outcome_OUTCOME_CANCELLED {
		r.Outcome = proto.Outcome_OUTCOME_UNKNOWN // this task is the cause
	}
	return r
}
