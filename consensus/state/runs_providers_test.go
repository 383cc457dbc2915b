package state

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// TestRunProviders expects that the possible providers of plain nodes for runs are known without a
// run: from profiles, and from settings that override their properties. Providers that no agent
// offers are left out.
func TestRunProviders(t *testing.T) {
	s := newSettings(t)
	put := func(tenant, kind, name string, v any) {
		if err := s.put(t, tenant, kind, name, "put", v); err != nil {
			t.Fatal(err)
		}
	}
	region := profile.PropField + "region"
	of := func(name string) profile.Profile {
		return profile.Profile{Provisioner: profile.Provisioner{Name: name,
			Properties: []profile.Property{{Name: region, Value: "${secure(where)}"}, {Name: profile.PropNodes, Value: "2"}}}}
	}
	put("a", "secret", "where", profile.Secret{Value: model.NewSecret("7")})
	put("b", "secret", "where", profile.Secret{Value: model.NewSecret("8")})
	put("a", "profile", "own", of("cloud"))
	put("a", "profile", "template", of("cluster"))
	put("a", "profile", "away", of("nobody"))
	put("", "profile", "all", of("other"))
	put("a", "program", "job", profile.Program{Steps: []profile.Step{{Name: "x"}}})
	put("a", "preferences", "job", map[string]string{profile.ProfileKey: "own", profile.PropertyPrefix + region: "north"})
	put("a", "schedule", "s", profile.Schedule{Program: "job", Cron: "@daily",
		Properties: map[string]string{profile.ProfileKey: "SYSTEM:all", profile.PropertyPrefix + region: "south"}})
	// A text like the name of an encrypted value is a text: the mesh did not write it.
	put("a", "program", "spy", profile.Program{Steps: []profile.Step{{Name: "x"}}})
	put("a", "preferences", "spy", map[string]string{profile.ProfileKey: "own",
		profile.PropertyPrefix + profile.PropField + "comment": model.SealedRef{ID: "abc", Version: 1}.String()})
	types := []*record.PluginType{}
	for _, name := range []string{"cloud", "other", "local"} {
		types = append(types, &record.PluginType{Name: name, Class: "provider"})
	}
	if err := s.do(t, &pb.Command{Change: &pb.Command_OpenSession{OpenSession: &pb.OpenSession{Agent: "1", Record: &record.Agent{Id: "1"},
		Types: types}}}); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string][]string{
		"a": {"cloud 7", "cloud north", "local <nil>", "other 7", "other south"},
		"b": {"local <nil>", "other 8"},
	} {
		var got []string
		for _, p := range s.m.View().RunProviders(nil, tenant) {
			got = append(got, fmt.Sprint(p.ProviderType, " ", p.Provisioner["region"]))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("tenant %s: %q, not %q", tenant, got, want)
		}
	}
}
