package access

import (
	"embed"
	"fmt"
	"slices"
	"sync"

	"github.com/coopr/coopr/engine/model"
)

//go:embed builtin/*.cedar
var builtinFiles embed.FS

// BuiltinNames are the names of the built-in policies, the one with the fewest rights first. Each
// is about the group of the same name.
var BuiltinNames = []string{"viewer", "user", "editor", "tenant-admin", "operator", "superadmin"}

// Builtins returns the documents of the built-in policies. A document of the mesh with the same name
// replaces one.
func Builtins() []Document {
	out := make([]Document, 0, len(BuiltinNames))
	for _, name := range BuiltinNames {
		text, err := builtinFiles.ReadFile("builtin/" + name + ".cedar")
		if err != nil {
			panic(fmt.Errorf("built-in policy %s: %w", name, err))
		}
		out = append(out, Document{Name: name, Text: string(text)})
	}
	return out
}

var builtins = sync.OnceValue(func() []*Policies {
	var out []*Policies
	for _, d := range Builtins() {
		p, faults := Parse(d, nil)
		if len(faults) > 0 {
			panic(faults)
		}
		out = append(out, p)
	}
	return out
})

// groupOf maps the roles of tokens to the groups of the built-in policies.
var groupOf = map[model.Role]string{
	model.RoleRead:       "viewer",
	model.RoleUser:       "user",
	model.RoleAdmin:      "tenant-admin",
	model.RoleSuperadmin: "superadmin",
}

// OfCaller returns the principal of a caller with a role. A caller without a role is in no group.
func OfCaller(who model.Caller) *Principal {
	p := &Principal{Type: TypeUser, ID: who.Actor, Name: who.Actor, Tenant: who.Tenant, Root: who.Root, Groups: who.Groups}
	if who.Account {
		p.Type = TypeAccount
	}
	if g, ok := groupOf[who.Role]; ok {
		p.Groups = append([]string{g}, who.Groups...)
	}
	if who.Maker != nil {
		p.Type, p.ID = TypeToken, who.Token
		p.Maker = OfCaller(*who.Maker)
	}
	return p
}

// GroupID returns the name of a tenant's group in policies: TENANT/NAME, or NAME for a group that is built in.
func GroupID(tenant, name string) string {
	if slices.Contains(BuiltinNames, name) {
		return name
	}
	return tenant + "/" + name
}
