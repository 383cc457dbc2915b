package state

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestRunProviders: who may have made plain nodes for runs is known without a run: from
// profiles, and from what overrides their properties. What no agent offers is left out.
func TestRunProviders(t *testing.T) {
	s := newSettings(t)
	put := func(tenant, kind, name string, v any) {
		if err := s.put(t, tenant, kind, name, "put", v); err != nil {
			t.Fatal(err)
		}
	}
	region := profile.PropField + "region"
	of := func(name string) profile.Profile {
		return profile.Profile{Provisioner: profile.Provisioner{Name: name, Properties: []profile.Property{{Name: region, Value: "${secure(where)}"}, {Name: profile.PropNodes, Value: "2"}}}}
	}
	put("a", SetSecret, "where", 7)
	put("b", SetSecret, "where", 8)
	put("a", SetProfile, "own", of("cloud"))
	put("a", SetProfile, "template", of("cluster"))
	put("a", SetProfile, "away", of("nobody"))
	put("", SetProfile, "all", of("other"))
	put("a", SetProgram, "job", profile.Program{Steps: []profile.Step{{Name: "x"}}})
	put("a", SetPreferences, "job", map[string]string{profile.ProfileKey: "own", profile.PropertyPrefix + region: "north"})
	put("a", SetSchedule, "s", profile.Schedule{Program: "job", Cron: "@daily", Properties: map[string]string{profile.ProfileKey: "SYSTEM:all", profile.PropertyPrefix + region: "south"}})
	types := [][]byte{}
	for _, name := range []string{"cloud", "other", "local"} {
		types = append(types, fmt.Appendf(nil, `{"name":%q,"class":"provider"}`, name))
	}
	if err := s.do(t, &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Agent: "1", Record: []byte(`{"id":"1"}`), Types: types}}}); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string][]string{
		"a": {"cloud 7", "cloud north", "local <nil>", "other 7", "other south"},
		"b": {"local <nil>", "other 8"},
	} {
		var got []string
		for _, p := range s.m.View().RunProviders(tenant) {
			got = append(got, fmt.Sprint(p.ProviderType, " ", p.Provisioner["region"]))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("tenant %s: %q, not %q", tenant, got, want)
		}
	}
}
