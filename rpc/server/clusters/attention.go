package clusters

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// mostWaits is how many of the things that wait for a person are named.
const mostWaits = 20

func attentionRoute(s *rest.Server) {
	rest.Read(s, rest.Route{
		ID: "getAttention", Path: "/v1/attention", Tag: "clusters", Rule: rest.Rule{AllTenants: true},
		Summary: "Count the clusters that need attention, and what waits for a person",
	}, func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) (api.Attention, error) {
		out := api.Attention{Hold: v.Hold()}
		visible := map[string]*model.Cluster{}
		for cl := range c.Clusters(v, "") {
			if cl.Status == model.ClusterTerminated {
				continue
			}
			visible[cl.ID] = cl
			out.Clusters++
			nodes := v.Nodes(cl.Tenant, cl.ID)
			failed := latestFailed(v, cl)
			if failed {
				out.Failed++
			}
			if failed || ill(cl, nodes) {
				out.Ill++
			}
			if cl.Status == model.ClusterFailed {
				waits(&out, api.Waiting{Tenant: cl.Tenant, Cluster: cl.Name,
					Reason: "the cluster failed and its rollback failed, too: repair it, and say so with coopr cluster resolve"})
			}
			for _, n := range nodes {
				if h := n.Health; h != nil && h.GaveUp {
					waits(&out, api.Waiting{Tenant: cl.Tenant, Cluster: cl.Name, Node: n.ID,
						Reason: "recovery has given up after " + words.Count(h.Attempts, "attempt")})
				}
			}
		}
		for _, op := range v.ActiveOperations() {
			cl := visible[op.Cluster]
			if cl == nil {
				continue
			}
			if why := waitsBecause(v, op); why != "" {
				waits(&out, api.Waiting{Tenant: cl.Tenant, Cluster: cl.Name, Operation: op.ID, Reason: why})
			}
		}
		return out, nil
	})
}

func waits(out *api.Attention, w api.Waiting) {
	if out.Waiting++; len(out.Waits) < mostWaits {
		out.Waits = append(out.Waits, w)
	}
}

// waitsBecause returns why an operation waits for a person, or "".
func waitsBecause(v rest.View, op *model.Operation) string {
	switch op.Status {
	case model.OpPaused:
		if op.Message != "" {
			return fmt.Sprintf("%s is paused: %s", op.Type, op.Message)
		}
		return fmt.Sprintf("%s is paused", op.Type)
	case model.OpRunning:
		if t, ok := v.PlanTree(op.Tenant, op.ID); ok && t.Status() == tree.Waiting {
			return fmt.Sprintf("the plan of %s waits to be continued", op.Type)
		}
	}
	return ""
}

// needsAttention reports whether a cluster is listed as unhealthy.
func needsAttention(v rest.View, cl *model.Cluster) bool {
	return cl.Status != model.ClusterTerminated && (latestFailed(v, cl) || ill(cl, v.Nodes(cl.Tenant, cl.ID)))
}

// latestFailed reports whether the latest operation of a cluster has failed, and nobody has resolved that since.
func latestFailed(v rest.View, cl *model.Cluster) bool {
	op, ok := v.Operation(cl.Tenant, cl.Operation)
	return ok && op.Status == model.OpFailed && cl.Status != model.ClusterActive
}

// ill reports whether a cluster is not as it should be, whatever its latest operation did.
func ill(cl *model.Cluster, nodes []*model.Node) bool {
	switch cl.Status {
	case model.ClusterIncomplete, model.ClusterInconsistent, model.ClusterFailed:
		return true
	}
	return model.HealthOf(nodes) == string(model.Unhealthy)
}
