package state_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/coopr/coopr/consensus/state"
	rules "github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// The plugin types that only a removed agent offered are gone with it.
func TestRemovedAgentsPluginTypes(t *testing.T) {
	m := fresh(t)
	open := func(agent string, names ...string) *pb.Command {
		a := model.Agent{ID: agent, Name: agent, Plugins: map[string]string{}}
		var types []*record.PluginType
		for _, name := range names {
			a.Plugins["provider/"+name] = "1"
			types = append(types, logtest.PluginType(model.PluginType{Base: model.Base{Name: name}, Class: "provider"}))
		}
		return &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: "s-" + agent, Agent: agent,
			Record: logtest.Agent(a), Types: types}}}
	}
	for _, a := range do(t, m, entry(1, 1, open("a", "both", "only-a"), open("b", "both", "only-b"),
		&pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "a", WithTypes: true}}})) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	var got []string
	for _, p := range m.View().PluginTypes() {
		got = append(got, p.Name)
	}
	if want := []string{"both", "only-b"}; !slices.Equal(got, want) {
		t.Errorf("plugin types %v, not %v", got, want)
	}
}

func must(t *testing.T, answers []state.Answer) {
	t.Helper()
	for _, a := range answers {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
}

// reread returns a machine that has read the other's snapshot.
func reread(t *testing.T, m *state.Machine) *state.Machine {
	t.Helper()
	out := fresh(t)
	if err := out.Restore(io.NopCloser(bytes.NewReader(dump(t, m)))); err != nil {
		t.Fatal(err)
	}
	return out
}

// hello opens a session of agent a with a hello of a given order.
func hello(id string, incarnation, number uint64, keep ...uint64) *pb.Command {
	return &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Session: id, Agent: "a", Number: number, Keep: keep,
		Record: logtest.Agent(model.Agent{ID: "a", Name: "a", Incarnation: incarnation})}}}
}

// The log may have the hellos of an agent in another order than that in which the agent sent them.
func TestOlderHelloIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		first, second [2]uint64
		between       *pb.Command
		refused       bool
	}{
		"newer":                             {first: [2]uint64{5, 1}, second: [2]uint64{5, 2}},
		"older":                             {first: [2]uint64{5, 2}, second: [2]uint64{5, 1}, refused: true},
		"of the next process":               {first: [2]uint64{5, 9}, second: [2]uint64{6, 1}},
		"of the last process":               {first: [2]uint64{6, 1}, second: [2]uint64{5, 9}, refused: true},
		"older, and the session has ended":  {first: [2]uint64{5, 2}, second: [2]uint64{5, 1}, between: endSession("s1"), refused: true},
		"newer, and the session has ended":  {first: [2]uint64{5, 2}, second: [2]uint64{5, 3}, between: endSession("s1")},
		"of a build that does not count":    {first: [2]uint64{5, 0}, second: [2]uint64{5, 0}},
		"on its way when it was removed":    {first: [2]uint64{5, 1}, second: [2]uint64{5, 2}, between: removal, refused: true},
		"first of the next process, ditto":  {first: [2]uint64{5, 1}, second: [2]uint64{900, 1}, between: removal, refused: true},
		"of a process since":                {first: [2]uint64{5, 1}, second: [2]uint64{2001, 1}, between: removal},
		"of a process that was told of it":  {first: [2]uint64{5, 1}, second: [2]uint64{2002, 2}, between: removal},
		"with a clock that is ahead, ditto": {first: [2]uint64{9000, 1}, second: [2]uint64{9000, 2}, between: removal, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := fresh(t)
			must(t, do(t, m, entry(1, 1000, hello("s1", c.first[0], c.first[1]))))
			if c.between != nil {
				must(t, do(t, m, entry(2, 2000, c.between)))
			}
			m = reread(t, m)
			before, had := m.View().Agent("a")
			answers := do(t, m, entry(3, 3000, hello("s2", c.second[0], c.second[1])))
			after, has := m.View().Agent("a")
			_, open := m.View().Session("s2")
			if refused := errors.Is(answers[0].Err, problem.Stale); refused != c.refused || open == c.refused {
				t.Errorf("the answer is %v, the session is open: %t", answers[0].Err, open)
			}
			if c.refused && (had != has || before.Session != after.Session || before.Incarnation != after.Incarnation) {
				t.Errorf("the record was %+v and is %+v", before, after)
			}
			if c.refused {
				last, _ := m.View().LastHello("a")
				must(t, do(t, m, entry(4, 4000, hello("s3", rules.Next(last), 7))))
			}
		})
	}
}

var removal = &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "a"}}}

// The mark of a removed agent is kept for a day.
func TestMarksOfRemovedAgents(t *testing.T) {
	m := fresh(t)
	must(t, do(t, m, entry(1, 1000, hello("s1", 5, 1), removal, session("b1", "b"))))
	const day = 24 * 60 * 60 * 1000
	other := &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: "b"}}}
	must(t, do(t, m, entry(2, 1000+day+1, other)))
	if _, ok := m.View().LastHello("a"); ok {
		t.Error("the mark is there after a day")
	}
	if _, ok := m.View().LastHello("b"); !ok {
		t.Error("there is no mark of the agent that was just removed")
	}
}
