package clusters

import (
	"context"
	"math"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// leaseRoute registers the order to change the lease of a cluster.
func leaseRoute(s *rest.Server) {
	clusterOrder(
		s,
		rest.Route{
			ID: "changeLease", Path: "/v1/clusters/{cluster}/lease", Rule: rest.Rule{Planned: true},
			Summary: "Prolong the lease of a cluster, or end it earlier",
			Description: "The cluster is deleted when its lease ends. The template of the cluster may limit how far its lease is prolonged at " +
				"once, and altogether.",
		},
		checkLease,
		func(ctx context.Context, c *rest.Call, v rest.View, cl *model.Cluster, l api.Lease) (api.Written, error) {
			end := l.ExpiresAt
			if l.Add > 0 {
				switch {
				case cl.ExpiresAt == 0:
					return api.Written{}, problem.New(problem.Conflict, "the lease of cluster %s has no end: there is nothing to prolong", cl.Name)
				case int64(l.Add) > math.MaxInt64-cl.ExpiresAt:
					return api.Written{}, rest.Invalid(model.Faults{{Path: "add", Message: "is too long: there is no such date"}})
				}
				end = cl.ExpiresAt + int64(l.Add)
			}
			if err := rest.MayChangeLease(c, v, cl, end); err != nil {
				return api.Written{}, err
			}
			return s.Clusters.ChangeLease(ctx, c.Who, cl.ID, cl.ExpiresAt, end)
		},
	)
}

// checkLease returns the faults of a change of a lease.
func checkLease(l api.Lease) (fs model.Faults) {
	switch {
	case l.Add < 0:
		fs.Add("add", "must not be negative: write expireTime to end the lease earlier")
	case l.ExpiresAt < 0:
		fs.Add("expireTime", "must be a time in Unix milliseconds")
	case l.Add == 0 && l.ExpiresAt == 0:
		fs.Add("add", "is missing: write the time to add, such as 2h, or expireTime")
	case l.Add != 0 && l.ExpiresAt != 0:
		fs.Add("expireTime", "is there besides add: leave one of them away")
	}
	return fs
}
