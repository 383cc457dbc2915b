package clusters

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// clusterOrder registers an order about a cluster that is answered with the cluster. check returns the faults of the
// body; it may be nil.
func clusterOrder[B any](s *rest.Server, r rest.Route, check func(B) model.Faults,
	order func(context.Context, *rest.Call, rest.View, *model.Cluster, B) (api.Written, error),
) {
	r.Method, r.Tag = http.MethodPost, "clusters"
	rest.Write(s, r, func(ctx context.Context, c *rest.Call, in *struct {
		rest.ByCluster
		Body rest.Raw[B]
	}) (api.ClusterSummary, api.Written, error) {
		body, err := in.Body.Value()
		if err != nil {
			return api.ClusterSummary{}, api.Written{}, err
		}
		if check != nil {
			if faults := check(body); len(faults) > 0 {
				return api.ClusterSummary{}, api.Written{}, rest.Invalid(faults)
			}
		}
		v, done, err := s.Before(ctx, c)
		if err != nil {
			return api.ClusterSummary{}, api.Written{}, err
		}
		if done != nil {
			return orderedCluster(*done)
		}
		cl, err := c.Cluster(v, in.ID)
		if err != nil {
			return api.ClusterSummary{}, api.Written{}, err
		}
		w, err := order(ctx, c, v, cl, body)
		if err != nil {
			return api.ClusterSummary{}, w, err
		}
		return orderedCluster(w)
	})
}

// orderedCluster returns the answer to an order about a cluster.
func orderedCluster(w api.Written) (api.ClusterSummary, api.Written, error) {
	cl, err := rest.Wrote(w, w.Effect.Cluster)
	if err != nil {
		return api.ClusterSummary{}, w, err
	}
	var p api.ClusterProgress
	if op := w.Effect.Operation; op != nil {
		p = progressOf(op, w.Effect.Progress)
	}
	return summaryOf(&cl, w.Effect.Nodes, p), w, nil
}

// labelRoute registers the order to change labels of a cluster.
func labelRoute(s *rest.Server) {
	clusterOrder(
		s,
		rest.Route{ID: "labelCluster", Path: "/v1/clusters/{cluster}/labels", Summary: "Set and remove labels of a cluster"},
		checkLabels,
		func(ctx context.Context, c *rest.Call, v rest.View, cl *model.Cluster, l api.Labels) (api.Written, error) {
			if err := mayLabel(c, v, cl, l); err != nil {
				return api.Written{}, err
			}
			return s.Clusters.Label(ctx, c.Who, cl.ID, l.Set, l.Remove)
		},
	)
}

// checkLabels returns the faults of changes of labels.
func checkLabels(l api.Labels) model.Faults {
	faults := model.CheckLabels("set", l.Set)
	if len(l.Set) == 0 && len(l.Remove) == 0 {
		faults.Add("set", "is missing: give labels to set, or to remove")
	}
	if n := len(l.Remove); n > model.MaxLabels {
		faults.Add("remove", fmt.Sprintf("has %d keys: a cluster has at most %d labels", n, model.MaxLabels))
	}
	for i, key := range l.Remove {
		if _, both := l.Set[key]; both {
			faults.Add(fmt.Sprintf("remove[%d]", i), "is in set, too")
		}
	}
	return faults
}

// mayLabel returns nil if the caller may make each of the changes. v is nil for a cluster that is not there yet.
func mayLabel(c *rest.Call, v rest.View, cl *model.Cluster, l api.Labels) error {
	for _, key := range slices.Sorted(maps.Keys(l.Set)) {
		value := l.Set[key]
		if err := c.MayLabel(v, cl, key, &value); err != nil {
			return err
		}
	}
	for _, key := range l.Remove {
		if err := c.MayLabel(v, cl, key, nil); err != nil {
			return err
		}
	}
	return nil
}
