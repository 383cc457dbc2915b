package agent

import (
	"context"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// Orphans gives what was found last, or with look asks the providers now.
func (b *backend) Orphans(ctx context.Context, look bool) (model.OrphanReport, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return model.OrphanReport{}, problem.NoLeader
	}
	if !look {
		return l.Orphans.Report(), nil
	}
	return l.Orphans.Look(ctx)
}

// RemoveOrphan removes one of those that were found last.
func (b *backend) RemoveOrphan(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	_, l, ok := b.supervisor.Leader()
	if !ok {
		return api.Written{}, problem.NoLeader
	}
	index, err := l.Orphans.Remove(ctx, who, id, "asked for")
	return api.Written{Index: index}, err
}
