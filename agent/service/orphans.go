package service

import (
	"context"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Orphans finds and removes machines that belong to no node.
type Orphans struct {
	Supervisor Supervisor
}

// Report returns the result of the last search, or with search of a new one.
func (o *Orphans) Report(ctx context.Context, search bool) (model.OrphanReport, error) {
	_, l, err := leader(o.Supervisor)
	if err != nil {
		return model.OrphanReport{}, err
	}
	if !search {
		return l.Orphans.Report(), nil
	}
	return l.Orphans.Find(ctx)
}

// Remove removes a machine that the last search found.
func (o *Orphans) Remove(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	_, l, err := leader(o.Supervisor)
	if err != nil {
		return api.Written{}, err
	}
	index, err := l.Orphans.Remove(ctx, who, id, "asked for")
	return api.Written{Index: index}, err
}
