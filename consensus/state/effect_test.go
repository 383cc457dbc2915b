package state_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/duty/runs"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// asked returns a command as ann's request of tenant t, whose answer is kept.
func asked(request string, c *pb.Command) *pb.Command {
	c.Tenant, c.Actor, c.RequestId, c.KeepAnswer = "t", "ann", request, true
	return c
}

func setting(t testing.TB, kind, name, order string, value any) *pb.Command {
	t.Helper()
	p, err := logtest.PutSetting(kind, name, order, value)
	if err != nil {
		t.Fatal(err)
	}
	return &pb.Command{Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: p}}}}
}

// restored returns a machine with the state of a snapshot of m.
func restored(t testing.TB, m *state.Machine) *state.Machine {
	t.Helper()
	out := fresh(t)
	if err := out.Restore(io.NopCloser(bytes.NewReader(dump(t, m)))); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEffects applies two commands about one object in one entry. The effect of the first must be its
// own. A repeated request must have the same effect, also after a snapshot was restored.
func TestEffects(t *testing.T) {
	c := newClinic(t)
	definition := func(text string) *pb.Command {
		return definitions("ann", "", &pb.Definition{Kind: "services", Name: "x", Body: []byte(text)})
	}
	drop := &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
		Delete: []*pb.DefinitionVersion{{Kind: "services", Name: "x"}}}}}
	program := func(command string) profile.Program {
		return profile.Program{Steps: []profile.Step{{Name: "go", Command: []string{command}}}}
	}
	of := func(label string) profile.Profile {
		return profile.Profile{Label: label, Provisioner: profile.Provisioner{Name: "native"}}
	}
	must := func(cmd *pb.Command) state.Answer {
		t.Helper()
		a := c.do(cmd)
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a
	}
	must(asked("", setting(t, "program", "job", "put", program("a"))))
	p, err := runs.Prepare(c.m.View(), model.Caller{Tenant: "t", Actor: "ann"}, runs.Start{Program: "job"}, time.UnixMilli(c.now), 1)
	if err != nil {
		t.Fatal(err)
	}
	run, err := p.Command(model.Caller{Tenant: "t", Actor: "ann"}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	happens := func(kind profile.Kind) *pb.Command {
		change, err := logformat.RunEvent(p.Run.ID, 0, profile.Event{Kind: kind, Reason: "r"})
		if err != nil {
			t.Fatal(err)
		}
		return &pb.Command{Change: change}
	}
	const op = "00000009-001"
	tenantOf := func(nodes int) *pb.Command {
		return &pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{
			Tenant: logtest.Tenant(model.Tenant{Name: "other", MaxNodes: nodes})}}}
	}
	sum := func(digit string) string { return strings.Repeat(digit, 64) }

	var repeats []*pb.Command
	var want []string
	for i, pair := range []struct {
		mine, theirs *pb.Command
		has          string
	}{
		{definition(`{"name":"x","description":"mine"}`), definition(`{"name":"x"}`), `"version":1`},
		{definition(`{"name":"x","description":"mine"}`), drop, `"version":3`},
		{tenantOf(7), tenantOf(8), `"maxNodes":7`},
		{tenantOf(9), &pb.Command{Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: "other"}}}, `"maxNodes":9`},
		{&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Hash: []byte("h"), Actor: "eve", Tenant: "t", Role: "user", Id: "k"}}},
			&pb.Command{Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "k"}}}, `"id":"k"`},
		{created("fay", "mine"), putUser("ann", model.User{Name: "fay", Tenant: "t", Role: "read", Description: "theirs"}, ""), `"mine"`},
		{grantOf("mine", "ann", "user/bob", 0), dropGrant("mine"), `"mine"`},
		{setting(t, "profile", "p", "put", of("mine")), setting(t, "profile", "p", "put", of("others")), `"mine"`},
		{setting(t, "profile", "p", "disable", nil), setting(t, "profile", "p", "delete", nil), `"DISABLED"`},
		{setting(t, "program", "g", "put", program("mine")), setting(t, "program", "g", "put", program("theirs")), `"version":1`},
		{setting(t, "program", "g", "put", program("mine")), setting(t, "program", "g", "delete", nil), `"version":3`},
		{setting(t, "schedule", "s", "put", profile.Schedule{Program: "job", Cron: "1 2 * * *"}),
			setting(t, "schedule", "s", "put", profile.Schedule{Program: "job", Cron: "3 4 * * *"}), `1 2 `},
		{run, happens(profile.Stop), p.Run.ID},
		{start("t", "00000009", "web", 1, "", ""), order(op, "abort"), `"running"`},
		{start("t", "00000010", "db", 1, "", ""), order("00000010-001", "pause"), `"running"`},
		{order("00000010-001", "resume"), order("00000010-001", "abort"), `"running"`},
		{logformat.Control("00000001", "pause-recovery", "lunch"), logformat.Control("00000001", "resume-recovery", ""), `"lunch"`},
		{addResource("t", "one", sum("1"), 5, model.StageResource), orderResource("t", "one", model.RecallResource, 1), `"staged"`},
		{orderResource("t", "one", model.StageResource, 1), syncResources("t"), `"staged"`},
	} {
		mine, theirs := asked(fmt.Sprint("mine-", i), pair.mine), asked("", pair.theirs)
		answers := c.entry(mine, theirs)
		if answers[0].Err != nil || answers[1].Err != nil || answers[0].Effect == nil {
			t.Fatalf("pair %d: %+v", i, answers)
		}
		got := string(js(answers[0].Effect))
		if !strings.Contains(got, pair.has) || strings.Contains(got, "theirs") {
			t.Errorf("pair %d: the effect has no %s: %s", i, pair.has, got)
		}
		repeats, want = append(repeats, mine), append(want, string(js(answers[0].Effect.Kept())))
	}
	again := entry(c.index+1, c.now, repeats...)
	c.index, c.log = c.index+1, append(c.log, again.Data)
	for _, m := range []*state.Machine{c.m, restored(t, c.m)} {
		for i, a := range do(t, m, again) {
			if !a.Repeated || a.Effect == nil {
				t.Fatalf("repeat %d: %+v", i, a)
			}
			if got := string(js(a.Effect.Kept())); got != want[i] {
				t.Errorf("repeat %d: %s\nthe first time: %s", i, got, want[i])
			}
			if r := a.Effect.Run; r != nil && len(r.Program.Steps) != 1 {
				t.Errorf("repeat %d has no program: %+v", i, r)
			}
		}
	}
	if !bytes.Equal(dump(t, restored(t, c.m)), dump(t, c.m)) {
		t.Error("a restored state differs")
	}
}

// TestVersionsNeverStartAgain deletes versions of definitions and programs. A later version must have
// a number that was not used before, also after a snapshot was restored.
func TestVersionsNeverStartAgain(t *testing.T) {
	m := fresh(t)
	index, text := uint64(0), 0
	apply := func(c *pb.Command) state.Answer {
		t.Helper()
		index++
		c.Tenant = "t"
		a := do(t, m, entry(index, 1, c))[0]
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a
	}
	apply(tenant("t", 0, 0))
	change := func(p *pb.PutDefinitions) state.Answer {
		t.Helper()
		p.NumbersContinue, p.UnlessSame = true, true
		return apply(&pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: p}})
	}
	put := func() int {
		t.Helper()
		text++
		body := fmt.Appendf(nil, `{"name":"x","description":"%d"}`, text)
		return change(&pb.PutDefinitions{Definitions: []*pb.Definition{{Kind: "services", Name: "x", Body: body}}}).Effect.Definitions[0].Version
	}
	remove := func(version int32) {
		t.Helper()
		change(&pb.PutDefinitions{Delete: []*pb.DefinitionVersion{{Kind: "services", Name: "x", Version: version}}})
		m = restored(t, m)
	}
	var got []int
	got = append(got, put(), put())
	remove(0)
	got = append(got, put(), put(), put())
	remove(5)
	got = append(got, put())
	remove(3)
	remove(6)
	remove(4)
	got = append(got, put())
	if want := []int{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("versions %v, not %v", got, want)
	}
	same := fmt.Appendf(nil, `{"name":"x","description":"%d"}`, text)
	a := change(&pb.PutDefinitions{Definitions: []*pb.Definition{{Kind: "services", Name: "x", Body: same}}})
	if v := a.Effect.Definitions[0].Version; v != 7 {
		t.Errorf("the same definition is version %d", v)
	}

	job := profile.Program{Steps: []profile.Step{{Name: "go", Command: []string{"true"}}}}
	for want := 1; want < 4; want++ {
		if got := apply(setting(t, "program", "g", "put", job)).Effect.Program.Version; got != want {
			t.Errorf("program version %d, not %d", got, want)
		}
		apply(setting(t, "program", "g", "delete", nil))
		m = restored(t, m)
	}

	apply(&pb.Command{Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: "t"}}})
	apply(tenant("t", 0, 0))
	if v := put(); v != 1 {
		t.Errorf("a new tenant begins with version %d", v)
	}
}
