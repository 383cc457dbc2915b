package clusters

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

func historyRoutes(s *rest.Server) {
	const tag, one = "clusters", "/v1/clusters/{cluster}"
	rest.List(
		s,
		rest.Route{
			ID: "listClusterHistory", Order: "number",
			Path:    one + "/history",
			Tag:     tag,
			Summary: "List a cluster's snapshots, the oldest first",
		},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByCluster) ([]api.HistoryEntry, error) {
			cl, err := c.Cluster(v, in.ID)
			if err != nil {
				return nil, err
			}
			out := []api.HistoryEntry{}
			for _, s := range v.History(c.Who.Tenant, cl.ID) {
				e := api.HistoryEntry{
					Number: s.Number, Time: s.Time, Operation: s.Operation, Moment: s.Moment, Status: s.State.Status,
					Nodes: len(s.Nodes), Services: append([]string{}, s.State.Services...),
				}
				if op, ok := v.Operation(c.Who.Tenant, s.Operation); ok {
					e.Type, e.Actor = op.Type, op.Actor
				}
				out = append(out, e)
			}
			return out, nil
		},
	)
	rest.Read(
		s,
		rest.Route{ID: "getClusterSnapshot", Path: one + "/history/{number}", Tag: tag, Summary: "Get one snapshot of a cluster"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			rest.ByCluster
			Number int `path:"number" minimum:"1" doc:"The snapshot's number"`
		}) (model.Snapshot, error) {
			cl, err := c.Cluster(v, in.ID)
			if err != nil {
				return model.Snapshot{}, err
			}
			s, err := snapshotOf(c, v, cl, in.Number)
			if err != nil {
				return model.Snapshot{}, err
			}
			out := *s
			state := redact.For(v, c.Who.Tenant).Cluster(s.State)
			out.State, out.Nodes = &state, make([]*model.Node, len(s.Nodes))
			for i, n := range s.Nodes {
				node := redact.Node(n)
				out.Nodes[i] = &node
			}
			return out, nil
		},
	)
	rest.Read(
		s,
		rest.Route{
			ID:      "diffCluster",
			Path:    one + "/diff",
			Tag:     tag,
			Summary: "Compare two snapshots of a cluster; 0 is the present state",
		},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			rest.ByCluster
			From int `query:"from" minimum:"0" doc:"The earlier snapshot"`
			To   int `query:"to" minimum:"0" doc:"The later snapshot"`
		}) ([]api.Difference, error) {
			cl, err := c.Cluster(v, in.ID)
			if err != nil {
				return nil, err
			}
			var sides [2]map[string]any
			for i, number := range []int{in.From, in.To} {
				s, err := snapshotOf(c, v, cl, number)
				if err != nil {
					return nil, err
				}
				sides[i] = compared(redact.For(v, c.Who.Tenant), s)
			}
			out := []api.Difference{}
			differ("", sides[0], sides[1], &out)
			return out, nil
		},
	)
	clusterOrder(
		s,
		rest.Route{ID: "resolveCluster", Path: one + "/resolve", Summary: "Mark a failed cluster as repaired"},
		nil,
		func(ctx context.Context, c *rest.Call, _ rest.View, cl *model.Cluster, body api.OrderBody) (api.Written, error) {
			return s.Clusters.Resolve(ctx, c.Who, cl.ID, body.Reason)
		},
	)
}

// snapshotOf returns a snapshot, with the nodes that the caller may list; 0 is the present state of the cluster.
func snapshotOf(c *rest.Call, v rest.View, cl *model.Cluster, number int) (*model.Snapshot, error) {
	if number == 0 {
		return &model.Snapshot{State: cl, Nodes: c.Nodes(v, cl)}, nil
	}
	for _, s := range v.History(c.Who.Tenant, cl.ID) {
		if s.Number == number {
			visible := *s
			visible.Nodes = c.Listable(v, s.Nodes)
			return &visible, nil
		}
	}
	return nil, rest.NotFound("cluster %s has no snapshot %d", cl.Name, number)
}

// compared returns the parts of a snapshot that users compare, without the marks and counters
// that every operation changes.
func compared(r *redact.Redactor, s *model.Snapshot) map[string]any {
	cl := r.Cluster(s.State)
	out := map[string]any{
		"status": string(cl.Status), "services": cl.Services, "config": cl.Config,
		"template": map[string]any{"name": cl.Template.Name, "version": cl.Template.Version}, "provider": cl.Provider.Name,
	}
	versions, nodes := map[string]any{}, map[string]any{}
	for name, d := range cl.Definitions {
		versions[name] = d.Version
	}
	for _, n := range s.Nodes {
		name, _, _ := strings.Cut(n.Hostname, ".")
		nodes[name] = map[string]any{
			"hardwaretype": n.HardwareType,
			"imagetype":    n.ImageType,
			"services":     n.Services,
			"ipaddresses":  n.IPAddresses,
			"states":       n.States,
			"created":      n.Created,
		}
	}
	out["definitions"], out["nodes"] = versions, nodes
	return out
}

// differ adds the differences between two values, each with the longest possible path.
func differ(path string, a, b any, out *[]api.Difference) {
	ma, ok1 := object(a)
	mb, ok2 := object(b)
	if ok1 && ok2 {
		keys := map[string]bool{}
		for k := range ma {
			keys[k] = true
		}
		for k := range mb {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			sub := k
			if path != "" {
				sub = path + "." + k
			}
			differ(sub, ma[k], mb[k], out)
		}
		return
	}
	ja, err1 := json.Marshal(a)
	jb, err2 := json.Marshal(b)
	if err1 != nil || err2 != nil || string(ja) != string(jb) {
		*out = append(*out, api.Difference{Path: path, From: a, To: b})
	}
}

// object returns a map of any type as a map[string]any.
func object(v any) (map[string]any, bool) {
	switch m := v.(type) {
	case map[string]any:
		return m, true
	case map[string]string:
		out := map[string]any{}
		for k, v := range m {
			out[k] = v
		}
		return out, true
	}
	return nil, false
}
