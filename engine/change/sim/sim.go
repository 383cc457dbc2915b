package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/coopr/coopr/engine/change/host"
	"github.com/coopr/coopr/engine/change/object"
)

type (
	message = object.Message
	act     = object.Act
)

// Config is the configuration of a simulation. Times are ticks, which the runtimes take for
// milliseconds.
type Config struct {
	Site *object.Site
	Seed uint64
	// Host returns the agent that an object is on at first. If it is nil, the name of the
	// object's host decides. Agents are numbered from 0.
	Host   func(object.ID) int
	Agents int
	// A packet takes from Delay to Delay+Jitter.
	Delay, Jitter int64
	// Loss and Double are the probabilities that a packet is lost, or arrives twice.
	Loss, Double float64
	// CheckTime and MoveTime are the durations of acts. A random part of MoveJitter is added.
	CheckTime, MoveTime, MoveJitter int64
	// Fails is the probability that a transition fails.
	Fails float64
	// Initial returns the initial state of each object; nil means the first state of its type.
	// Deployed is true if the objects have this generation's content.
	Initial  func(object.ID) object.State
	Deployed bool
	// Faulty is the time at which losses, duplicates and failures stop; 0 for never.
	Faulty int64
	// Watch is called when a transition begins and when it ends.
	Watch func(Step)
	// Lenient skips the checks of S1 and S2, for speed.
	Lenient bool
}

// Step is the beginning (Begin) or the end of a transition.
type Step struct {
	At         int64
	ID         object.ID
	Transition object.Transition
	Begin, OK  bool
}

// Sim is a running simulation.
type Sim struct {
	cfg    Config
	site   *object.Site // in force
	next   *object.Site // being rolled out, on the hosts that have switched
	turned map[string]bool
	rng    *rand.Rand
	q      queue
	agents []agent
	owner  []int32 // agent of each object; -1 for none
	incs   []uint32
	world  []truth
	names  []string
	byName map[string]int
	dirty  []int32
	acts   []act
	// Violations are the faults that the oracle found.
	Violations []string
	// Transitions counts transitions that succeeded, Acts the acts that began.
	Transitions, Acts int
	// Counters of runtimes that are gone: messages by kind, packets.
	sent          [8]int
	packets, rode int
	decisions     int
	Ran           []uint16 // transitions begun, per object
	last          int64    // when the last transition ended
	script        map[object.ID]int
	// Asked counts the locks requested between agents, each once, however often the request is
	// repeated.
	Asked  int
	timers []int64
}

type agent struct {
	runtime *host.Runtime
	life    uint32
	dead    bool
	// leaving is true once the leader has given up on the agent.
	leaving bool
	dirty   bool
}

// truth is the true state of an object.
type truth struct {
	state   object.State
	content uint64
	moving  bool
	acting  int32 // agent that runs an act now, plus 1
	actEnd  int64
	relied  int32 // running transitions that rely on its state
	trust   []trust
	drifted bool // changed by hand, so that locks on it mean nothing
}

type trust struct {
	id object.ID
	in object.State
}

// New starts the runtimes of a site.
func New(cfg Config) *Sim {
	s := &Sim{cfg: cfg, site: cfg.Site, rng: rand.New(rand.NewPCG(cfg.Seed, 0xc0b)), byName: map[string]int{}}
	n := len(cfg.Site.Defs)
	s.agents = make([]agent, cfg.Agents)
	s.timers = make([]int64, cfg.Agents)
	s.names = make([]string, cfg.Agents)
	for i := range s.agents {
		s.names[i] = fmt.Sprintf("a%d", i)
		s.byName[s.names[i]] = i
		s.agents[i].runtime = s.newRuntime(i)
	}
	s.grow(n)
	for i := range cfg.Site.Defs {
		d := &cfg.Site.Defs[i]
		if d.Name == "" {
			continue
		}
		w := &s.world[i]
		w.state = d.Type.Priority[0]
		if cfg.Initial != nil {
			w.state = cfg.Initial(d.ID)
		}
		if cfg.Deployed {
			w.content = d.Content
		}
		s.owner[i] = int32(s.place(d.ID))
		s.incs[i] = 1
	}
	for i := range cfg.Site.Defs {
		if cfg.Site.Defs[i].Name != "" {
			s.start(object.ID(i))
		}
	}
	s.flush()
	return s
}

func (s *Sim) grow(n int) {
	for len(s.owner) < n {
		s.owner = append(s.owner, -1)
		s.incs = append(s.incs, 0)
		s.Ran = append(s.Ran, 0)
		s.world = append(s.world, truth{})
	}
}

// def returns the definition that is in force on an object's host.
func (s *Sim) def(id object.ID) *object.Def {
	if s.next != nil && int(id) < len(s.next.Defs) {
		if d := &s.next.Defs[id]; d.Name != "" && s.turned[d.Host] {
			return d
		}
	}
	if int(id) >= len(s.site.Defs) {
		return &s.next.Defs[id]
	}
	return &s.site.Defs[id]
}

func (s *Sim) place(id object.ID) int {
	if s.cfg.Host != nil {
		return s.cfg.Host(id)
	}
	var n int
	if _, err := fmt.Sscanf(s.def(id).Host, "agent:a%d", &n); err != nil {
		return int(id) % s.cfg.Agents
	}
	return n
}

func (s *Sim) newRuntime(i int) *host.Runtime {
	return host.New(host.Config{Self: s.names[i], Site: s.site, Route: func(id object.ID) host.Name {
		if int(id) >= len(s.owner) || s.owner[id] < 0 {
			return ""
		}
		return s.names[s.owner[id]]
	}, Observe: func(_ int64, _ *object.Object, ev *object.Event, fx *object.Effects) {
		if ev.What == object.Nudge || ev.What == object.Reconnected || ev.What == object.Received && ev.Message.Kind == object.Resync {
			return
		}
		for i := range fx.Messages {
			if m := &fx.Messages[i]; m.Kind == object.Request && s.owner[m.To] != s.owner[m.From] {
				s.Asked++
			}
		}
	}})
}

func (s *Sim) start(id object.ID) {
	a := s.owner[id]
	s.agents[a].runtime.Start(s.def(id), s.incs[id], s.q.now)
	s.touch(int(a))
}

func (s *Sim) touch(a int) {
	if !s.agents[a].dirty {
		s.agents[a].dirty = true
		s.dirty = append(s.dirty, int32(a))
	}
}

func (s *Sim) violate(format string, args ...any) {
	if len(s.Violations) < 20 {
		s.Violations = append(s.Violations, fmt.Sprintf("seed %d, at %d: ", s.cfg.Seed, s.q.now)+fmt.Sprintf(format, args...))
	}
}

// Last returns the time at which the last transition ended.
func (s *Sim) Last() int64 { return s.last }

// At schedules a function for a time.
func (s *Sim) At(at int64, do func()) { s.q.push(event{at: at, kind: leader, do: do}) }

func (s *Sim) faulty() bool { return s.cfg.Faulty == 0 || s.q.now < s.cfg.Faulty }

// flush takes the packets and acts of the runtimes that have handled events.
func (s *Sim) flush() {
	for i := 0; i < len(s.dirty); i++ {
		a := int(s.dirty[i])
		ag := &s.agents[a]
		ag.dirty = false
		if ag.dead {
			continue
		}
		s.acts = ag.runtime.TakeActs(s.acts[:0])
		for _, x := range s.acts {
			s.begin(a, x)
		}
		ag.runtime.Flush(s.q.now, func(p host.Packet) { s.packet(s.byName[p.To], p.Messages) })
		if next := ag.runtime.Next(); next > 0 && (s.timers[a] == 0 || next < s.timers[a]) {
			s.timers[a] = next
			s.q.push(event{at: max(next, s.q.now+1), kind: timerDue, agent: int32(a), life: ag.life})
		}
	}
	s.dirty = s.dirty[:0]
}

func (s *Sim) packet(to int, messages []message) {
	times := 1
	if (s.cfg.Loss > 0 || s.cfg.Double > 0) && s.faulty() {
		if s.rng.Float64() < s.cfg.Loss {
			times = 0
		} else if s.rng.Float64() < s.cfg.Double {
			times = 2
		}
	}
	for range times {
		at := s.q.now + s.cfg.Delay
		if s.cfg.Jitter > 0 {
			at += s.rng.Int64N(s.cfg.Jitter + 1)
		}
		s.q.push(event{at: at, kind: arrive, agent: int32(to), messages: messages})
	}
}

// Step processes the events of the next time. It returns false if there are none.
func (s *Sim) Step() bool {
	if !s.q.advance() {
		return false
	}
	b := &s.q.buckets[s.q.now%ring]
	// Events may add others for the same time.
	for i := 0; i < len(*b); i++ {
		e := (*b)[i]
		s.q.near--
		switch e.kind {
		case leader:
			e.do()
		case arrive:
			if ag := &s.agents[e.agent]; !ag.dead {
				ag.runtime.Receive("", e.messages, s.q.now)
				s.touch(int(e.agent))
			}
		case ended:
			s.end(&e)
		case timerDue:
			if ag := &s.agents[e.agent]; !ag.dead && ag.life == e.life {
				s.timers[e.agent] = 0
				ag.runtime.Tick(s.q.now)
				s.touch(int(e.agent))
			}
		}
		if i == len(*b)-1 {
			s.flush()
		}
	}
	clear(*b)
	*b = (*b)[:0]
	return true
}

// RunUntilRest processes events until every object is at rest or the time is reached, and
// reports whether every object is at rest.
func (s *Sim) RunUntilRest(until int64) bool {
	for n := 0; s.q.now < until; n++ {
		if s.AtRest() {
			return true
		}
		for range 16 {
			if !s.Step() {
				return s.AtRest()
			}
		}
	}
	return s.AtRest()
}

// AtRest reports whether every object is at rest.
func (s *Sim) AtRest() bool {
	if s.next != nil {
		return false
	}
	for i := range s.agents {
		if ag := &s.agents[i]; !ag.dead && !ag.runtime.AtRest() {
			return false
		}
	}
	for i := range s.site.Defs {
		if s.site.Defs[i].Name != "" && s.Object(object.ID(i)) == nil {
			return false
		}
	}
	return true
}

// Object returns an object from its runtime, or nil if it does not run.
func (s *Sim) Object(id object.ID) *object.Object {
	if s.owner[id] < 0 || s.agents[s.owner[id]].dead {
		return nil
	}
	return s.agents[s.owner[id]].runtime.Object(id)
}

// Sent returns the numbers of messages between agents by kind, of packets, and of releases
// that travelled with other messages.
func (s *Sim) Sent() (byKind [8]int, packets, rode int) {
	byKind, packets, rode = s.sent, s.packets, s.rode
	for i := range s.agents {
		h := s.agents[i].runtime
		for k, n := range h.Sent {
			byKind[k] += n
		}
		packets += h.Packets
		rode += h.Rode
	}
	return byKind, packets, rode
}
