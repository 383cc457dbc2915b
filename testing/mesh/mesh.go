package mesh

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/fabric"
)

// Options shape a mesh.
type Options struct {
	// Agents is the number of agents; 0 means 3.
	Agents int
	// Seed chooses everything that is left to chance.
	Seed uint64
	// Expect is bootstrap_expect; 0 means 3, or 1 for a mesh of less.
	Expect int
	// Timing of Raft; zero: a heartbeat time-out of one second, which costs a
	// simulation a tenth of what the default of 150 ms does.
	Timing raftgroup.Timing
	// TTL of sessions; 0 means the default of 5 s.
	TTL time.Duration
	// Slots of each agent; 0 means 4.
	Slots int
	// Retention of the agents; zero: that of an agent.
	Retention config.Retention
	// Audit has the limits and the sinks of the audit log; zero: the limits of an agent, and no sink.
	Audit config.Audit
	// Checkpoint is how often the leader compares the voters' states; 0 means every 5 s.
	Checkpoint time.Duration
	// Identity is true for a mesh whose agents have certificates: the first one founds it, and the others join with tokens.
	Identity bool
	// Workers is the number of agents that join as workers, the last ones.
	Workers int
	// Keys are in the keyring of the first agent when it starts.
	Keys keyring.Set
	// Issuer is that of the agents' settings.
	Issuer string
	// Verbose writes the trace as it comes.
	Verbose bool
}

// Mesh is a simulated mesh.
type Mesh struct {
	T      testing.TB
	Fabric *fabric.Fabric
	World  *World

	opts   Options
	rng    *rand.Rand
	agents []*Agent
	begin  time.Time

	births *births // of a mesh with identities

	faults, starts atomic.Int32 // so far

	mu   sync.Mutex
	cuts map[string]cut // by name
	log  []string
}

// cut is a partition that is in force.
type cut struct {
	groups [][]string
	oneWay [][2]string
}

// Token is the superadmin's token in every simulated mesh.
const Token = "simulated-root-token"

// New makes a mesh and starts its agents. It must be called in a synctest
// bubble. The mesh is taken down at the test's end.
func New(t testing.TB, o Options) *Mesh {
	t.Helper()
	if o.Agents == 0 {
		o.Agents = 3
	}
	if o.Expect == 0 {
		o.Expect = 3
		if o.Agents < 3 {
			o.Expect = 1
		}
	}
	if o.Timing.HeartbeatTimeout == 0 {
		o.Timing.HeartbeatTimeout = time.Second
	}
	if o.Slots == 0 {
		o.Slots = 4
	}
	o.Checkpoint = cmp.Or(o.Checkpoint, 5*time.Second)
	m := &Mesh{T: t, Fabric: fabric.New(o.Seed), opts: o, rng: rand.New(rand.NewPCG(o.Seed, 1)), begin: time.Now(), cuts: map[string]cut{}}
	m.World = newWorld(o.Seed, m.Tracef)
	m.Fabric.SetQuality(fabric.Quality{Delay: time.Millisecond, Jitter: time.Millisecond})
	t.Cleanup(m.close)
	if o.Identity {
		m.opts.Expect = 1
		m.births = newBirths(t)
	}
	for i := range o.Agents {
		m.agents = append(m.agents, m.newAgent(i))
	}
	m.agents[0].PutKeys(o.Keys)
	for _, a := range m.agents {
		a.Start()
	}
	return m
}

func (m *Mesh) close() {
	for _, a := range m.agents {
		a.Crash()
	}
	for _, a := range m.agents {
		a.wait()
	}
	if m.T.Failed() && !m.opts.Verbose {
		m.mu.Lock()
		m.T.Logf("seed %d; the trace:\n%s", m.opts.Seed, strings.Join(m.log, "\n"))
		m.mu.Unlock()
	}
	time.Sleep(time.Minute) // what the libraries left sleeping
}

// maxTrace bounds the trace of a seed that runs wild.
const maxTrace = 3000

// Tracef puts a line on the trace that a failure shows.
func (m *Mesh) Tracef(format string, args ...any) {
	line := fmt.Sprintf("%10.3fs  ", time.Since(m.begin).Seconds()) + fmt.Sprintf(format, args...)
	if m.opts.Verbose {
		m.T.Log(line)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.log = append(m.log, line); len(m.log) > maxTrace {
		m.log = append(m.log[:100:100], m.log[maxTrace/2:]...)
	}
}

// tracer is a log handler that writes an agent's log to the trace.
type tracer struct {
	m     *Mesh
	life  *life // the dead are silent
	name  string
	level slog.Level
	attrs string
}

func (t tracer) Enabled(_ context.Context, l slog.Level) bool {
	return l >= t.level && !t.life.isDead()
}
func (t tracer) WithGroup(string) slog.Handler { return t }

func (t tracer) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		if a.Key != "agent" {
			t.attrs += " " + a.String()
		}
	}
	return t
}

func (t tracer) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s%s", t.name, r.Level, r.Message, t.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s", a)
		return true
	})
	t.m.Tracef("%s", b.String())
	return nil
}

// Agents returns all agents, up or down.
func (m *Mesh) Agents() []*Agent { return m.agents }

// Up returns the agents that run and are not frozen.
func (m *Mesh) Up() []*Agent {
	var out []*Agent
	for _, a := range m.agents {
		if a.Running() && !a.life.frozen() {
			out = append(out, a)
		}
	}
	return out
}

// Leader returns the agent that leads and whose duties run, or nil. If a deposed leader has not
// heard of the next one yet, Leader returns the one with the higher term.
func (m *Mesh) Leader() *Agent {
	var best *Agent
	var term uint64
	for _, a := range m.Up() {
		if r := a.agent.Replica(); r != nil && a.agent.Leads() {
			if st := r.Group.Stats(); best == nil || st.Term > term {
				best, term = a, st.Term
			}
		}
	}
	return best
}

// Servers returns the Raft group as the leader has it; nil while there is none.
func (m *Mesh) Servers() []raftgroup.Server {
	if l := m.Leader(); l != nil {
		if r := l.agent.Replica(); r != nil {
			return r.Group.Servers()
		}
	}
	return nil
}

// Voters returns the voters that are up, as the leader has them; nil while there
// is not a leader.
func (m *Mesh) Voters() []*Agent {
	l := m.Leader()
	if l == nil {
		return nil
	}
	r := l.agent.Replica()
	if r == nil {
		return nil
	}
	votes := map[string]bool{}
	for _, s := range r.Group.Servers() {
		votes[s.ID] = s.Voter
	}
	var out []*Agent
	for _, a := range m.Up() {
		if votes[a.ID] {
			out = append(out, a)
		}
	}
	return out
}

// patience is how long a wait may take, in simulated time.
const patience = 10 * time.Minute

// Until waits for a condition.
func (m *Mesh) Until(what string, ok func() bool) {
	m.T.Helper()
	m.Within(patience, 100*time.Millisecond, what, ok)
}

// Within is Until with a limit and a pause of its own.
func (m *Mesh) Within(limit, pause time.Duration, what string, ok func() bool) {
	m.T.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > limit {
			m.T.Fatalf("seed %d: not within %s: %s", m.opts.Seed, limit, what)
		}
		time.Sleep(pause)
	}
}

// AwaitLeader waits for a leader.
func (m *Mesh) AwaitLeader() *Agent {
	m.T.Helper()
	var l *Agent
	m.Until("a leader", func() bool { l = m.Leader(); return l != nil })
	return l
}

// Cut makes a partition that Heal ends; parts in no group keep their links.
func (m *Mesh) Cut(name string, groups ...[]*Agent) {
	c := cut{}
	for _, g := range groups {
		var ips []string
		for _, a := range g {
			ips = append(ips, a.ip)
		}
		c.groups = append(c.groups, ips)
	}
	m.setCut(name, &c)
}

// CutOneWay drops everything that from sends to to.
func (m *Mesh) CutOneWay(name string, from, to *Agent) {
	m.setCut(name, &cut{oneWay: [][2]string{{from.ip, to.ip}}})
}

// Heal ends a partition.
func (m *Mesh) Heal(name string) { m.setCut(name, nil) }

func (m *Mesh) setCut(name string, c *cut) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c == nil {
		delete(m.cuts, name)
		m.Fabric.Heal()
	} else {
		m.cuts[name] = *c
	}
	for _, c := range m.cuts {
		if len(c.groups) > 0 {
			m.Fabric.Partition(fabric.Blackhole, c.groups...)
		}
		for _, l := range c.oneWay {
			m.Fabric.CutLink(l[0], l[1])
		}
	}
}
