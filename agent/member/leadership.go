package member

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/coopr/coopr/agent/tasks"
	"github.com/coopr/coopr/consensus/duty/clocks"
	"github.com/coopr/coopr/consensus/duty/dispatch"
	"github.com/coopr/coopr/consensus/duty/heads"
	"github.com/coopr/coopr/consensus/duty/incidents"
	"github.com/coopr/coopr/consensus/duty/integrity"
	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/duty/keys"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/duty/recovery"
	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/duty/sinks"
	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/consensus/duty/uses"
	"github.com/coopr/coopr/consensus/duty/watch"
	"github.com/coopr/coopr/consensus/leader"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	pb "github.com/coopr/coopr/rpc/proto"
)

// LeaderConfig configures the duties of a leader.
type LeaderConfig struct {
	// SessionTTL is how long a worker's session survives its connection. 0 means
	// the dispatcher's default.
	SessionTTL time.Duration
	// CheckpointEvery is how often the voters' copies of the state are compared. 0 means the default.
	CheckpointEvery time.Duration
	// HostExec decides which users may request work that runs on control hosts.
	HostExec hostexec.Rules
	// Rank asks a plugin for the comparator of a request. It may be nil.
	Rank func(context.Context, model.RankingQuestion) (*model.Ranking, error)

	// Issuer is the address under which keys for tokens of tasks are published; "": the mesh issues none.
	Issuer string

	// Birth returns the duty that writes the identity of a new mesh. It may be nil.
	Birth func(*replica.Replica) leader.Duty

	// Retention is how long the state keeps what has ended.
	Retention janitor.Retention

	// Sinks take the records of the audit log.
	Sinks []sinks.Target

	// Directories know users who have no password here.
	Directories map[logins.Source]logins.Directory

	// Providers are searched for orphaned machines every OrphanInterval. If
	// DeleteOrphans is set, an orphan older than OrphanGrace is removed.
	OrphanInterval, OrphanGrace time.Duration
	DeleteOrphans               bool
}

// Leadership has the duties of one term that requests and sessions use.
type Leadership struct {
	Dispatcher   *dispatch.Dispatcher
	Orchestrator *orchestrate.Orchestrator
	Watcher      *watch.Controller
	Sites        *sites.Controller
	Orphans      *janitor.Orphans
	Janitor      *janitor.Janitor
	Integrity    *integrity.Controller
	Logins       *logins.Controller
	Uses         *uses.Recorder
	Keys         *keys.Controller
	Sinks        *sinks.Controller
	Incidents    *incidents.Recorder
	Clocks       *clocks.Clocks
	broken       chan brokenSession
	removals     *removals
}

// duties returns the duties of a new term, in the order in which they are restored.
func (m *Member) duties() []leader.Duty {
	cfg, log := m.cfg.Leader, m.cfg.Logger
	k := m.keys()
	d := dispatch.New(dispatch.Config{
		Machine: m.Machine, Propose: m.Propose, Tasks: tasks.NewBuilder(m.Machine, m.Box, cfg.Issuer), Logger: log,
		Timing: lease.Timing{TTL: cfg.SessionTTL}, Jitter: rand.Float64, Seal: k.Sealer.SealResults,
	})
	under := &removals{}
	l := &Leadership{
		removals:   under,
		Dispatcher: d,
		Orchestrator: orchestrate.New(orchestrate.Config{
			Machine: m.Machine, Propose: m.Propose, Logger: log, Rank: cfg.Rank, First: firstLeases(d), HostExec: cfg.HostExec,
			Seal: k.Sealer.SealFields, SealHidden: k.Sealer.SealHidden,
		}),
		Watcher: watch.New(watch.Config{
			Machine: m.Machine, Propose: m.Propose, Tasks: tasks.NewChecks(m.Machine, m.Box), Logger: log, TTL: cfg.SessionTTL,
		}),
		Sites: sites.New(sites.Config{Machine: m.Machine, Propose: m.Propose, Logger: log, Node: sites.NodeAccess(m.Box), Paused: sites.Resting,
			Box: m.Box, Seal: k.Sealer.SealObjects}),
		Orphans: janitor.NewOrphans(janitor.OrphansConfig{
			Machine: m.Machine, Propose: m.Propose, Finder: inventory{m.Machine, m.cfg.Peers, under}, Opener: m.Box, Logger: log,
			Every: cfg.OrphanInterval, Delete: cfg.DeleteOrphans, Grace: cfg.OrphanGrace,
		}),
		Integrity: m.integrity(),
		Logins: logins.New(logins.Config{
			Machine: m.Machine, Propose: m.Propose, Ring: m.cfg.Keyring, Box: m.Box, Directories: cfg.Directories, Logger: log,
		}),
		Keys:      k,
		Uses:      uses.New(uses.Config{Machine: m.Machine, Propose: m.Propose, Logger: log}),
		Sinks:     sinks.New(sinks.Config{Machine: m.Machine, Propose: m.Propose, Targets: cfg.Sinks, Logger: log}),
		Incidents: incidents.New(incidents.Config{Machine: m.Machine, Propose: m.Propose, Logger: log}),
		Clocks:    clocks.New(log),
		broken:    make(chan brokenSession, 1024),
	}
	retention := cfg.Retention
	retention.Sinks = sinks.Names(cfg.Sinks)
	l.Janitor = janitor.New(janitor.Config{
		Machine: m.Machine, Propose: m.Propose, Logger: log, Retention: retention,
		Delete: l.Orchestrator.EndLease,
	})
	m.lead.Store(l)
	duties := []leader.Duty{
		l.Integrity, // the first one, as it refuses to begin with a wrong state
		&seed{m.Replica},
		l.Orchestrator,
		l.Dispatcher,
		l.Watcher,
		l.Sites,
		recovery.New(recovery.Config{Machine: m.Machine, Start: l.Orchestrator, Logger: log}),
		m.runs(l),
		l.Janitor,
		l.Orphans,
		m.voters,
		l.Logins,
		l.Uses,
		l.Keys,
		heads.New(heads.Config{Machine: m.Machine, Propose: m.Propose, Box: m.Box, Logger: log}),
		l.Sinks,
		l.Incidents,
		&broadcaster{machine: m.Machine, message: m.RegistryMessage, mesh: m.cfg.Mesh, registry: m.cfg.Registry, leadership: l},
	}
	if cfg.Birth != nil {
		duties = append(duties, cfg.Birth(m.Replica))
	}
	return duties
}

// runs returns the duty that carries out runs of programs.
func (m *Member) runs(l *Leadership) *runs.Controller {
	c := &runs.Clusters{Machine: m.Machine, Propose: m.Propose, Start: l.Orchestrator, Opener: m.Box}
	return runs.New(runs.Config{
		Machine: m.Machine, Propose: m.Propose, Provisioner: c.Provisioner, Programs: c.Programs(), Opener: m.Box, Random: rand.Uint32,
		Logger: m.cfg.Logger,
	})
}

// firstLeases lets an operation start together with its first leases, in one
// log entry.
func firstLeases(d *dispatch.Dispatcher) func(context.Context, *operation.Prepared) (*pb.Lease, func()) {
	return func(ctx context.Context, p *operation.Prepared) (*pb.Lease, func()) {
		nodes := make(map[string]*model.Node, len(p.Nodes))
		for i := range p.Nodes {
			nodes[p.Nodes[i].ID] = &p.Nodes[i]
		}
		return d.First(ctx, &p.Operation, p.Graph, func(u uint32) dispatch.Needs {
			n := nodes[p.Graph.NodeID(int(u))]
			if n == nil {
				return dispatch.Needs{}
			}
			return tasks.NeedsOf(&p.Cluster, p.Operation.ID, n, p.Graph.Action[u], p.Graph.Entry(int(u)))
		})
	}
}
