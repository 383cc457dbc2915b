package janitor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// clouds are providers in memory.
type clouds struct {
	mu       sync.Mutex
	machines []*pb.Resource
	lists    int
	fault    error
	// between is called once, before the second list of a search. It may add and remove machines.
	between func()
	removed []string
}

func (c *clouds) List(context.Context, *model.Provider, string) ([]*pb.Resource, map[string]bool, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists++; c.lists == 2 && c.between != nil {
		c.between()
		c.between = nil
	}
	return slices.Clone(c.machines), map[string]bool{"": true}, c.fault == nil, c.fault
}

func (c *clouds) Remove(_ context.Context, _ *model.Provider, _ string, r *pb.Resource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		return c.fault
	}
	c.removed = append(c.removed, r.Id)
	c.machines = slices.DeleteFunc(c.machines, func(x *pb.Resource) bool { return x.Id == r.Id })
	return nil
}

// midway has f called between the two lists of the next search.
func (c *clouds) midway(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists, c.between = 0, f
}

// be makes the cloud fail, or have these machines.
func (c *clouds) be(fault error, machines ...*pb.Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.machines = fault, machines
}

// searches returns how often the cloud was asked for its machines.
func (c *clouds) searches() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

// removals returns the machines that were removed so far.
func (c *clouds) removals() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.removed)
}

// TestOrphans checks that the policy waits for the grace period, that it keeps machines of unknown
// clusters, and that a machine that was being deleted during the search is not an orphan.
func TestOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := state.New(state.Config{})
		if err != nil {
			t.Fatal(err)
		}
		index := uint64(0)
		propose := func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			index++
			b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true,
				NowMs: time.Now().UnixMilli(), Commands: cs})
			if err != nil {
				return nil, err
			}
			got := m.Apply(&raft.Log{Type: raft.LogCommand, Index: index, Data: b})
			groups, ok := got.([][]state.Answer)
			if !ok {
				return nil, fmt.Errorf("%v", got)
			}
			var out []state.Answer
			for _, g := range groups {
				out = append(out, g...)
			}
			for i := range out {
				out[i].Index = index
			}
			return out, nil
		}
		for _, c := range []*pb.Command{
			{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "t"}}}},
			{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{{Kind: string(
				model.KindProvider), Name: "p", Body: []byte(`{"name":"p","providertype":"cloud"}`)}}}}},
		} {
			if as, err := propose(t.Context(), c); err != nil || as[0].Err != nil {
				t.Fatal(as, err)
			}
		}
		c := &clouds{machines: []*pb.Resource{{Cluster: "9", Node: "9-1", Fence: 1, Id: "forgotten"},
			{Cluster: "9", Node: "9-2", Fence: 1, Id: "going"}}}
		c.between = func() { c.machines = c.machines[:1] }
		o := janitor.NewOrphans(janitor.OrphansConfig{Machine: m, Propose: propose, Finder: c, Logger: slog.New(slog.DiscardHandler),
			Every: time.Minute, Delete: true, Grace: 10 * time.Minute})
		r, err := o.Find(t.Context())
		if err != nil || len(r.Orphans) != 1 || r.Orphans[0].ID != "forgotten" || r.Orphans[0].Why != model.OrphanUnknown ||
			r.Orphans[0].DeleteAt != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- o.Run(ctx) }()
		time.Sleep(time.Hour + 30*time.Second) // never at the moment of a search
		if removed := c.removals(); len(removed) > 0 {
			t.Errorf("the policy removed %v", removed)
		}
		if r := o.Report(); len(r.Orphans) != 1 || r.Orphans[0].Since >= r.At {
			t.Errorf("%+v", r)
		}
		// A provider that does not answer is reported, and its known orphans are kept. It stops
		// answering between the two lists of a search.
		away := errors.New("it is away")
		c.midway(func() { c.fault, c.machines = away, nil })
		time.Sleep(2 * time.Minute)
		if r := o.Report(); len(r.Orphans) != 1 || r.Providers[0].Fault != "it is away" {
			t.Errorf("%+v", r)
		}
		who := model.Caller{Tenant: "t", Actor: "me", Role: model.RoleAdmin}
		if _, err := o.Remove(ctx, who, "forgotten", "asked for"); err == nil || !errors.Is(err, away) {
			t.Errorf("remove from a provider that is away: %v", err)
		}
		c.be(nil, &pb.Resource{Cluster: "9", Node: "9-1", Fence: 1, Id: "forgotten"})
		time.Sleep(2 * time.Minute)
		if r := o.Report(); len(r.Orphans) != 1 || r.Orphans[0].Fault == "" {
			t.Errorf("the fault of its removal is forgotten: %+v", r)
		}
		if _, err := o.Remove(ctx, model.Caller{Tenant: "another"}, "forgotten", "asked for"); !errors.Is(err, janitor.ErrNoOrphan) {
			t.Errorf("another tenant's: %v", err)
		}
		if _, err := o.Remove(ctx, who, "forgotten", "asked for"); err != nil || !slices.Equal(c.removals(), []string{"forgotten"}) {
			t.Errorf("%v %v", c.removals(), err)
		}
		if r := o.Report(); len(r.Orphans) != 0 {
			t.Errorf("%+v", r)
		}
		stop()
		<-ended
	})
}

// TestOrphansThoughNoTermLasts: the providers are asked, and an orphan is removed when its grace is
// over, although every term is far shorter than both. The grace period continues while the provider
// does not answer.
func TestOrphansThoughNoTermLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, grace, term = 10 * time.Minute, time.Hour, 7 * time.Second
		h := newHouse(t)
		propose := func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			h.now = time.Now()
			return h.propose(ctx, cs...)
		}
		h.apply(&pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{
			{Kind: string(model.KindProvider), Name: "p", Body: []byte(`{"name":"p","providertype":"cloud"}`)}}}}})
		cluster := h.cluster(1, false)
		machine := &pb.Resource{Cluster: cluster, Node: string(model.ClusterID(cluster).Node(1000)), Fence: 1, Id: "left"}
		c := &clouds{}
		begin := time.Now()
		var asked []time.Duration
		for len(c.removals()) == 0 && time.Since(begin) < 2*grace {
			if at := time.Since(begin); at > 25*time.Minute && at < 45*time.Minute {
				c.be(errors.New("it is away"))
			} else {
				c.be(nil, machine)
			}
			before := c.searches()
			o := janitor.NewOrphans(janitor.OrphansConfig{Machine: h.m, Propose: propose, Finder: c, Logger: slog.New(slog.DiscardHandler),
				Every: every, Delete: true, Grace: grace})
			if err := o.Restore(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- o.Run(ctx) }()
			at := time.Since(begin)
			time.Sleep(term)
			stop()
			<-ended
			if c.searches() > before {
				asked = append(asked, at)
			}
		}
		if len(asked) != 7 || asked[0] != 0 || asked[6] > grace {
			t.Errorf("the provider was asked in the terms that began after %v", asked)
		}
		if !slices.Equal(c.removals(), []string{"left"}) {
			t.Errorf("%v was removed after %s", c.removals(), time.Since(begin))
		}
	})
}

// TestOrphansWhileHeld has a person search for orphans while the mesh is held. Their grace begins when the mesh is resumed: until then
// nobody may have looked.
func TestOrphansWhileHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.apply(&pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{
			{Kind: string(model.KindProvider), Name: "p", Body: []byte(`{"name":"p","providertype":"cloud"}`)}}}}})
		machine := &pb.Resource{Cluster: h.cluster(1, false), Node: "1-1000", Fence: 1, Id: "made after the snapshot"}
		var saved, held bytes.Buffer
		if err := h.m.View().Write(&saved); err != nil {
			t.Fatal(err)
		}
		v, err := state.Restored(&saved, func(string) bool { return true }, time.Now(), nil, &roster.Hold{Since: 1})
		if err == nil {
			err = errors.Join(v.Write(&held), h.m.Restore(io.NopCloser(&held)))
		}
		if err != nil {
			t.Fatal(err)
		}
		h.index = h.m.View().Index()
		c := &clouds{}
		c.be(nil, machine)
		o := janitor.NewOrphans(janitor.OrphansConfig{Machine: h.m, Finder: c, Logger: slog.New(slog.DiscardHandler), Every: 10 * time.Minute,
			Delete: true, Grace: time.Hour, Propose: func(ctx context.Context, cs ...*pb.Command) ([]state.Answer, error) {
				h.now = time.Now()
				return h.propose(ctx, cs...)
			}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- o.Run(ctx) }()
		defer func() { stop(); <-ended }()
		time.Sleep(3 * time.Hour)
		if n := c.searches(); n > 0 {
			t.Errorf("the provider was asked %d times while the mesh was held", n)
		}
		if r, err := o.Find(ctx); err != nil || len(r.Orphans) != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		time.Sleep(3 * time.Hour)
		h.now = time.Now()
		h.apply(&pb.Command{Change: &pb.Command_ResumeMesh{ResumeMesh: &pb.ResumeMesh{}}})
		time.Sleep(50 * time.Minute)
		if removed := c.removals(); len(removed) > 0 {
			t.Errorf("%q was removed before its grace was over", removed)
		}
		time.Sleep(30 * time.Minute)
		if removed := c.removals(); len(removed) != 1 {
			t.Errorf("%q was removed after the grace", removed)
		}
	})
}

// opener decrypts every password as "canary-password".
type opener struct{ state.Opener }

func (opener) OpenFields(_ view.SealedView, _ string, _ map[string]any) (map[string]any, error) {
	return map[string]any{"password": "canary-password"}, nil
}

// TestOrphansHidePasswords has a provider that quotes its password when it fails.
func TestOrphansHidePasswords(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, Commands: []*pb.Command{
		{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "t"}}}},
		{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{{Kind: string(
			model.KindProvider), Name: "p", Body: []byte(`{"name":"p","providertype":"cloud","provisioner":{"password":"coopr-sealed:a@1"}}`)}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&raft.Log{Type: raft.LogCommand, Index: 1, Data: b})
	c := &clouds{fault: errors.New("no such user: canary-password")}
	o := janitor.NewOrphans(janitor.OrphansConfig{Machine: m, Opener: opener{}, Finder: c, Logger: slog.New(slog.DiscardHandler),
		Propose: func(context.Context, ...*pb.Command) ([]state.Answer, error) { return nil, nil }})
	r, err := o.Find(t.Context())
	if err != nil || len(r.Providers) != 1 || r.Providers[0].Fault != "no such user: "+model.Redacted {
		t.Errorf("%+v %v", r.Providers, err)
	}
}
