package operation

import (
	"context"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// retries notes how the operation is tried again, where that was asked for.
func (p *Prepared) retries(req Request) {
	if req.Retries == 0 && len(req.Tried) == 0 {
		return
	}
	p.Operation.Retry = &model.Retry{
		Left: req.Retries, Tried: append(slices.Clone(req.Tried), p.Answer.Layout),
		Nodes: req.Nodes, HardwareType: req.HardwareType, ImageType: req.ImageType, Comparator: req.Comparator,
		Rollout: p.rollout,
	}
}

// Again returns the request that tries a failed operation again, with another layout than
// those that were tried; false: it is not to be tried again.
func Again(op *model.Operation) (Request, bool) {
	r := op.Retry
	if r == nil || r.Left == 0 {
		return Request{}, false
	}
	return Request{
		Type: op.Type, Services: op.Services, Follows: op.ID,
		Nodes: r.Nodes, HardwareType: r.HardwareType, ImageType: r.ImageType, Comparator: r.Comparator,
		Retries: r.Left - 1, Tried: r.Tried, Priority: op.Priority, Rollout: r.Rollout,
	}, true
}

// createAgain prepares the create of a cluster whose last layout failed: what
// there is of its nodes goes, and others come under numbers of their own.
func (p *Prepared) createAgain(ctx context.Context, req Request, at Input, known model.Lookup) (*Prepared, error) {
	services := p.services(known)
	in := p.solverInput(nil, services, known)
	in.Nodes, in.Wanted, in.Exclude = req.Nodes, p.Cluster.Services, req.Tried
	in.HardwareType, in.ImageType, in.Comparator = req.HardwareType, req.ImageType, req.Comparator
	in.Zones, in.Hosts = p.Cluster.Provider.Places()
	var err error
	if p.Answer, err = solver.Solve(ctx, in); err != nil {
		return nil, err
	}
	p.retries(req)
	c := change{gone: map[string]bool{}}
	for i := range p.Nodes {
		p.Nodes[i].Leaves = true
		c.gone[p.Nodes[i].ID] = true // nothing on it is worth an orderly end
	}
	if err := p.take(p.Answer, services, known, &c); err != nil {
		return nil, err
	}
	return p.converge(at, c)
}
