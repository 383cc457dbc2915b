package apitest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// view implements server.View for one state.
type view struct{ *state }

func (v view) Index() uint64 { return v.state.Index }

func (v view) Tenants() []model.Tenant {
	return slices.SortedFunc(maps.Values(v.state.Tenants), func(a, b model.Tenant) int { return cmp.Compare(a.Name, b.Name) })
}

func (v view) Tenant(name string) (model.Tenant, bool) {
	t, ok := v.state.Tenants[name]
	return t, ok
}

func (v view) Tokens(tenant string) []model.Token {
	var out []model.Token
	for _, t := range v.state.Tokens {
		if t.Tenant == tenant {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b model.Token) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (v view) Definitions(tenant string, kind model.Kind) []model.StoredDefinition {
	var out []model.StoredDefinition
	for key, versions := range v.Defs {
		if strings.HasPrefix(key, tenant+"/"+string(kind)+"/") && len(versions) > 0 {
			out = append(out, versions[len(versions)-1])
		}
	}
	slices.SortFunc(out, func(a, b model.StoredDefinition) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (v view) Definition(tenant string, kind model.Kind, name string, version int) (model.StoredDefinition, bool) {
	versions := v.Defs[defKey(tenant, kind, name)]
	for i := len(versions) - 1; i >= 0; i-- {
		if version == 0 || versions[i].Version == version {
			return versions[i], true
		}
	}
	return model.StoredDefinition{}, false
}

func (v view) Versions(tenant string, kind model.Kind, name string) []model.StoredDefinition {
	return v.Defs[defKey(tenant, kind, name)]
}

func (v view) Clusters(tenant string) []*model.Cluster {
	var out []*model.Cluster
	for _, c := range v.state.Clusters {
		if c.Tenant == tenant {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *model.Cluster) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (v view) Cluster(tenant, idOrName string) (*model.Cluster, bool) {
	if c, ok := v.state.Clusters[idOrName]; ok && c.Tenant == tenant {
		return c, true
	}
	var found *model.Cluster
	for _, c := range v.Clusters(tenant) {
		if c.Name == idOrName && c.Status != model.ClusterTerminated {
			if found != nil {
				return nil, false
			}
			found = c
		}
	}
	return found, found != nil
}

func (v view) Nodes(tenant, cluster string) []*model.Node {
	if c, ok := v.state.Clusters[cluster]; !ok || c.Tenant != tenant {
		return nil
	}
	return v.state.Nodes[cluster]
}

func (v view) Node(tenant, id string) (*model.Node, bool) {
	for _, nodes := range v.state.Nodes {
		for _, n := range nodes {
			if n.ID == id && n.Tenant == tenant {
				return n, true
			}
		}
	}
	return nil, false
}

// History returns a cluster's snapshots.
func (v view) History(tenant, cluster string) []*model.Snapshot {
	return v.Past[tenant+"/"+cluster]
}

func (v view) Operations(tenant, cluster string) []*model.Operation {
	var out []*model.Operation
	for _, op := range slices.Backward(v.Ops) {
		if op.Tenant == tenant && (cluster == "" || op.Cluster == cluster) {
			out = append(out, op)
		}
	}
	return out
}

func (v view) Operation(tenant, id string) (*model.Operation, bool) {
	for _, op := range v.Ops {
		if op.ID == id && op.Tenant == tenant {
			return op, true
		}
	}
	return nil, false
}

func (v view) Progress(_, operation string) model.Progress {
	p := model.Progress{Counts: map[string]int{}}
	for _, t := range v.state.Tasks[operation] {
		p.Total++
		p.Counts[t.Status.String()]++
		if t.Status.Ended() {
			p.Done++
		}
	}
	return p
}

func (v view) Tasks(_, operation, status string, offset, limit int) ([]model.Task, int) {
	var all []model.Task
	for _, t := range v.state.Tasks[operation] {
		if status == "" || t.Status.String() == status {
			all = append(all, t)
		}
	}
	total := len(all)
	all = all[min(offset, total):]
	if limit > 0 {
		all = all[:min(limit, len(all))]
	}
	return all, total
}

func (v view) Task(tenant, id string) (model.Task, bool) {
	for op, tasks := range v.state.Tasks {
		for _, t := range tasks {
			if t.ID == id && tenantOf(v.state, op) == tenant {
				return t, true
			}
		}
	}
	return model.Task{}, false
}

func (v view) Agents() []model.Agent           { return v.state.Agents }
func (v view) PluginTypes() []model.PluginType { return v.Types }

// Links returns the links of the cluster's template. The only macro is %cluster%, the cluster's
// name. It has a value only while the cluster is active.
func (v view) Links(c *model.Cluster) []model.Link {
	var out []model.Link
	for _, l := range c.Template.Links {
		if c.Status == model.ClusterActive {
			out = append(out, model.Link{Label: l.Label, URL: strings.ReplaceAll(l.URL, "%cluster%", c.Name)})
		}
	}
	return out
}
