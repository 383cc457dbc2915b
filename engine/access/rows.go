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

// Labels returns the cluster's labels.
func (r clusterRow) Labels() map[string]string { return r.c.Labels }
