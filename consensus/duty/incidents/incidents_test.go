package incidents_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/incidents"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// mesh has the incidents that were recorded.
type mesh struct {
	*incidents.Recorder
	machine *state.Machine
	mu      sync.Mutex
	entries atomic.Int32
	all     []*pb.Incident
	fails   error // of every entry
}

func newMesh(t *testing.T) *mesh {
	machine, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{machine: machine}
	m.Recorder = incidents.New(incidents.Config{Machine: machine, Logger: slog.New(slog.DiscardHandler),
		Propose: func(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.fails != nil {
				return nil, m.fails
			}
			m.entries.Add(1)
			m.all = append(m.all, commands[0].GetNoteIncidents().Incidents...)
			return make([]state.Answer, 1), nil
		}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	return m
}

// pass lets a time pass and returns the incidents that were recorded meanwhile.
func (m *mesh) pass(d time.Duration) []*pb.Incident {
	time.Sleep(d)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.all
	m.all = nil
	return out
}

func (m *mesh) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = err
}

func refusal(actor, action string) model.Incident {
	return model.Incident{Type: model.IncidentRefused, Tenant: "t", Actor: actor, Action: action, Source: "192.0.2.1"}
}

// The first refusal is recorded at once, and further ones of the same principal and action once a minute, with their number.
func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.Note(refusal("ann", "deleteTenant"))
		if got := m.pass(time.Second); len(got) != 1 || got[0].Count != 1 || got[0].Actor != "ann" || got[0].Tenant != "t" {
			t.Errorf("the first: %v", got)
		}
		for range 5000 {
			m.Note(refusal("ann", "deleteTenant"))
			m.pass(10 * time.Millisecond)
		}
		if m.entries.Load() != 1 {
			t.Errorf("%d entries in the first minute", m.entries.Load())
		}
		m.Note(refusal("ann", "putTenant"))
		m.Note(refusal("bob", "deleteTenant"))
		m.pass(time.Second)
		if m.entries.Load() != 2 {
			t.Errorf("%d entries with those of others", m.entries.Load())
		}
		if got := m.pass(10 * time.Second); len(got) != 1 || got[0].Count != 5000 || got[0].FirstMs >= got[0].LastMs {
			t.Errorf("after a minute: %v", got)
		}
		m.pass(time.Hour)
		if m.entries.Load() != 3 {
			t.Errorf("%d entries: it records although nothing happens", m.entries.Load())
		}
		m.Note(refusal("ann", "deleteTenant"))
		if got := m.pass(time.Second); len(got) != 1 || got[0].Count != 1 {
			t.Errorf("later: %v", got)
		}
	})
}

// Strangers who come from everywhere, and principals without number, write a few records a minute. They all count.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		for i := range 100_000 {
			m.Note(model.Incident{Type: model.IncidentTokenRefused, Action: fmt.Sprint("route", i%7), Source: fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255,
				i&255)})
			m.Note(refusal(fmt.Sprint("user", i), "deleteTenant"))
		}
		m.Note(model.Incident{Type: model.IncidentLoginRefused, Action: "login", Source: "10.9.9.9/32"})
		got, sum := m.pass(2*time.Minute), map[string]int64{}
		for _, i := range got {
			sum[i.Type] += i.Count
		}
		if len(got) > 10+500+3+10 || sum[model.IncidentTokenRefused] != 100_000 || sum[model.IncidentRefused] != 100_000 ||
			sum[model.IncidentLoginRefused] != 1 {
			t.Errorf("%d records of %v", len(got), sum)
		}
		m.pass(time.Hour)
		m.Note(refusal("ann", "deleteTenant"))
		if got := m.pass(time.Second); len(got) != 1 || got[0].Actor != "ann" {
			t.Errorf("it is still full: %v", got)
		}
	})
}

// TestTenants has a tenant with principals without number. Those of another have their names all the same.
func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		for i := range 1000 {
			m.Note(refusal(fmt.Sprint("user", i), "deleteTenant"))
		}
		ann := refusal("ann", "deleteTenant")
		ann.Tenant = "quiet"
		m.Note(ann)
		named, shared := 0, int64(0)
		for _, i := range m.pass(time.Minute + time.Second) {
			switch {
			case i.Tenant == "quiet" && i.Actor == "ann":
				named += 1000
			case i.Tenant == "t" && i.Actor == "(others)":
				shared += i.Count
			default:
				named++
			}
		}
		if named != 1050 || shared != 950 {
			t.Errorf("%d with a name, %d without", named, shared)
		}
		m.pass(time.Hour)
		m.Note(refusal("bob", "deleteTenant"))
		if got := m.pass(time.Second); len(got) != 1 || got[0].Actor != "bob" {
			t.Errorf("it is still full: %v", got)
		}
	})
}

// TestReports has an agent report reads without end.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		for i := range 10_000 {
			m.Report(model.Incident{Type: "resource.read", Tenant: "t", Actor: "ann", Action: "getResourceContent", Object: fmt.Sprint("/", i)})
		}
		got, sum := m.pass(time.Minute+time.Second), int64(0)
		for _, i := range got {
			sum += max(i.Count, 1)
		}
		if len(got) > 100 || got[0].Object == "" || sum != 10_000 {
			t.Errorf("%d records of %d reads", len(got), sum)
		}
	})
}

// Logins and the like have a record each. Nothing is lost if an entry fails.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		m.fail(errors.New("no quorum"))
		for range 3 {
			m.Note(model.Incident{Type: model.IncidentLogin, Tenant: "t", Actor: "ann", Action: "login", Source: "192.0.2.1", Request: "r"})
			m.Note(refusal("ann", "deleteTenant"))
		}
		if got := m.pass(time.Second); len(got) != 0 {
			t.Error(got)
		}
		m.fail(nil)
		got := m.pass(time.Minute)
		if len(got) != 4 || got[0].Count != 0 || got[0].Request != "r" || got[3].Count != 3 {
			t.Errorf("%v", got)
		}
		if got := m.pass(time.Hour); len(got) != 0 {
			t.Error(got)
		}
	})
}

// TestOldVoters notes incidents while the mesh has voters that do not understand them.
func TestOldVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t)
		for level := uint32(1); level <= logformat.AuditLevel; level++ {
			b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, Commands: []*pb.Command{{
				Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: level, Mesh: "m"}}}}})
			if err != nil {
				t.Fatal(err)
			}
			m.machine.Apply(&raft.Log{Type: raft.LogCommand, Index: uint64(level), Data: b})
			m.Note(refusal("ann", "deleteTenant"))
			m.Note(model.Incident{Type: model.IncidentLogin, Tenant: "t", Actor: "ann"})
			if got := m.pass(2 * time.Minute); len(got) != 2*int(level-1) {
				t.Errorf("level %d: %v", level, got)
			}
		}
	})
}
