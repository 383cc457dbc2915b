package orchestrate

import (
	"context"
	"errors"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
)

// EndLease starts the deletion of a cluster whose lease is over, as cl has it. The deletion is refused with problem.Conflict if a user
// prolonged the lease before the entry of the deletion in the log.
func (o *Orchestrator) EndLease(ctx context.Context, cl *model.Cluster) error {
	who := model.Caller{Tenant: cl.Tenant, Actor: model.Self, Role: model.RoleAdmin, Follows: true}
	for try := 1; ; try++ {
		p, err := o.prepare(ctx, who, cl.ID, operation.Request{Type: model.OpDelete}, "")
		if err != nil {
			return err
		}
		p.LeaseEnded = cl.ExpiresAt
		if _, err = o.start(ctx, who, p); !errors.Is(err, problem.Stale) || try >= stale {
			return err
		}
	}
}
