package access

import "github.com/coopr/coopr/engine/model"

// clusterRow lets policies read a cluster.
type clusterRow struct {
	c    *model.Cluster
	size func() int
}

// OfCluster returns a cluster as a resource. size is called only if a policy reads the number of nodes.
func OfCluster(c *model.Cluster, size func() int) Resource {
	return Resource{Ref: Ref{TypeCluster, c.ID}, Tenant: c.Tenant, Row: clusterRow{c, size}}
}

// Attribute returns an attribute of the cluster.
func (r clusterRow) Attribute(name string) any {
	switch name {
	case "owner":
		return r.c.Owner
	case "name":
		return r.c.Name
	case "size":
		return int64(r.size())
	case "template":
		return r.c.Template.Name
	case "provider":
		return r.c.Provider.Name
	case "status":
		return string(r.c.Status)
	}
	return nil
}

// After returns the cluster as it is, for orders that do not change it.
func (r clusterRow) After() After { return AfterOf(r.c, r.size()) }

// AfterOf returns what a cluster of a number of nodes is, for policies that read what is asked for.
func AfterOf(c *model.Cluster, size int) After {
	return After{Name: c.Name, Template: c.Template.Name, Provider: c.Provider.Name, Size: int64(size), Services: c.Services}
}

// Labels returns the cluster's labels.
func (r clusterRow) Labels() map[string]string { return r.c.Labels }

// OfNode returns a node as a resource. owner returns the owner of its cluster.
func OfNode(n *model.Node, owner func() string) Resource {
	row := func(attribute string) any {
		switch attribute {
		case "owner":
			return owner()
		case "name":
			return n.Hostname
		}
		return nil
	}
	return Resource{Ref: Ref{TypeNode, n.ID}, Tenant: n.Tenant, In: []Ref{{TypeCluster, n.Cluster}}, Row: RowFunc(row)}
}

// RowFunc is a Row without labels.
type RowFunc func(name string) any

// Attribute calls the function.
func (f RowFunc) Attribute(name string) any { return f(name) }

// Labels returns nil.
func (RowFunc) Labels() map[string]string { return nil }

// Named returns a resource of a tenant that has no attributes but its name.
func Named(on Type, tenant, name string) Resource {
	row := func(attribute string) any {
		if attribute == "name" {
			return name
		}
		return nil
	}
	return Resource{Ref: Ref{on, tenant + "/" + name}, Tenant: tenant, Row: RowFunc(row)}
}
