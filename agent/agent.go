package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/blobs"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/directory"
	"github.com/coopr/coopr/agent/executor"
	"github.com/coopr/coopr/agent/keystore"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/agent/objects/act"
	"github.com/coopr/coopr/agent/service"
	"github.com/coopr/coopr/agent/sinks"
	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/wire"
)

// Config configures an Agent. The zero values of all fields but Config mean what an
// operator expects of the daemon; simulations replace them.
type Config struct {
	config.Config
	Build  string // version of the binary
	Logger *slog.Logger
	// ID is the agent's lasting identity. If it is empty, New reads it from the data directory, or creates it there.
	ID string
	// Credentials are what the agent is known by. They are zero in dev mode, but for a root token: else New takes the user's.
	admission.Credentials

	// The parts that simulations replace.
	Network  wire.Network
	Gossip   memberlist.NodeAwareTransport
	Stores   member.Stores // of the Raft member
	KeyStore keyring.Store // of the mesh's keys
	Journal  worker.Journal
	Executor host.Executor     // of tasks; replaces the plugin host
	Changes  objects.Performer // of change objects
	Timing   raftgroup.Timing

	// Started is called when Run serves. It may be nil.
	Started func()
	// NoHTTP keeps the API's port closed; Handler still works.
	NoHTTP     bool
	TTL        time.Duration    // of sessions
	Checkpoint time.Duration    // between two comparisons of the voters' states
	Drain      time.Duration    // how long a stopping agent waits for its tasks
	Machine    string           // names the machine on which local nodes live
	Clock      func() time.Time // the clock that the agent's heartbeats report, and by which it signs certificates
}

// Agent is one running agent.
type Agent struct {
	cfg      Config
	settings atomic.Pointer[config.Config] // as last reloaded
	id       string
	log      *slog.Logger
	lock     *identity.Lock // of the data directory
	ring     *keyring.Ring
	identity *identity.Identity
	desk     *admission.Desk // of agents that join
	metrics  *prometheus.Registry

	net        network
	mesh       *mesh.Mesh
	agents     *member.Registry
	supervisor *member.Supervisor
	locator    *member.Locator
	pluginSide
	blobs     *blobs.Cache
	journal   worker.Journal
	logs      *worker.Logs
	worker    *worker.Worker
	objects   *objects.Runtime    // of the change objects on this agent
	performer *act.AgentPerformer // nil if Config.Changes replaces it
	handler   http.Handler        // of the API
	grpc      *grpc.Server        // of other agents

	departure   *service.Departure // from the mesh, for good
	definitions *service.Definitions
}

// New assembles an agent and binds its ports. The caller then calls Run, or Close if the agent is not to run.
func New(cfg Config) (_ *Agent, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Name == "" {
		cfg.Name, _ = os.Hostname()
	}
	a := &Agent{
		cfg: cfg, id: cfg.ID, log: cfg.Logger.With("agent", cfg.Name),
		metrics: prometheus.NewRegistry(), agents: member.NewRegistry(), pluginSide: pluginSide{pluginsNews: make(chan struct{}, 1)},
	}
	a.settings.Store(&a.cfg.Config)
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	for _, step := range []func() error{
		a.openDataDir, a.loadIdentity, a.listen, a.openMesh, a.openMember, a.openPlugins, a.openBlobs, a.openWorker, a.openServers,
	} {
		if err := step(); err != nil {
			return a, err
		}
	}
	return a, nil
}

// openDataDir locks the data directory and reads the agent's identity from it.
func (a *Agent) openDataDir() (err error) {
	if a.cfg.DataDir == "" {
		if a.id == "" {
			return errors.New("an agent needs a data directory or an id")
		}
		return nil
	}
	if err := os.MkdirAll(a.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if a.lock, err = identity.LockDir(a.cfg.DataDir); err != nil {
		return err
	}
	if a.id == "" {
		a.id, err = identity.LoadOrCreateID(a.cfg.DataDir)
	}
	return err
}

// loadIdentity opens the agent's keyring, and its identity.
func (a *Agent) loadIdentity() (err error) {
	if a.cfg.KeyStore == nil {
		a.cfg.KeyStore = keystore.Of(a.cfg.Config)
	}
	if a.ring, err = keyring.Open(a.cfg.KeyStore); err != nil {
		return err
	}
	a.identity, err = admission.Open(&a.cfg.Config, &a.cfg.Credentials, a.ring, a.id, a.log)
	return err
}

// openMesh creates the agent's part in gossip.
func (a *Agent) openMesh() (err error) {
	gossip := a.cfg.Config.Gossip
	advertise, err := config.Advertised("gossip.advertise", gossip.Addr, gossip.Advertise)
	if err != nil {
		return err
	}
	c := mesh.Config{
		ID: a.id, Self: a.self(), Agents: gossip.Expect, Bind: gossip.Addr, Advertise: advertise,
		Transport: a.cfg.Gossip, Join: a.cfg.JoinAddrs(&a.cfg.Config), Logger: a.log,
	}
	c.GossipKeys, c.Prepare = a.cfg.GossipKeys(&a.cfg.Config), func(ctx context.Context) { a.desk.Prepare(ctx) }
	if a.cfg.DataDir != "" {
		c.PeersFile = filepath.Join(a.cfg.DataDir, "known-agents.json")
	}
	a.mesh, err = mesh.New(c)
	return err
}

// openMember creates the supervisor of the agent's Raft member.
func (a *Agent) openMember() error {
	raft, timing := a.cfg.Raft, a.cfg.Timing
	timing.Multiplier = cmp.Or(timing.Multiplier, float64(raft.Multiplier))
	timing.SnapshotThreshold = cmp.Or(timing.SnapshotThreshold, uint64(raft.SnapshotThreshold))
	timing.TrailingLogs = cmp.Or(timing.TrailingLogs, uint64(raft.TrailingLogs))
	timing.SnapshotInterval = cmp.Or(timing.SnapshotInterval, raft.SnapshotInterval)
	stores := a.cfg.Stores
	if stores.Open == nil {
		stores = member.StoresIn(filepath.Join(a.cfg.DataDir, "raft"), raft.Store, a.log)
	}
	a.supervisor = member.New(member.Config{
		ID: a.id, Build: a.cfg.Build, Eligible: a.cfg.Eligible, BootstrapExpect: a.cfg.BootstrapExpect,
		NewTransport: func() member.Transport { return wire.NewRaftTransport(a.net.mux, a.peerAddr, a.log) },
		Timing:       timing, RecoveryDir: a.cfg.DataDir, Mesh: a.mesh, Peers: a.net.peers, Registry: a.agents,
		ResourcesChanged: func() { a.blobs.Notify() }, ResourcesFollowed: func() (bool, error) { return a.blobs.Followed() },
		Logger: a.log, Stores: stores, Keyring: a.ring,
		Leader: member.LeaderConfig{
			SessionTTL: a.cfg.TTL, HostExec: a.cfg.Rules(), Rank: func(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error) {
				return a.definitions.Rank(ctx, q)
			},
			Retention: janitor.Retention{
				Clusters: a.cfg.Retention.Clusters, ClusterCount: a.cfg.Retention.ClusterCount, Operations: a.cfg.Retention.Operations,
				Requests: a.cfg.Retention.Requests, Audit: a.cfg.Audit.Retention, AuditRecords: uint64(a.cfg.Audit.Records),
				AuditMemory: uint64(a.cfg.Audit.Memory), AuditWait: uint64(a.cfg.Audit.SinkWait),
			},
			Birth: func(r *replica.Replica) leader.Duty {
				return &admission.Birth{Replica: r, Store: a.identity.Store(), Ring: a.ring, ID: a.id, Logger: a.log}
			},
			CheckpointEvery: a.cfg.Checkpoint, Issuer: a.cfg.Issuer, Directories: directory.Open(a.cfg.Config), Sinks: sinks.Open(a.cfg.Config),
			OrphanInterval: a.cfg.Orphans.Every, OrphanGrace: a.cfg.Orphans.Grace, DeleteOrphans: a.cfg.Orphans.Delete,
		},
	})
	a.locator = member.NewLocator(a.supervisor)
	a.desk = admission.New(admission.Config{
		ID: a.id, Store: a.identity.Store(), Ring: a.ring, Lifetime: a.cfg.Lifetime, Names: a.cfg.APINames(), Gossip: a.mesh.Addr(),
		Network: a.net.plain, Supervisor: a.supervisor, Locator: a.locator, Mesh: a.mesh, Registry: a.agents, Peers: a.net.peers,
		Hang: a.net.mux.Hang, Logger: a.log, Clock: a.cfg.Clock,
	})
	a.departure = service.NewDeparture(a.supervisor, func() error { return a.mesh.SetSelf(a.self()) })
	return nil
}

// peerAddr returns the peer address at which an agent is known to be now.
func (a *Agent) peerAddr(id string) (string, error) { return member.PeerAddr(a.mesh, id) }

// openBlobs opens the blob cache.
func (a *Agent) openBlobs() (err error) {
	c := blobs.Config{ID: a.id, Supervisor: a.supervisor, Locator: a.locator, Mesh: a.mesh, Peers: a.net.peers, Ring: a.ring, Logger: a.log}
	if store := a.identity.Store(); store != nil {
		c.Worker = func() bool { return store.Membership().Role == identity.Worker }
	}
	if a.cfg.DataDir != "" {
		c.Dir, c.Folders = filepath.Join(a.cfg.DataDir, "resources"), executor.ResourcesDir(a.cfg.Work())
		c.Lend = a.launcher.Lend
	}
	a.blobs, err = blobs.Open(c)
	return err
}

// ID returns the agent's lasting identity.
func (a *Agent) ID() string { return a.id }

// Token returns the root API token that the agent accepts.
func (a *Agent) Token() string { return a.cfg.Root }

// Addr returns the address of the API.
func (a *Agent) Addr() string { return a.net.apiAddr() }

// Handler returns the handler of the API, which needs no port.
func (a *Agent) Handler() http.Handler { return a.handler }

// Replica returns the agent's copy of the replicated state, or nil while it has none. Simulations compare the copies of all voters.
func (a *Agent) Replica() *replica.Replica {
	if m := a.supervisor.Member(); m != nil {
		return m.Replica
	}
	return nil
}

// Leads reports whether this agent leads and its duties are running.
func (a *Agent) Leads() bool {
	_, _, ok := a.supervisor.Leader()
	return ok
}

// Run runs the agent until ctx ends or the agent has left the mesh, and then stops
// it in good order. It returns nil if it ended because ctx did.
func (a *Agent) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, a.Close()) }()
	// The servers outlive the worker, so that its last reports and the farewell to the mesh can still be sent.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var servers errgroup.Group
	for _, run := range []func(context.Context) error{
		a.net.mux.Run, a.mesh.Run, a.supervisor.Run, a.blobs.Run, a.logs.Run, a.announcePlugins,
		func(ctx context.Context) error { return a.agents.Run(ctx, a.mesh, a.desk.Update) },
		func(ctx context.Context) error { return a.desk.Run(ctx, a.net.mux.Door()) },
	} {
		servers.Go(func() error { return run(serving) })
	}
	servers.Go(func() error { return ignoreClosed(a.grpc.Serve(a.net.mux.GRPC())) })
	// The peer port serves the API too: other agents forward requests to the leader, with the token of the caller.
	forwarded := server.NewAgentServer(a.handler, a.desk.ServesOthers)
	servers.Go(func() error { return ignoreClosed(forwarded.Serve(a.net.mux.HTTP())) })
	public := server.NewServer(a.handler)
	public.ErrorLog = slog.NewLogLogger(a.log.Handler(), slog.LevelInfo) // failed handshakes, among others
	if a.net.api != nil {
		servers.Go(func() error { return ignoreClosed(public.Serve(a.net.api)) })
	}
	working, stopWorking := context.WithCancel(ctx)
	defer stopWorking()
	servers.Go(func() error { return a.objects.Run(working) })
	a.log.Info("the agent is running", "id", a.id, "api", a.net.apiAddr(), "peer", a.net.mux.Addr().String(), "gossip", a.mesh.Addr())
	if a.cfg.Started != nil {
		a.cfg.Started()
	}
	go func() {
		select {
		case <-a.departure.Done():
			stopWorking()
		case <-working.Done():
		}
	}()
	err = a.worker.Run(working)
	stopWorking()
	a.log.Info("the agent is stopping")
	a.leave()
	_, _ = public.Close(), forwarded.Close()
	a.grpc.Stop()
	stopServing()
	return errors.Join(err, ignoreCanceled(servers.Wait()))
}

// leave hands over the leadership and announces to the mesh that this agent stops on purpose. The agent keeps its vote, as it
// may be back in a moment; if another eligible agent is available, that one replaces it as a voter.
func (a *Agent) leave() {
	a.supervisor.HandOver()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := a.mesh.Leave(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		a.log.Debug("this agent could not announce to the mesh that it stops", "error", err)
	}
}

func ignoreCanceled(err error) error {
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

// Close releases what New acquired. It may be called more than once.
func (a *Agent) Close() error {
	errs := a.net.closeClients()
	if a.host != nil {
		errs = errors.Join(errs, a.host.Close())
		a.host = nil
	}
	if a.performer != nil {
		a.performer.Close()
	}
	if a.blobs != nil {
		a.blobs.Close()
	}
	if a.journal != nil {
		errs = errors.Join(errs, a.journal.Close())
		a.journal = nil
	}
	if a.mesh != nil {
		errs = errors.Join(errs, a.mesh.Close())
	}
	errs = errors.Join(errs, a.net.close())
	if a.lock != nil {
		errs = errors.Join(errs, a.lock.Release())
		a.lock = nil
	}
	return errs
}
