package access

import "net/netip"

// Type is the type of a principal or of a resource.
type Type string

// The types of the schema.
const (
	TypeUser           Type = "User"
	TypeAccount        Type = "Account"
	TypeToken          Type = "Token"
	TypeGroup          Type = "Group"
	TypeMesh           Type = "Mesh"
	TypeAgent          Type = "Agent"
	TypeTenant         Type = "Tenant"
	TypeCluster        Type = "Cluster"
	TypeNode           Type = "Node"
	TypeRun            Type = "Run"
	TypeTemplate       Type = "Template"
	TypeService        Type = "Service"
	TypeProvider       Type = "Provider"
	TypeHardwareType   Type = "HardwareType"
	TypeImageType      Type = "ImageType"
	TypePluginType     Type = "PluginType"
	TypePluginResource Type = "PluginResource"
	TypeProfile        Type = "Profile"
	TypeProgram        Type = "Program"
	TypeSchedule       Type = "Schedule"
	TypeSecret         Type = "Secret"
	TypeSite           Type = "Site"
	TypePolicy         Type = "Policy"
)

// Action is what a principal wants to do.
type Action string

// The actions of the schema.
const (
	List     Action = "list"
	Read     Action = "read"
	Create   Action = "create"
	Update   Action = "update"
	Delete   Action = "delete"
	Label    Action = "label"
	Operate  Action = "operate"
	Execute  Action = "execute"
	Exec     Action = "exec"
	Use      Action = "use"
	Approve  Action = "approve"
	GrantIt  Action = "grant"
	Admin    Action = "admin"
	Reveal   Action = "reveal"
	HostExec Action = "host:exec"
)

// Ref names an entity.
type Ref struct {
	Type Type
	ID   string
}

// String returns the name as Cedar writes it.
func (r Ref) String() string { return uid(r).String() }

// Principal is the author of a request.
type Principal struct {
	Type Type
	// ID is what attributes such as owner hold. For a token that is the id of its maker, and not this.
	ID     string
	Name   string
	Tenant string
	// Groups are the ids of all groups that the principal is in, directly or not, the built-in
	// ones included.
	Groups []string
	// Root passes every decision.
	Root bool
	// Maker is the principal that a token acts for: the token may do what both may. It is nil for
	// all others.
	Maker *Principal
}

func (p *Principal) in(group string) bool {
	for _, g := range p.Groups {
		if g == group {
			return true
		}
	}
	return false
}

// Operator reports whether the principal is above the policies of tenants.
func (p *Principal) Operator() bool { return p.in("operator") || p.in("superadmin") }

// Row holds the attributes and labels of one resource. It is asked only for those that policies read.
type Row interface {
	// Attribute returns a string, an int64, or a Price. An attribute of the schema that the row
	// does not know is "" or 0, or nil if it is optional.
	Attribute(name string) any
	// Labels returns the labels. They must not be changed.
	Labels() map[string]string
}

// Price is an amount in ten-thousandths.
type Price int64

// Resource is what a request is about.
type Resource struct {
	Ref
	// Tenant is "" for what belongs to the mesh itself.
	Tenant string
	// In are the cluster of a node, and the groups of a principal.
	In []Ref
	// Row is nil if there are no attributes but the tenant.
	Row Row
}

// Attributes is a Row of given values.
type Attributes struct {
	Values map[string]any
	Tags   map[string]string
}

// Attribute returns a value.
func (a *Attributes) Attribute(name string) any { return a.Values[name] }

// Labels returns the labels.
func (a *Attributes) Labels() map[string]string { return a.Tags }

// Context are the circumstances of a request, and what is asked for.
type Context struct {
	// Now is in Unix milliseconds.
	Now int64
	// Method is how the principal logged in, such as "local" or "token".
	Method string
	// Source is the address that the request comes from; the zero value is absent.
	Source netip.Addr
	// After is what is asked for by the actions that change or use something.
	After After
	// Label is the key of the label that the action label changes, and Value its new value; nil
	// removes it.
	Label string
	Value *string
}

// After is what a request asks for.
type After struct {
	Name, Template, Provider, HardwareType, ImageType string
	Size                                              int64
	Services                                          []string
	// Lease is in milliseconds; 0 has no end.
	Lease int64
}

// Request asks whether a principal may do something.
type Request struct {
	Principal *Principal
	Action    Action
	Resource  Resource
	Context   Context
}
