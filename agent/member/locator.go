package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/raftgroup"
	pb "github.com/coopr/coopr/rpc/proto"
)

var (
	// ErrNoLeader is returned when no leader is found.
	ErrNoLeader = errors.New("the mesh has no leader that can be reached")
	// ErrMoved is the cause of a context that ended because another agent leads.
	ErrMoved = errors.New("another agent is the leader now")
	// ErrLost is the cause of a context that ended because this agent has lost the leader.
	ErrLost = errors.New("this agent has lost the leader")
)

const (
	// locateInterval is how often AwaitLeader tries again without a notification.
	locateInterval = 100 * time.Millisecond
	// watchInterval is how often an agent outside the Raft group checks whether
	// gossip still reports the leader alive. A member of the group is notified of
	// changes, so it checks only ten times less often.
	watchInterval = 500 * time.Millisecond
	// surveyTimeout bounds a survey in which no agent names a leader. Once one does, the others have
	// surveyRest for a better answer.
	surveyTimeout = time.Second
	surveyRest    = 300 * time.Millisecond
	// surveyLimit is the number of agents that a survey asks at most, besides the known voters.
	surveyLimit = 32
	// lostTimeout is how long a member of the Raft group may know no leader before a request to the last
	// one counts as lost.
	lostTimeout = 300 * time.Millisecond
	// surveyDelay is the age of a request at which an agent outside the Raft group begins to check by
	// surveys whether the leader has changed. Later surveys are at most maxSurveyPause apart.
	surveyDelay    = 200 * time.Millisecond
	maxSurveyPause = 5 * time.Second
)

// Locator finds the leader of the mesh, from whatever this agent knows: its Raft
// member, gossip, or the answers of other agents. It is safe for concurrent use.
type Locator struct {
	id         string
	supervisor *Supervisor
	mesh       Mesh
	peers      Peers

	mu     sync.Mutex
	survey *survey  // under way, or nil
	last   *survey  // the latest that has ended, or nil
	voters []string // as the last survey found them
}

// survey asks many agents at once for the leader.
type survey struct {
	done chan struct{} // closed when the fields below are set
	// best is the answer of the highest term that names a leader, or nil.
	best *pb.StatusResponse
	// sure is true if a majority of the voters names that leader.
	sure bool
	// group is the answer of the highest term from an agent that is a member of the group, or nil.
	group *pb.StatusResponse
	// replicas are the peer addresses of the members of the group that have answered.
	replicas []string
	ended    time.Time
}

// NewLocator returns the Locator of the agent that s belongs to.
func NewLocator(s *Supervisor) *Locator {
	return &Locator{id: s.cfg.ID, supervisor: s, mesh: s.cfg.Mesh, peers: s.cfg.Peers}
}

// Leader returns the id and the peer address of the leader, which may be this
// agent. It asks other agents if this one is not a member of the Raft group.
func (l *Locator) Leader(ctx context.Context) (id, addr string, err error) {
	if g := l.group(); g != nil {
		if id, addr := g.Leader(); id != "" {
			return id, l.current(id, addr), nil
		}
	}
	s, err := l.ask(ctx)
	if err != nil {
		return "", "", err
	}
	if s.best == nil {
		return "", "", ErrNoLeader
	}
	return s.best.LeaderId, l.current(s.best.LeaderId, s.best.LeaderAddr), nil
}

// ask returns the result of a survey. Concurrent callers share one.
func (l *Locator) ask(ctx context.Context) (*survey, error) {
	l.mu.Lock()
	s := l.survey
	if s == nil {
		s = &survey{done: make(chan struct{})}
		l.survey = s
		go func() {
			l.run(s)
			l.mu.Lock()
			s.ended = time.Now()
			l.survey, l.last = nil, s
			l.mu.Unlock()
			close(s.done)
		}()
	}
	l.mu.Unlock()
	select {
	case <-s.done:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run carries out a survey. It ends when a majority of the voters names the same leader, when all have
// answered, or when the time is up.
func (l *Locator) run(s *survey) {
	ctx, cancel := context.WithTimeout(context.Background(), surveyTimeout)
	defer cancel()
	asked := l.candidates()
	type answer struct {
		*pb.StatusResponse // nil if there was none
		addr               string
	}
	answers := make(chan answer, len(asked))
	for _, m := range asked {
		go func() {
			st, err := askStatus(ctx, l.peers, m.RPCAddr, "")
			if err != nil {
				st = nil
			}
			answers <- answer{st, m.RPCAddr}
		}()
	}
	type choice struct {
		leader string
		term   uint64
	}
	named := map[choice]int{}
	var rest <-chan time.Time
	for range asked {
		var st answer
		select {
		case st = <-answers: // at the latest when ctx ends
		case <-rest:
			return
		}
		if st.StatusResponse == nil || l.supervisor.foreign(st.Mesh) {
			continue
		}
		if slices.ContainsFunc(st.Servers, func(x *pb.Server) bool { return x.Id == st.Id }) {
			s.replicas = append(s.replicas, st.addr)
			if s.group == nil || st.Term > s.group.Term {
				s.group = st.StatusResponse
			}
			l.remember(st.Servers)
		}
		if st.LeaderId == "" {
			continue
		}
		if rest == nil {
			rest = time.After(surveyRest)
		}
		if s.best == nil || st.Term > s.best.Term {
			s.best = st.StatusResponse
		}
		c := choice{st.LeaderId, st.Term}
		named[c]++
		if named[c] > l.remember(st.Servers)/2 {
			s.best, s.sure = st.StatusResponse, true
			return
		}
	}
}

// remember records the voters among the members of the group, whom the next survey asks. It returns their number.
func (l *Locator) remember(servers []*pb.Server) int {
	var voters []string
	for _, v := range servers {
		if v.Voter {
			voters = append(voters, v.Id)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.voters = voters
	return len(voters)
}

// candidates returns the agents that a survey asks: the voters as far as they are known, and others at random.
func (l *Locator) candidates() []mesh.Member {
	l.mu.Lock()
	voters := l.voters
	l.mu.Unlock()
	members := l.mesh.Members()
	var known, others []mesh.Member
	for _, i := range rand.Perm(len(members)) {
		m := members[i]
		switch {
		case m.ID == l.id:
		case slices.Contains(voters, m.ID):
			known = append(known, m)
		case m.Alive() && m.Eligible:
			others = append(others, m)
		}
	}
	return append(known, others[:min(len(others), surveyLimit)]...)
}

// group returns the Raft group that this agent is a member of, or nil.
func (l *Locator) group() *raftgroup.Group {
	if m := l.supervisor.Member(); m != nil && m.Group.Member() {
		return m.Group
	}
	return nil
}

// current returns the address that the mesh has for an agent now, or addr.
func (l *Locator) current(id, addr string) string {
	if now, err := PeerAddr(l.mesh, id); err == nil {
		return now
	}
	return addr
}

// AwaitLeader is like Leader, but it waits until there is a leader or ctx ends.
func (l *Locator) AwaitLeader(ctx context.Context) (id, addr string, err error) {
	for {
		var changed <-chan struct{}
		if m := l.supervisor.Member(); m != nil {
			changed = m.Group.LeaderChanged()
		}
		if id, addr, err = l.Leader(ctx); err == nil {
			return id, addr, nil
		}
		select {
		case <-ctx.Done():
			return "", "", fmt.Errorf("%w: %w", ErrNoLeader, ctx.Err())
		case <-changed:
		case <-time.After(locateInterval):
		}
	}
}

// WhileLeads returns a context that ends, with the cause ErrMoved, when agent id
// no longer leads as far as this agent can tell. A frozen leader closes no
// connection: without this context, a caller that waits for its answer would
// wait for as long as the leader is frozen.
func (l *Locator) WhileLeads(ctx context.Context, id string) (context.Context, context.CancelFunc) {
	ctx, _, cancel := l.watch(ctx, id, time.Time{})
	return ctx, cancel
}

// WhileReached is like WhileLeads, for a request to the leader. The context also ends, with the cause
// ErrLost, when this agent has known no leader for a while, or knows none at the given time. An agent
// outside the Raft group surveys the others, as it hears of a change of leader late otherwise. The caller
// calls answered when the answer begins: from then on only another leader ends the context.
func (l *Locator) WhileReached(ctx context.Context, id string, from time.Time) (_ context.Context, answered, cancel func()) {
	return l.watch(ctx, id, from)
}

// watch implements WhileLeads, and WhileReached if from is set.
func (l *Locator) watch(ctx context.Context, id string, from time.Time) (_ context.Context, answered, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := make(chan struct{})
	go func() {
		if err := l.follow(ctx, id, from, begun); err != nil {
			cancel(err)
		}
	}()
	return ctx, sync.OnceFunc(func() { close(begun) }), func() { cancel(nil) }
}

// follow returns ErrMoved or ErrLost as WhileReached describes, or nil when ctx ends.
func (l *Locator) follow(ctx context.Context, id string, from time.Time, answered <-chan struct{}) error {
	var late, survey, lost <-chan time.Time
	if !from.IsZero() {
		late, survey = time.After(time.Until(from)), time.After(surveyDelay)
	}
	pause, silent := surveyDelay, 0 // silent: how many surveys in a row found no leader
	timer := time.NewTimer(watchInterval)
	defer timer.Stop()
	for {
		var changed <-chan struct{}
		again := watchInterval
		if m := l.supervisor.Member(); m != nil {
			changed = m.Group.LeaderChanged()
			if m.Group.Member() {
				again *= 10 // it may be removed from the group without a change of leader
			}
		}
		timer.Reset(again)
		now, member := l.known(id)
		switch {
		case now != "" && now != id, now == "" && !member:
			return ErrMoved
		case now == id || from.IsZero():
			lost = nil
		case lost == nil:
			lost = time.After(lostTimeout)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-answered:
			answered, late, survey, lost, from = nil, nil, nil, nil, time.Time{}
		case <-changed:
		case <-timer.C:
		case <-lost:
			return ErrLost
		case <-late:
			if lost != nil || silent > 1 {
				return ErrLost
			}
		case <-survey:
			survey = time.After(pause)
			pause = min(2*pause, maxSurveyPause)
			if member {
				continue
			}
			s, err := l.ask(ctx)
			switch {
			case err != nil:
				return nil
			case s.sure && s.best.LeaderId != id:
				return ErrMoved
			case s.best != nil:
				silent = 0
			case silent > 1:
				return ErrLost
			default:
				silent++
			}
		}
	}
}

// known returns the leader that a member of the Raft group knows, or "". An agent outside the group knows
// only whether gossip reports agent id dead; it returns id if not.
func (l *Locator) known(id string) (now string, member bool) {
	if g := l.group(); g != nil {
		now, _ := g.Leader()
		return now, true
	}
	if m, ok := l.mesh.Member(id); ok && !m.Alive() {
		return "", false
	}
	return id, false
}
