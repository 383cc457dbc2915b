package voters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/internal/hclogbridge"
)

// Config configures a Controller. Group and Candidates are required.
type Config struct {
	Group *raftgroup.Group
	// Candidates returns the agents of the mesh, this one included, members or
	// not. It is called at least once per Interval and must not block.
	Candidates func() []Candidate
	// Policy is called for each decision, so its result may change.
	Policy func() Policy
	// Admit is called before an agent becomes a member. An error keeps the agent out; ErrForeign means
	// that the group's state would overwrite state of another mesh. A nil Admit admits every agent.
	Admit  func(context.Context, Candidate) error
	Logger *slog.Logger
	// Interval is the pause between two observations of the group (default 1 s).
	Interval time.Duration
	// Changed is called after every change, made or failed; may be nil.
	Changed func(Change, error)
}

// Controller is the leader's duty that chooses the voters. One Controller serves all terms of a
// member of the group, one after the other: a dead voter must be replaced even if no term lasts as long
// as its silence has to last. The clock of the Controller stands still between the terms, because this
// member hears from nobody while another one leads.
type Controller struct {
	cfg    Config
	states chan *autopilot.State // the newest state, if Run has not received it yet

	// Owned by Run, or by Restore before it.
	stable map[string]time.Time // since when a member has been healthy
	heard  map[string]time.Time // when a member last answered, or was first seen in the configuration
	shun   map[string]shunned
	begin  time.Time // of the term
	last   time.Time // the latest observation of the group

	mu     sync.Mutex
	health Health
}

type shunned struct {
	until time.Time
	times int
}

// shunFirst is how long an agent that failed as a new member is shunned. The time doubles with each
// failure, up to 32 minutes.
const shunFirst = time.Minute

// ErrForeign means that an agent holds the state of another group. The agent is shunned for a while,
// like an agent that failed as a new member.
var ErrForeign = errors.New("its data directory belongs to another mesh")

// Limits by which a member counts as healthy.
const (
	contactLimit = 2 * time.Second
	lagLimit     = 1024 // entries
	changeLimit  = 15 * time.Second
	confirmLimit = time.Second
	// forgetAfter is the time between two terms of this member after which observations of the earlier
	// one do not count any more.
	forgetAfter = 10 * time.Minute
)

// Health is the health of the group, for the operator.
type Health struct {
	// Healthy: every member is healthy.
	Healthy bool `json:"healthy"`
	// FailureTolerance is how many voters may fail now without stopping the group.
	FailureTolerance int            `json:"failureTolerance"`
	Members          []MemberHealth `json:"members"`
	// Next is the last decided change, if any. Error is the reason why it could not be made.
	Next  string `json:"next,omitempty"`
	Error string `json:"error,omitempty"`
}

// MemberHealth is the health of one member.
type MemberHealth struct {
	ID        string        `json:"id"`
	Addr      string        `json:"address"`
	Zone      string        `json:"zone,omitempty"`
	Voter     bool          `json:"voter"`
	Leader    bool          `json:"leader"`
	Healthy   bool          `json:"healthy"`
	Stable    time.Duration `json:"stable"`  // for how long it has been healthy
	Silence   time.Duration `json:"silence"` // since its last answer
	LastIndex uint64        `json:"lastIndex"`
}

// NewController returns a Controller.
func NewController(cfg Config) (*Controller, error) {
	if cfg.Group == nil || cfg.Candidates == nil {
		return nil, errors.New("voters: Config.Group and Config.Candidates are required")
	}
	if cfg.Policy == nil {
		cfg.Policy = func() Policy { return Policy{} }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Second
	}
	return &Controller{
		cfg:    cfg,
		states: make(chan *autopilot.State, 1),
		stable: make(map[string]time.Time),
		heard:  make(map[string]time.Time),
		shun:   make(map[string]shunned),
	}, nil
}

// Name is the duty's name.
func (k *Controller) Name() string { return "voters" }

// Restore begins a term. The time since this member last led does not count, neither as silence nor as
// health of the others.
func (k *Controller) Restore(context.Context) error {
	now := time.Now()
	away := now.Sub(k.last)
	if k.last.IsZero() || away > forgetAfter {
		clear(k.heard)
		clear(k.stable)
	}
	for _, times := range []map[string]time.Time{k.heard, k.stable} {
		for id, at := range times {
			times[id] = at.Add(away)
		}
	}
	k.begin, k.last = now, now
	select {
	case <-k.states: // of an earlier term
	default:
	}
	return nil
}

// Run adjusts the voters until ctx ends. A failed change is not an error of the duty; it is decided
// again later.
func (k *Controller) Run(ctx context.Context) error {
	pilot := autopilot.New(k.cfg.Group.Library(), (*delegate)(k),
		autopilot.WithLogger(hclogbridge.New(k.cfg.Logger)),
		autopilot.WithUpdateInterval(k.cfg.Interval),
		autopilot.WithReconcileInterval(24*time.Hour),
		autopilot.WithPromoter(watcher{}),
		autopilot.WithReconciliationDisabled(),
	)
	pilot.Start(ctx)
	defer func() { <-pilot.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case state := <-k.states:
			k.step(ctx, state)
		}
	}
}

// Health returns the latest observation of the Controller.
func (k *Controller) Health() Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.health
}

// step observes the group once and makes at most one change.
func (k *Controller) step(ctx context.Context, state *autopilot.State) {
	g := k.cfg.Group
	servers, at := g.ServersAt()
	if latest := g.Servers(); !sameServers(servers, latest) {
		return // a change is under way
	}
	view := k.view(time.Now(), state, servers)
	change := Decide(view)
	err := k.make(ctx, change, view, at)
	k.note(view, state, change, err)
	if change.Kind == None {
		return
	}
	if k.cfg.Changed != nil {
		k.cfg.Changed(change, err)
	}
	log := k.cfg.Logger.With("change", string(change.Kind), "member", change.ID, "address", change.Addr, "reason", change.Reason)
	switch {
	case err == nil:
		log.Info("changed the voters")
	case errors.Is(err, raftgroup.ErrNotLeader), ctx.Err() != nil:
		log.Debug("left a change of the voters to the next leader", "error", err)
	default:
		log.Warn("could not change the voters", "error", err)
	}
}

func sameServers(a, b []raftgroup.Server) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (k *Controller) view(now time.Time, state *autopilot.State, servers []raftgroup.Server) View {
	g := k.cfg.Group
	v := View{Now: now, Policy: k.cfg.Policy(), Candidates: k.cfg.Candidates()}
	for i, c := range v.Candidates {
		v.Candidates[i].Shunned = c.Shunned || now.Before(k.shun[c.ID].until)
	}
	k.last = now
	present := make(map[string]bool, len(servers))
	for _, s := range servers {
		present[s.ID] = true
		contact := g.Progress(s.ID).Contact
		answered := contact.After(k.begin)
		if _, known := k.heard[s.ID]; !known {
			k.heard[s.ID] = now
		} else if answered {
			k.heard[s.ID] = contact
		}
		m := Member{ID: s.ID, Addr: s.Addr, Voter: s.Voter, Leader: s.ID == g.ID()}
		if !m.Leader {
			m.Silence = now.Sub(k.heard[s.ID])
		}
		// autopilot's own StableSince is of no use: it never moves when a member
		// falls ill and recovers (v0.3.0 compares the value with itself).
		if st, ok := state.Servers[raft.ServerID(s.ID)]; ok && st.Health.Healthy {
			since, ok := k.stable[s.ID]
			if !ok {
				since = now
				k.stable[s.ID] = now
			}
			m.Stable = max(now.Sub(since), 1)
			if s.Voter {
				delete(k.shun, s.ID) // a healthy voter: its earlier failures no longer count
			}
		} else if answered || now.Sub(k.begin) > contactLimit {
			delete(k.stable, s.ID) // a new leader has not heard from the others yet
		}
		v.Members = append(v.Members, m)
	}
	for id := range k.heard {
		if !present[id] {
			delete(k.heard, id)
			delete(k.stable, id)
		}
	}
	return v
}

// make carries out a change, tied to the configuration it was decided on.
func (k *Controller) make(ctx context.Context, c Change, v View, at uint64) error {
	if c.Kind == None {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	g := k.cfg.Group
	switch c.Kind {
	case Add:
		if err := k.admit(ctx, c, v); err != nil {
			return err
		}
		return g.AddNonvoter(ctx, c.ID, c.Addr, at)
	case Promote:
		if err := k.confirm(ctx, v, "", c.ID); err != nil {
			return err
		}
		return g.AddVoter(ctx, c.ID, c.Addr, at)
	case Demote:
		if err := k.confirm(ctx, v, c.ID, ""); err != nil {
			return err
		}
		return g.Demote(ctx, c.ID, at)
	case Remove:
		for _, m := range v.Members {
			switch {
			case m.ID != c.ID:
			case m.Voter:
				if err := k.confirm(ctx, v, c.ID, ""); err != nil {
					return err
				}
			case m.Silence >= v.Policy.withDefaults().Reachable:
				k.shunFor(c.ID, v.Now)
			}
		}
		return g.RemoveAt(ctx, c.ID, at)
	case Move:
		if c.Voter {
			return g.AddVoter(ctx, c.ID, c.Addr, at)
		}
		return g.AddNonvoter(ctx, c.ID, c.Addr, at)
	case Transfer:
		return g.Transfer(ctx, c.ID)
	default:
	}
	return fmt.Errorf("change of kind %q is not known", c.Kind)
}

// admit calls Config.Admit for an agent that is about to become a member, and shuns it on ErrForeign.
func (k *Controller) admit(ctx context.Context, change Change, v View) error {
	if k.cfg.Admit == nil {
		return nil
	}
	for _, c := range v.Candidates {
		if c.ID != change.ID {
			continue
		}
		err := k.cfg.Admit(ctx, c)
		if errors.Is(err, ErrForeign) {
			k.shunFor(c.ID, v.Now)
		}
		return err
	}
	return nil
}

// confirm checks, right before the number of voters changes, that the members on which the decision
// relies still answer. A member that answered a second ago may have died since, and a configuration
// without a majority cannot be undone.
func (k *Controller) confirm(ctx context.Context, v View, without, with string) error {
	var ids []string
	for _, m := range v.Members {
		if m.ID == with || (m.Voter && m.ID != without && m.Silence < v.Policy.withDefaults().Reachable) {
			ids = append(ids, m.ID)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	return k.cfg.Group.Confirm(ctx, ids...)
}

func (k *Controller) shunFor(id string, now time.Time) {
	s := k.shun[id]
	s.until = now.Add(shunFirst << min(s.times, 5))
	s.times++
	k.shun[id] = s
}

func (k *Controller) note(v View, state *autopilot.State, c Change, err error) {
	h := Health{Healthy: state.Healthy, FailureTolerance: state.FailureTolerance}
	zones := make(map[string]string, len(v.Candidates))
	for _, cand := range v.Candidates {
		zones[cand.ID] = cand.Zone
	}
	for _, m := range v.Members {
		mh := MemberHealth{ID: m.ID, Addr: m.Addr, Zone: zones[m.ID], Voter: m.Voter, Leader: m.Leader,
			Healthy: m.Stable > 0, Stable: m.Stable, Silence: m.Silence}
		if st, ok := state.Servers[raft.ServerID(m.ID)]; ok {
			mh.LastIndex = st.Stats.LastIndex
		}
		h.Members = append(h.Members, mh)
	}
	if c.Kind != None {
		h.Next = fmt.Sprintf("%s %s: %s", c.Kind, c.ID, c.Reason)
	}
	if err != nil {
		h.Error = err.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.health = h
}

// delegate adapts the Controller to autopilot.
type delegate Controller

var _ autopilot.ApplicationIntegration = (*delegate)(nil)

// AutopilotConfig returns the limits for autopilot.
func (d *delegate) AutopilotConfig() *autopilot.Config {
	return &autopilot.Config{LastContactThreshold: contactLimit, MaxTrailingLogs: lagLimit}
}

// NotifyState passes a new state to Run. It replaces a state that Run has not received yet.
func (d *delegate) NotifyState(s *autopilot.State) {
	for {
		select {
		case d.states <- s:
			return
		default:
		}
		select {
		case <-d.states:
		default:
		}
	}
}

// FetchServerStats returns data from the heartbeats; it sends no messages.
func (d *delegate) FetchServerStats(_ context.Context,
	servers map[raft.ServerID]*autopilot.Server) map[raft.ServerID]*autopilot.ServerStats {
	g := d.cfg.Group
	own := g.Library().Stats()
	lastTerm, _ := strconv.ParseUint(own["last_log_term"], 10, 64) // as autopilot itself reads it
	out := make(map[raft.ServerID]*autopilot.ServerStats, len(servers))
	for id := range servers {
		if string(id) == g.ID() {
			out[id] = &autopilot.ServerStats{LastTerm: lastTerm, LastIndex: g.Library().LastIndex()}
			continue
		}
		p := g.Progress(string(id))
		s := &autopilot.ServerStats{LastContact: -1, LastIndex: p.LastIndex}
		if !p.Contact.IsZero() {
			s.LastContact = time.Since(p.Contact)
		}
		if p.Term == g.Term() {
			s.LastTerm = lastTerm
		}
		out[id] = s
	}
	return out
}

// KnownServers returns the agents of the mesh in autopilot's types.
func (d *delegate) KnownServers() map[raft.ServerID]*autopilot.Server {
	out := make(map[raft.ServerID]*autopilot.Server)
	for _, c := range d.cfg.Candidates() {
		s := &autopilot.Server{ID: raft.ServerID(c.ID), Name: c.ID, Address: raft.ServerAddress(c.Addr),
			NodeStatus: autopilot.NodeFailed, NodeType: autopilot.NodeVoter, RaftVersion: raft.ProtocolVersionMax,
			IsLeader: c.ID == d.cfg.Group.ID()}
		switch {
		case c.Leaving:
			s.NodeStatus = autopilot.NodeLeft
		case c.Alive:
			s.NodeStatus = autopilot.NodeAlive
		}
		out[s.ID] = s
	}
	return out
}

// RemoveFailedServer is never called: reconciliation is off.
func (d *delegate) RemoveFailedServer(*autopilot.Server) {}

// watcher is a promoter that promotes no server: Decide chooses the promotions.
type watcher struct{}

var _ autopilot.Promoter = watcher{}

func (watcher) GetServerExt(*autopilot.Config, *autopilot.ServerState) any { return nil }
func (watcher) GetStateExt(*autopilot.Config, *autopilot.State) any        { return nil }

func (watcher) GetNodeTypes(*autopilot.Config, *autopilot.State) map[raft.ServerID]autopilot.NodeType {
	return nil
}

func (watcher) CalculatePromotionsAndDemotions(*autopilot.Config, *autopilot.State) autopilot.RaftChanges {
	return autopilot.RaftChanges{}
}

func (watcher) FilterFailedServerRemovals(*autopilot.Config, *autopilot.State, *autopilot.FailedServers) *autopilot.FailedServers {
	return &autopilot.FailedServers{}
}

func (watcher) IsPotentialVoter(autopilot.NodeType) bool { return true }
