package state

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// settings is a machine with two tenants, to which tests send settings.
type settings struct {
	m     *Machine
	index uint64
}

func newSettings(t rapid.TB) *settings {
	m, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &settings{m: m}
	for _, tenant := range []string{"a", "b"} {
		s.do(t, &pb.Command{Actor: "x", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: tenant}}}})
	}
	return s
}

func (s *settings) do(t rapid.TB, c *pb.Command) error {
	s.index++
	data, err := proto.Marshal(&pb.Entry{Format: Format, FeatureLevel: FeatureLevel, MustUnderstand: true, NowMs: int64(s.index),
		Commands: []*pb.Command{c}})
	if err != nil {
		t.Fatal(err)
	}
	out, ok := s.m.Apply(&raft.Log{Type: raft.LogCommand, Index: s.index, Data: data}).([][]Answer)
	if !ok {
		t.Fatal("not applied")
	}
	return out[0][0].Err
}

func (s *settings) put(t rapid.TB, tenant, kind, name, order string, v any) error {
	p, err := logtest.PutSetting(kind, name, order, v)
	if err != nil {
		t.Fatal(err)
	}
	p.System = tenant == ""
	return s.do(t, &pb.Command{Tenant: tenant, Actor: "me",
		Change: &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: p}}}})
}

// TestAssignments assigns profiles to settings and deletes both in any order. The reverse index
// must agree with a scan of all settings. A profile that is assigned or enabled must not be
// deleted.
func TestAssignments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSettings(t)
		type owned struct{ tenant, name string }
		tenants := []string{"", "a", "b"}
		names := []string{"p", "q"}
		ref := rapid.SampledFrom([]string{"", "SYSTEM:p", "SYSTEM:q", "USER:p", "q", "SYSTEM:native"})
		settings := map[owned]string{}  // preferences: tenant, program
		schedules := map[owned]string{} // tenant, schedule
		profiles := map[owned]bool{}    // enabled or not
		for _, tn := range []string{"a", "b"} {
			if err := s.put(t, tn, "program", "job", "put", profile.Program{Steps: []profile.Step{{Name: "x"}}}); err != nil {
				t.Fatal(err)
			}
		}
		named := func(tenant, text string) owned {
			o, n, _ := profile.Assigned(tenant, map[string]string{profile.ProfileKey: text})
			return owned{o, n}
		}
		count := func(p owned) (n int) {
			for k, v := range settings {
				if v != "" && named(k.tenant, v) == p {
					n++
				}
			}
			for k, v := range schedules {
				if v != "" && named(k.tenant, v) == p {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
			name := rapid.SampledFrom(names).Draw(t, "name")
			p := owned{tenant, name}
			enabled, there := profiles[p]
			switch rapid.SampledFrom([]string{"put", "disable", "delete", "preferences", "program", "forget", "schedule", "unschedule"}).Draw(t,
				"what") {
			case "put":
				if err := s.put(t, tenant, "profile", name, "put", profile.Profile{}); err != nil {
					t.Fatal(err)
				}
				profiles[p] = enabled || !there
			case "disable":
				err := s.put(t, tenant, "profile", name, "disable", nil)
				if want := there && enabled; (err == nil) != want {
					t.Fatalf("disable %v: %v", p, err)
				}
				if there {
					profiles[p] = false
				}
			case "delete":
				err := s.put(t, tenant, "profile", name, "delete", nil)
				if want := there && !enabled && count(p) == 0; (err == nil) != want {
					t.Fatalf("delete %v, enabled %v, assigned %d times: %v", p, enabled, count(p), err)
				}
				if err == nil {
					delete(profiles, p)
				}
			case "preferences", "program", "schedule":
				text := ref.Draw(t, "ref")
				k, kind := owned{tenant, ""}, "preferences"
				var body any = map[string]string{profile.ProfileKey: text}
				into := settings
				if rapid.Bool().Draw(t, "deeper") && tenant != "" {
					k.name = "job"
					if rapid.Bool().Draw(t, "schedule") {
						kind, into = "schedule", schedules
						k.name = name
						body = profile.Schedule{Program: "job", Cron: "@daily", Properties: map[string]string{profile.ProfileKey: text}}
					}
				}
				err := s.put(t, tenant, kind, k.name, "put", body)
				to := named(tenant, text)
				want := text == "" || to == owned{"", profile.Native} || profiles[to]
				if (err == nil) != want {
					t.Fatalf("assign %q to %v: %v, enabled %v", text, k, err, profiles[to])
				}
				if err == nil {
					into[k] = text
				}
			case "forget":
				k := owned{tenant, rapid.SampledFrom([]string{"", "job"}).Draw(t, "program")}
				_, have := settings[k]
				if err := s.put(t, tenant, "preferences", k.name, "delete", nil); (err == nil) != have {
					t.Fatalf("forget %v: %v", k, err)
				}
				delete(settings, k)
			case "unschedule":
				if tenant != "" {
					k := owned{tenant, name}
					_, have := schedules[k]
					if err := s.put(t, tenant, "schedule", name, "delete", nil); (err == nil) != have || err != nil && !errors.Is(err, problem.NotFound) {
						t.Fatalf("unschedule %v: %v", k, err)
					}
					delete(schedules, k)
				}
			}
			for _, tn := range tenants {
				for _, n := range append(names, profile.Native) {
					got := s.m.View().Assignments(tn, profile.RefOf(tn, n))
					if len(got) != count(owned{tn, n}) || len(slices.Compact(slices.Clone(got))) != len(got) {
						t.Fatalf("profile %s of %q: the index has %v, and there are %d", n, tn, got, count(owned{tn, n}))
					}
				}
			}
		}
	})
}
