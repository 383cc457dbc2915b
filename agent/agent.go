package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/agent/objects/act"
	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/peer"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/wire"
)

// Config is what an agent is made of. What is left nil is made as an operator
// means it; simulations bring their own.
type Config struct {
	config.Config
	Build  string
	Logger *slog.Logger
	// ID is the agent's identity; empty: the one in the data directory.
	ID string
	// Secret is the mesh's; zero in dev mode.
	Secret identity.Secret
	// Token is the root API token of a dev agent; empty: made, and kept in the
	// data directory.
	Token string

	Network    wire.Network
	Gossip     memberlist.NodeAwareTransport
	OpenStores func() (*logstore.Stores, error)
	Journal    worker.Journal
	Executor   host.Executor
	Changes    objects.Performer // of change objects
	// Started is called once Run serves; may be nil.
	Started func()
	// NoHTTP leaves the API's port closed; Handler still answers.
	NoHTTP  bool
	Timing  raftgroup.Timing
	TTL     time.Duration // of sessions
	Drain   time.Duration // of leaving workers
	Machine string        // names where local nodes live; empty: found out
}

// Agent is one running agent.
type Agent struct {
	cfg      Config
	settings atomic.Pointer[config.Config] // cfg's, with what was reloaded since
	id       string
	log      *slog.Logger
	lock     *identity.Lock
	identity *identity.Identity
	token    string // of the superadmin
	machine  string

	mesh      *mesh.Mesh
	mux       *wire.Mux
	pool      *peer.Pool
	host      *host.Host // nil where Config.Executor was given
	executor  host.Executor
	journal   worker.Journal
	logs      *worker.Logs
	worker    *worker.Worker
	objects   *objects.Runner     // the change objects that this agent runs
	performer *act.AgentPerformer // acts for them; nil where the configuration has one
	shelf     *shelf              // plugin resources
	handler   http.Handler
	grpc      *grpc.Server
	registry  *prometheus.Registry
	http      net.Listener
	forward   *http.Transport

	agents     *member.Registry
	supervisor *member.Supervisor // of the Raft member
	locator    *member.Locator    // of the leader
	leaving    atomic.Bool
	offers     chan struct{} // one slot: the plugins have changed
	quit       chan struct{} // closed when the agent has left the mesh for good
}

// New puts an agent together and binds its ports. Run starts it; Close is for
// one that never ran.
func New(cfg Config) (_ *Agent, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{cfg: cfg, id: cfg.ID, log: cfg.Logger, token: cfg.Token, registry: prometheus.NewRegistry(), quit: make(chan struct{}), offers: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if cfg.DataDir != "" {
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return a, fmt.Errorf("data directory: %w", err)
		}
		if a.lock, err = identity.LockDir(cfg.DataDir); err != nil {
			return a, err
		}
		if a.id == "" {
			if a.id, err = identity.LoadOrCreateID(cfg.DataDir); err != nil {
				return a, err
			}
		}
	}
	if a.id == "" {
		return a, errors.New("an agent needs a data directory or an id")
	}
	if a.cfg.Name == "" {
		a.cfg.Name, _ = os.Hostname()
	}
	a.settings.Store(&a.cfg.Config)
	a.log = a.log.With("agent", a.cfg.Name)
	a.machine = cfg.Machine
	for _, step := range []func() error{a.secure, a.listen, a.gossip, a.raft, a.plugins, a.openShelf, a.work, a.serve} {
		if err := step(); err != nil {
			return a, err
		}
	}
	return a, nil
}

// placeName names a folder on this machine, the same for every agent that uses
// it: where local nodes live, and their tasks go.
func placeName(folder string) string {
	b, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(strings.TrimSpace(string(b))) == 0 {
		h, _ := os.Hostname()
		b = []byte(h)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "coopr place\x00%s\x00%s", b, folder))
	return hex.EncodeToString(sum[:8])
}

// secure makes the agent's identity, and the root token.
func (a *Agent) secure() (err error) {
	if a.cfg.Secret.IsZero() {
		if !a.cfg.Dev {
			return errors.New("a mesh needs a secret: give a join token, or use dev mode")
		}
		return a.devToken()
	}
	if a.identity, err = identity.New(a.cfg.Secret, a.id); err != nil {
		return err
	}
	a.token = a.cfg.Secret.RootToken()
	return nil
}

// devToken keeps one token for the life of the data directory.
func (a *Agent) devToken() error {
	if a.token != "" || a.cfg.DataDir == "" {
		return nil
	}
	path := filepath.Join(a.cfg.DataDir, "dev-token")
	if b, err := os.ReadFile(path); err == nil && len(b) > 20 {
		a.token = strings.TrimSpace(string(b))
		return nil
	}
	a.token = "coopr-dev-" + rand.Text()
	return os.WriteFile(path, []byte(a.token+"\n"), 0o600)
}

// listen binds the peer port.
func (a *Agent) listen() (err error) {
	network := a.cfg.Network
	if network == nil {
		var configs *wire.TLSConfigs
		if a.identity != nil {
			configs = &wire.TLSConfigs{Server: a.identity.ServerConfig(), Client: a.identity.ClientConfig("")}
		}
		network = wire.TCP(configs)
	}
	a.mux, err = wire.NewMux(wire.MuxConfig{
		Network: network, Addr: a.cfg.Peer.Addr, Advertise: a.cfg.Peer.Advertise, Logger: a.log,
		MaxConnsPerRemote: cmp.Or(a.cfg.Limits.PeerConns, -1),
	})
	if err != nil {
		return fmt.Errorf("peer port: %w", err)
	}
	a.pool = peer.NewPool(a.mux.DialGRPC)
	a.forward = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			conn, err := a.mux.DialHTTP(ctx, addr)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errNotReached, err)
			}
			return conn, nil
		},
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
	if !a.cfg.NoHTTP {
		if a.http, err = a.listenHTTP(); err != nil {
			return fmt.Errorf("API port: %w", err)
		}
	}
	return nil
}

// gossip makes the agent's part in the mesh.
func (a *Agent) gossip() (err error) {
	c := mesh.Config{
		ID: a.id, Self: a.self(), Agents: a.cfg.Config.Gossip.Expect, Bind: a.cfg.Config.Gossip.Addr, Advertise: a.cfg.Config.Gossip.Advertise,
		Transport: a.cfg.Gossip, Join: a.cfg.Join, Logger: a.log,
	}
	if !a.cfg.Secret.IsZero() {
		c.GossipKey = a.cfg.Secret.GossipKey()
	}
	if a.cfg.DataDir != "" {
		c.KeyringFile = filepath.Join(a.cfg.DataDir, "gossip-keys.json")
		c.PeersFile = filepath.Join(a.cfg.DataDir, "known-agents.json")
	}
	a.mesh, err = mesh.New(c)
	return err
}

// raft makes the supervisor of the agent's Raft member.
func (a *Agent) raft() error {
	timing := a.cfg.Timing
	if a.cfg.Raft.Multiplier > 0 && timing.Multiplier == 0 {
		timing.Multiplier = float64(a.cfg.Raft.Multiplier)
	}
	if a.cfg.Raft.SnapshotThreshold > 0 && timing.SnapshotThreshold == 0 {
		timing.SnapshotThreshold = uint64(a.cfg.Raft.SnapshotThreshold)
	}
	if a.cfg.Raft.TrailingLogs > 0 && timing.TrailingLogs == 0 {
		timing.TrailingLogs = uint64(a.cfg.Raft.TrailingLogs)
	}
	if timing.SnapshotInterval == 0 {
		timing.SnapshotInterval = a.cfg.Raft.SnapshotInterval // 0: Raft's default
	}
	a.agents = member.NewRegistry()
	a.supervisor = member.New(member.Config{
		ID: a.id, Eligible: a.cfg.Eligible, BootstrapExpect: a.cfg.BootstrapExpect,
		OpenStores: a.openStores, NewTransport: func() member.Transport { return wire.NewRaftTransport(a.mux, a.peerAddr, a.log) },
		Timing: timing, RecoveryDir: a.cfg.DataDir, Mesh: a.mesh, Peers: a.pool, Registry: a.agents,
		ResourcesChanged: func() { a.shelf.look() }, Logger: a.log,
		Leader: member.LeaderConfig{
			SessionTTL: a.cfg.TTL, Rank: a.Rank,
			AuditRetention: a.cfg.Audit.Retention, AuditRecords: uint64(a.cfg.Audit.Records), AuditMemory: uint64(a.cfg.Audit.Memory),
			OrphanInterval: a.cfg.Orphans.Every, OrphanGrace: a.cfg.Orphans.Grace, DeleteOrphans: a.cfg.Orphans.Delete,
		},
	})
	a.locator = member.NewLocator(a.supervisor)
	return nil
}

func (a *Agent) openStores() (*logstore.Stores, error) {
	if a.cfg.OpenStores != nil {
		return a.cfg.OpenStores()
	}
	kind, err := logstore.ParseKind(a.cfg.Raft.Store)
	if err != nil {
		return nil, err
	}
	return logstore.Open(filepath.Join(a.cfg.DataDir, "raft"), kind, logstore.Options{Logger: a.log})
}

// peerAddr returns the peer address at which an agent is known to be now.
func (a *Agent) peerAddr(id string) (string, error) { return member.PeerAddr(a.mesh, id) }

// self is what the others learn of this agent.
func (a *Agent) self() mesh.Self {
	now := a.settings.Load()
	return mesh.Self{
		Name: now.Name, RPCAddr: a.mux.Addr().String(), APIAddr: a.apiAddr(), Build: a.cfg.Build,
		FeatureLevel: state.FeatureLevel, Zone: now.Zone, Class: now.Class, Eligible: a.cfg.Eligible,
		BootstrapExpect: a.cfg.BootstrapExpect, Leaving: a.leaving.Load(),
	}
}

func (a *Agent) apiAddr() string {
	if a.http == nil {
		return a.mux.Addr().String()
	}
	hostname, port, err := net.SplitHostPort(a.http.Addr().String())
	if ip := net.ParseIP(hostname); err == nil && ip != nil && ip.IsUnspecified() {
		// Bound to every address: the one the peers use is one of them.
		if h, _, err := net.SplitHostPort(a.mux.Addr().String()); err == nil {
			return net.JoinHostPort(h, port)
		}
	}
	return a.http.Addr().String()
}

// plugins makes the plugin host.
func (a *Agent) plugins() (err error) {
	if a.executor = a.cfg.Executor; a.executor != nil {
		return nil
	}
	root := a.cfg.Providers.Local.Root
	if root == "" {
		root = filepath.Join(a.cfg.DataDir, "local")
	}
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	if a.machine == "" {
		a.machine = placeName(root)
	}
	var dirs []string
	if a.cfg.PluginDir != "" {
		dirs = append(dirs, a.cfg.PluginDir)
	}
	self, _ := os.Executable()
	bin := filepath.Dir(self)
	if a.cfg.Dev || a.cfg.PluginDir == "" {
		dirs = append(dirs, bin)
	}
	c := host.Config{
		Dirs: dirs, DataDir: filepath.Join(a.cfg.DataDir, "plugins"), Logger: a.log,
		Env:      []string{"COOPR_LOCAL_ROOT=" + root, "COOPR_BIN=" + bin, "PATH=" + bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		OnChange: a.pluginsChanged,
	}
	for _, p := range a.cfg.Plugins {
		b, err := binary(dirs, p)
		if err != nil {
			return err
		}
		c.Plugins = append(c.Plugins, b)
	}
	a.host, err = host.New(c)
	a.executor = a.host
	return err
}

// binary is a plugin that the configuration names, in the first of the folders that has
// it. Its settings reach it as JSON in COOPR_PLUGIN_SETTINGS.
func binary(dirs []string, p config.Plugin) (host.Binary, error) {
	name := cmp.Or(p.Path, "coopr-"+p.Name)
	b := host.Binary{Path: name, SHA256: strings.TrimPrefix(p.Checksum, "sha256:")}
	if !filepath.IsAbs(name) {
		b.Path = filepath.Join(dirs[0], name)
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				b.Path = filepath.Join(dir, name)
				break
			}
		}
	}
	if len(p.Settings) > 0 {
		settings, err := json.Marshal(map[string]any(p.Settings))
		if err != nil {
			return b, fmt.Errorf("settings of plugin %s: %w", p.Name, err)
		}
		b.Env = []string{"COOPR_PLUGIN_SETTINGS=" + string(settings)}
	}
	return b, nil
}

// pluginsChanged lets Run open a new session, which tells the leader what is on
// offer. The plugins' host calls it when it likes, before there is a worker too.
func (a *Agent) pluginsChanged() {
	select {
	case a.offers <- struct{}{}:
	default:
	}
}

// tellOffers opens a new session whenever the plugins changed.
func (a *Agent) tellOffers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.offers:
			a.worker.Reconnect()
		}
	}
}

// work makes the worker.
func (a *Agent) work() (err error) {
	a.logs = worker.NewLogs("")
	if a.cfg.DataDir != "" {
		a.logs = worker.NewLogs(filepath.Join(a.cfg.DataDir, "logs"))
	}
	if a.journal = a.cfg.Journal; a.journal == nil {
		if a.journal, err = worker.OpenFile(filepath.Join(a.cfg.DataDir, "journal")); err != nil {
			return err
		}
	}
	executor := leased{onMachine{everyAutomator{withResources{untilReady{a.executor}, a.shelf}}, a.machine}, func() bool { return a.worker.InTouch() }}
	a.worker, err = worker.New(worker.Config{
		Hello: a.hello, Connect: a.connectLeader, Executor: executor, Journal: a.journal,
		Logs: a.logs, Logger: a.log, Records: a.agents.Receive, Sites: func(session string, orders []byte) { a.objects.Orders(session, orders) }, Drain: a.cfg.Drain,
	})
	if err != nil {
		return err
	}
	return a.newObjects()
}

// hello says what this agent is to the leader.
func (a *Agent) hello() *pb.Hello {
	now := a.settings.Load()
	h := &pb.Hello{
		Agent: a.id, Name: now.Name, Slots: uint32(a.cfg.Worker.Slots), Build: a.cfg.Build, FeatureLevel: state.FeatureLevel,
		Zone: now.Zone, Class: now.Class, PeerAddr: a.mux.Addr().String(), ApiAddr: a.apiAddr(), GossipAddr: a.mesh.Addr(),
		Eligible: a.cfg.Eligible, Machine: a.machine, Process: a.objects.Process(),
	}
	if m, ok := a.mesh.Member(a.id); ok {
		h.Incarnation = m.Epoch
	}
	if a.cfg.Dev && a.token != "" {
		sum := sha256.Sum256([]byte(a.token))
		h.Token = sum[:]
	}
	for _, t := range a.executor.Types() {
		t.Class = "automator"
		if t.Kind == model.KindProviderType {
			t.Class = "provider"
		}
		if t.PluginType.Plugin == "" {
			t.PluginType.Plugin = t.Checksum
		}
		if b, err := json.Marshal(t.PluginType); err == nil {
			h.Plugins = append(h.Plugins, b)
		}
	}
	return h
}

// serve makes the API and the peer RPC server.
func (a *Agent) serve() (err error) {
	if err := a.registry.Register(runMetrics{a}); err != nil {
		return err
	}
	a.handler, err = server.New(server.Config{Backend: &backend{a}, Logger: a.log, Registry: a.registry, Name: a.cfg.Name,
		MaxBody: int64(a.cfg.Limits.Body), MaxWatches: a.cfg.Limits.Watches})
	if err != nil {
		return err
	}
	a.grpc = peer.NewServer(newPeerServer(a))
	return nil
}

// errNotReached says that nothing was sent, for there is no connection.
var errNotReached = errors.New("there is no connection")

// ID is the agent's lasting identity; Token the root API token it accepts.
func (a *Agent) ID() string    { return a.id }
func (a *Agent) Token() string { return a.token }

// Addr is where the API listens, Peer where peers do.
func (a *Agent) Addr() string { return a.apiAddr() }

// Handler answers the API without a port.
func (a *Agent) Handler() http.Handler { return a.handler }

// Run runs the agent until ctx ends, then leaves its work in order. It returns
// nil when it ended because ctx did.
func (a *Agent) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, a.Close()) }()
	// What serves others outlives what asks others, so that the last reports
	// and goodbyes have a way out.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var servers errgroup.Group
	servers.Go(func() error { return a.mux.Run(serving) })
	servers.Go(func() error { return ignoreClosed(a.grpc.Serve(a.mux.GRPC())) })
	forwarded := server.NewServer(fromPeer(a.handler))
	servers.Go(func() error { return ignoreClosed(forwarded.Serve(a.mux.HTTP())) })
	var public *http.Server
	if a.http != nil {
		public = server.NewServer(a.handler)
		servers.Go(func() error { return ignoreClosed(public.Serve(a.http)) })
	}
	servers.Go(func() error { return a.mesh.Run(serving) })
	servers.Go(func() error { return a.supervisor.Run(serving) })
	servers.Go(func() error { return a.agents.Run(serving, a.mesh) })
	servers.Go(func() error { return a.tellOffers(serving) })
	servers.Go(func() error { return a.shelf.tend(serving) })
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	servers.Go(func() error { return a.objects.Run(working) })
	a.log.Info("agent started", "id", a.id, "api", a.apiAddr(), "peer", a.mux.Addr().String(), "gossip", a.mesh.Addr())
	if a.cfg.Started != nil {
		a.cfg.Started()
	}

	go func() {
		select {
		case <-a.quit:
			stopWorking()
		case <-working.Done():
		}
	}()
	err = a.worker.Run(working)
	stopWorking()
	a.log.Info("agent stops")
	a.goodbye()
	for _, s := range []*http.Server{public, forwarded} {
		if s != nil {
			_ = s.Close()
		}
	}
	a.grpc.Stop()
	stopServing()
	return errors.Join(err, ignoreCancel(servers.Wait()))
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Close releases what New took. It may be called more than once.
func (a *Agent) Close() error {
	var errs error
	if a.pool != nil {
		errs = errors.Join(errs, a.pool.Close())
	}
	if a.forward != nil {
		a.forward.CloseIdleConnections()
	}
	if a.host != nil {
		errs = errors.Join(errs, a.host.Close())
		a.host = nil
	}
	if a.performer != nil {
		a.performer.Close()
	}
	if a.shelf != nil {
		a.shelf.close()
	}
	if a.journal != nil {
		errs = errors.Join(errs, a.journal.Close())
		a.journal = nil
	}
	if a.mesh != nil {
		errs = errors.Join(errs, a.mesh.Close())
	}
	if a.mux != nil {
		errs = errors.Join(errs, a.mux.Close())
	}
	if a.http != nil {
		if err := a.http.Close(); !errors.Is(err, net.ErrClosed) {
			errs = errors.Join(errs, err)
		}
	}
	if a.lock != nil {
		errs = errors.Join(errs, a.lock.Release())
		a.lock = nil
	}
	return errs
}
