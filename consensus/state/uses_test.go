package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestUsersOfDefinitions expects that the deletion of a definition is refused while other
// definitions or profiles of the tenant name it, and that the refusal names at most ten users.
func TestUsersOfDefinitions(t *testing.T) {
	s := newSettings(t)
	change := func(p *pb.PutDefinitions) error {
		t.Helper()
		return s.do(t, &pb.Command{Tenant: "a", Change: &pb.Command_PutDefinitions{PutDefinitions: p}})
	}
	put := func(kind model.Kind, name, rest string) {
		t.Helper()
		body := fmt.Appendf(nil, `{"name": %q%s}`, name, rest)
		if err := change(&pb.PutDefinitions{Definitions: []*pb.Definition{{Kind: string(kind), Name: name, Body: body}}}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(kind model.Kind, name string, force bool) error {
		t.Helper()
		return change(&pb.PutDefinitions{UnlessUsed: !force, Delete: []*pb.DefinitionVersion{{Kind: string(kind), Name: name}}})
	}
	refused := func(kind model.Kind, name, users string) {
		t.Helper()
		want := fmt.Sprintf("%s/%s is in use by %s:", kind, name, users)
		if err := remove(kind, name, false); !errors.Is(err, problem.Conflict) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("deletion of %s/%s: %v, not %q", kind, name, err, want)
		}
	}
	allowed := func(kind model.Kind, name string) {
		t.Helper()
		if err := remove(kind, name, false); err != nil {
			t.Errorf("deletion of %s/%s: %v", kind, name, err)
		}
	}

	put(model.KindProvider, "cloud", "")
	put(model.KindHardwareType, "small", "")
	put(model.KindImageType, "linux", "")
	put(model.KindPartialTemplate, "part", `, "defaults": {"provider": "cloud"}`)
	put(model.KindClusterTemplate, "base", `, "compatibility": {"hardwaretypes": ["small"], "imagetypes": ["linux"]}`)
	put(model.KindClusterTemplate, "web", `, "extends": {"name": "base"}, "includes": [{"name": "part"}]`)
	put(model.KindService, "mysql", `, "dependencies": {"provides": ["database"], "install": {"requires": ["mysql"]}}`)
	put(model.KindService, "site", `, "dependencies": {"runtime": {"requires": ["database"], "uses": ["cache"]}}`)
	put(model.KindService, "cache", "")
	of := profile.Profile{Provisioner: profile.Provisioner{Name: "cluster", Properties: []profile.Property{
		{Name: profile.PropTemplate, Value: "web"}, {Name: "provider", Value: "cloud"}, {Name: "services", Value: "cache, site"}}}}
	if err := s.put(t, "a", "profile", "job", "put", of); err != nil {
		t.Fatal(err)
	}

	refused(model.KindProvider, "cloud", "partial template part, profile USER:job")
	refused(model.KindHardwareType, "small", "template base")
	refused(model.KindImageType, "linux", "template base")
	refused(model.KindPartialTemplate, "part", "template web")
	refused(model.KindClusterTemplate, "base", "template web")
	refused(model.KindClusterTemplate, "web", "profile USER:job")
	refused(model.KindService, "site", "profile USER:job")
	refused(model.KindService, "mysql", "service site")
	refused(model.KindService, "cache", "profile USER:job") // not by the service that only uses it

	put(model.KindService, "postgres", `, "dependencies": {"provides": ["database"]}`)
	allowed(model.KindService, "mysql")
	refused(model.KindService, "postgres", "service site")
	if err := remove(model.KindClusterTemplate, "base", true); err != nil {
		t.Error(err)
	}
	allowed(model.KindHardwareType, "small")

	var users []string
	for i := range 12 {
		name := fmt.Sprintf("app%02d", i)
		put(model.KindService, name, `, "dependencies": {"install": {"requires": ["postgres"]}}`)
		users = append(users, "service "+name)
	}
	refused(model.KindService, "postgres", strings.Join(users[:10], ", ")+" and 3 more")
}
