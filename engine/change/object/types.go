package object

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// State is a state of a type: an index into Type.States. The zero State is "unknown". Every
// type has it, and only a check leaves it (rule 1).
type State uint8

// Unknown is the state of an object that has not been checked yet.
const Unknown State = 0

// Any matches every state in the From and To of a Need ("*").
const Any State = 255

// MaxStates is the highest number of states of a type, including unknown.
const MaxStates = 16

// Action is an action of a type: an index into Type.Actions.
type Action uint8

// Transition is one entry of a type's sparse matrix of transitions.
type Transition struct {
	From   State  `json:"from"`
	To     State  `json:"to"`
	Action Action `json:"action"`
	// Error is the state after a failed action: Unknown unless the type names one (rule 5).
	Error State `json:"error,omitempty"`
}

// Type is a type of change objects: its states and the transitions between them. NewType makes
// it, and it never changes.
type Type struct {
	Name    string
	States  []string // States[0] is "unknown"
	Actions []string
	// Priority lists the states from the highest priority of requests to the lowest (rule 4).
	Priority  []State
	Preferred State
	PreRemove State
	// Passive lists the states that cannot be requested, such as "outdated".
	Passive []State

	rank   [MaxStates]uint8 // greater wins
	next   [MaxStates][MaxStates]State
	moves  []Transition
	single [MaxStates][MaxStates]int8 // index into moves, -1 for none
}

// TypeSpec is a type written with names, as a plugin offers it.
type TypeSpec struct {
	Name        string           `json:"name"`
	States      []string         `json:"states"` // by priority, the one that wins first; without "unknown"
	Passive     []string         `json:"passive,omitempty"`
	Preferred   string           `json:"preferred,omitempty"`  // default "up"
	PreRemove   string           `json:"pre_remove,omitempty"` // default "down"
	Transitions []TransitionSpec `json:"transitions"`
}

// TransitionSpec is one transition written with names.
type TransitionSpec struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Action string `json:"action"`
	Error  string `json:"error,omitempty"`
}

// NewType compiles a type. It refuses unknown, duplicate and too many states.
func NewType(s TypeSpec) (*Type, error) {
	t := &Type{Name: s.Name, States: append([]string{"unknown"}, s.States...)}
	if len(t.States) > MaxStates {
		return nil, fmt.Errorf("type %s: %d states are too many: at most %d", s.Name, len(s.States), MaxStates-1)
	}
	for i, name := range t.States {
		if name == "" || name == "*" || slices.Index(t.States, name) != i {
			return nil, fmt.Errorf("type %s: the state %q is not a name, occurs twice, or is \"unknown\", which every type has", s.Name, name)
		}
		if i > 0 {
			t.Priority = append(t.Priority, State(i))
			t.rank[i] = uint8(len(t.States) - i)
		}
	}
	var err error
	state := func(name, fallback, what string) State {
		if name == "" {
			name = fallback
		}
		st, ok := t.State(name)
		if (!ok || st == Unknown) && err == nil {
			err = fmt.Errorf("type %s: %s: there is no state %q", s.Name, what, name)
		}
		return st
	}
	t.Preferred = state(s.Preferred, "up", "preferred")
	t.PreRemove = state(s.PreRemove, "down", "pre_remove")
	for _, p := range s.Passive {
		t.Passive = append(t.Passive, state(p, "", "passive"))
	}
	for i := range t.single {
		for j := range t.single[i] {
			t.single[i][j] = -1
		}
	}
	for i, ts := range s.Transitions {
		what := fmt.Sprintf("transitions[%d]", i)
		m := Transition{From: state(ts.From, "", what), To: state(ts.To, "", what)}
		if ts.Error != "" {
			m.Error = state(ts.Error, "", what)
		}
		if err == nil && (m.From == m.To || t.single[m.From][m.To] >= 0 || t.passive(m.To) || ts.Action == "") {
			err = fmt.Errorf(
				"type %s: %s: %s to %s occurs twice, goes nowhere, goes to a passive state or has no action",
				s.Name,
				what,
				ts.From,
				ts.To,
			)
		}
		if err != nil {
			return nil, err
		}
		a := slices.Index(t.Actions, ts.Action)
		if a < 0 {
			a = len(t.Actions)
			t.Actions = append(t.Actions, ts.Action)
		}
		m.Action = Action(a)
		t.single[m.From][m.To] = int8(len(t.moves))
		t.moves = append(t.moves, m)
	}
	if err != nil {
		return nil, err
	}
	t.route()
	return t, nil
}

// route computes next: the first step of a shortest way between two states. Ties are broken by
// the priority of the states, then by their names (rule 3).
func (t *Type) route() {
	order := slices.Clone(t.Priority)
	slices.SortStableFunc(order, func(a, b State) int {
		if t.rank[a] != t.rank[b] {
			return int(t.rank[b]) - int(t.rank[a])
		}
		if t.States[a] < t.States[b] {
			return -1
		}
		return 1
	})
	for to := range t.States {
		far := make([]int, len(t.States))
		for i := range far {
			far[i] = len(t.States) + 1
		}
		far[to] = 0
		for range t.States {
			for _, m := range t.moves {
				far[m.From] = min(far[m.From], far[m.To]+1)
			}
		}
		for _, m := range t.moves {
			if far[m.From] > len(t.States) || far[m.To] != far[m.From]-1 {
				continue
			}
			if n := t.next[m.From][to]; n == Unknown || slices.Index(order, m.To) < slices.Index(order, n) {
				t.next[m.From][to] = m.To
			}
		}
	}
}

// State returns the state with this name.
func (t *Type) State(name string) (State, bool) {
	i := slices.Index(t.States, name)
	return State(max(i, 0)), i >= 0
}

// Next returns the next state on the way from one state to another, and false if there is no
// way (rule 17).
func (t *Type) Next(from, to State) (State, bool) {
	n := t.next[from][to]
	return n, n != Unknown
}

// Way returns the states on the way, ending with to, or nil if there is no way.
func (t *Type) Way(from, to State) []State {
	var way []State
	for from != to {
		n, ok := t.Next(from, to)
		if !ok {
			return nil
		}
		way = append(way, n)
		from = n
	}
	return way
}

// Move returns the transition for a step that Next returned.
func (t *Type) Move(from, to State) Transition {
	if i := t.single[from][to]; i >= 0 {
		return t.moves[i]
	}
	return Transition{From: from, To: to}
}

// Moves returns all transitions.
func (t *Type) Moves() []Transition { return t.moves }

func (t *Type) passive(s State) bool { return slices.Contains(t.Passive, s) }

// Targetable reports whether a state can be requested.
func (t *Type) Targetable(s State) bool { return s != Unknown && !t.passive(s) }

// BuiltinTypes returns the types that need no plugin (rule 3). A service has the state
// "outdated" too, as rule 2 requires it of every type; the action "restart" leaves it.
func BuiltinTypes() map[string]*Type {
	simple := []TransitionSpec{
		{From: "outdated", To: "down", Action: "cleanup"},
		{From: "outdated", To: "up", Action: "restart"},
		{From: "down", To: "up", Action: "start"},
		{From: "up", To: "down", Action: "stop"},
	}
	service := slices.Clone(simple)
	service[0].Action = "stop"
	types := map[string]*Type{}
	for name, moves := range map[string][]TransitionSpec{"script": simple, "filetree": simple, "service": service, "ha-resource": service} {
		t, err := NewType(TypeSpec{Name: name, States: []string{"down", "up", "outdated"}, Passive: []string{"outdated"}, Transitions: moves})
		if err != nil {
			panic(err) // the types are constants of this program
		}
		types[name] = t
	}
	return types
}

// OfferedPrefix begins the types that automator plugins offer: "automator:NAME".
const OfferedPrefix = "automator:"

// offered matches the names of automators (plugins/host).
var offered = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Offered returns the type that the automator with this name offers. It has the states and
// transitions of a script. The result is false if the name is malformed. The caller checks
// whether an agent has the plugin.
func Offered(name string) (*Type, bool) {
	if plugin, ok := strings.CutPrefix(name, OfferedPrefix); !ok || !offered.MatchString(plugin) {
		return nil, false
	}
	t := *BuiltinTypes()["script"]
	t.Name = name
	return &t, true
}

// Same reports whether two types have the same states and transitions, so that an object of
// one can continue as an object of the other.
func (t *Type) Same(u *Type) bool {
	return t == u || t.Name == u.Name && slices.Equal(t.States, u.States) && slices.Equal(t.Actions, u.Actions) &&
		slices.Equal(t.moves, u.moves) && slices.Equal(t.Passive, u.Passive) && t.PreRemove == u.PreRemove
}
