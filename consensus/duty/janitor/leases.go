package janitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// endLeases starts the deletion of those clusters whose lease is over by now. Clusters with an operation under way are deleted after it.
func (j *Janitor) endLeases(ctx context.Context, clusters []*model.Cluster, now time.Time) (errs error) {
	for _, cl := range clusters {
		if cl.ExpiresAt == 0 || cl.ExpiresAt > now.UnixMilli() || cl.Status == model.ClusterTerminated || cl.Status == model.ClusterPending {
			continue
		}
		j.cfg.Logger.Info("deleting a cluster whose lease is over", "cluster", cl.ID, "name", cl.Name)
		err := j.cfg.Delete(ctx, cl)
		if now, ok := j.cfg.Machine.View().Cluster(cl.Tenant, cl.ID); err != nil && ok && now.ExpiresAt != cl.ExpiresAt {
			j.cfg.Logger.Info("a cluster is not deleted, as its lease was changed", "cluster", cl.ID, "name", cl.Name)
			continue
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

// warn puts on record which leases end soon, once for each end of a lease.
func (j *Janitor) warn(ctx context.Context, v *state.View, clusters []*model.Cluster, now time.Time) (errs error) {
	if !v.Understands(logformat.LeaseLevel) {
		return nil
	}
	for _, cl := range clusters {
		at := cl.WarnAt()
		if at == 0 || at > now.UnixMilli() || cl.ExpiresAt <= now.UnixMilli() || cl.WarnedOf == cl.ExpiresAt ||
			cl.Status == model.ClusterTerminated || ending(v, cl) {
			continue
		}
		c := logformat.WarnOfLease(cl.ID, cl.ExpiresAt, warning(cl))
		c.Tenant, c.Actor = cl.Tenant, model.Self
		if err := j.propose(ctx, c); err != nil && !errors.Is(err, problem.Stale) { // a stale one was changed, and the next sweep sees it
			errs = errors.Join(errs, fmt.Errorf("warn that the lease of cluster %s ends: %w", cl.ID, err))
		}
	}
	return errs
}

// ending reports whether a cluster is being deleted.
func ending(v *state.View, cl *model.Cluster) bool {
	op, ok := v.Operation(cl.Tenant, cl.Operation)
	return ok && op.Type == model.OpDelete && !op.Status.Ended()
}

// warning returns the message that the lease of a cluster ends soon.
func warning(cl *model.Cluster) string {
	m := fmt.Sprintf("the lease of cluster %s ends at %s, and the cluster is deleted then", cl.Name, model.LeaseTime(cl.ExpiresAt))
	switch most := cl.Prolongable(); {
	case most == 0:
		return m + "; its template does not allow to prolong the lease any more"
	case most > 0:
		return fmt.Sprintf("%s; to prolong the lease: coopr cluster lease %s --add TIME, at most %s", m, cl.Name, most)
	}
	return fmt.Sprintf("%s; to prolong the lease: coopr cluster lease %s --add TIME", m, cl.Name)
}
