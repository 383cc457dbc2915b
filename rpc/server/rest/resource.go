package rest

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// pathNames are the parameters of paths that hold names of resources.
var pathNames = []string{"name", "profile", "program", "schedule", "site", "id", "agent"}

// object returns the resource that a path names. It has no name if the path has none.
func (c *Call) object(r *http.Request) access.Resource {
	name := ""
	for _, key := range pathNames {
		if name = r.PathValue(key); name != "" {
			break
		}
	}
	if c.right.On == access.TypeTenant && c.right.Action == access.Admin {
		name = c.Who.Tenant
	}
	return c.named(c.right.On, name)
}

// named returns a resource that has no attributes but its name.
func (c *Call) named(on access.Type, name string) access.Resource {
	tenant := c.Who.Tenant
	if c.right.Mesh {
		tenant = ""
	}
	x := access.Named(on, tenant, name)
	switch on {
	case access.TypeTenant:
		x.ID, x.Tenant = name, name
	case access.TypeProfile: // by one of several names
		if ref, err := profile.ParseRef(name); err == nil {
			if ref.Scope == profile.System {
				x.Tenant = ""
			}
			x = access.Named(on, x.Tenant, ref.Name)
		}
	case access.TypeMesh:
		x.Ref, x.Tenant, x.Row = access.TheMesh, "", nil
	case access.TypeAgent:
		x.ID, x.Tenant = name, ""
	}
	return x
}

// own returns a new resource of the caller.
func (c *Call) own(on access.Type) access.Resource {
	x := c.named(on, "")
	x.Row = &access.Attributes{Values: map[string]any{"owner": c.Who.Actor}}
	return x
}

func ofCluster(v View, cl *model.Cluster) access.Resource {
	return access.OfCluster(cl, func() int { return len(v.Nodes(cl.Tenant, cl.ID)) })
}

func ofNode(v View, n *model.Node) access.Resource {
	return access.OfNode(n, func() string {
		if cl, ok := v.Cluster(n.Tenant, n.Cluster); ok {
			return cl.Owner
		}
		return ""
	})
}

func (c *Call) ofRun(r *profile.Run) access.Resource {
	return access.Resource{
		Ref: access.Ref{Type: access.TypeRun, ID: r.ID}, Tenant: c.Who.Tenant,
		Row: access.RowFunc(func(name string) any {
			switch name {
			case "owner":
				return r.Actor
			case "name":
				return r.ID
			case "status":
				return string(r.Status)
			}
			return nil
		}),
	}
}

var nouns = map[access.Type]string{
	access.TypeHardwareType: "hardware type", access.TypeImageType: "image type", access.TypePluginType: "plugin type",
	access.TypePluginResource: "plugin resource", access.TypeMesh: "the mesh",
}

func nameOf(x *access.Resource) string {
	if x.Row == nil {
		return ""
	}
	s, _ := x.Row.Attribute("name").(string)
	return s
}

func nounOf(x *access.Resource) string {
	return cmp.Or(nouns[x.Type], strings.ToLower(string(x.Type)))
}

// phrase returns how a text names a resource: "cluster shop", "a template", "the mesh".
func phrase(x *access.Resource) string {
	noun := nounOf(x)
	switch name := nameOf(x); {
	case name != "":
		return noun + " " + name
	case x.Type == access.TypeMesh:
		return noun
	case strings.ContainsRune("aeiou", rune(noun[0])):
		return "an " + noun
	}
	return "a " + noun
}
