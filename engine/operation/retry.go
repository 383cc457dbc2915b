package operation

import (
	"context"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// retries records how the operation is tried again, if the request asks for that.
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

// Again returns the request that tries a failed operation again with another layout. It
// returns false if the operation is not to be tried again.
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

// createAgain prepares another attempt to create a cluster whose last layout failed. The
// existing nodes are deleted, and new nodes get new numbers.
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
		c.gone[p.Nodes[i].ID] = true // nothing on it needs to be stopped properly
	}
	if err := p.take(p.Answer, services, known, &c); err != nil {
		return nil, err
	}
	return p.converge(at, c)
}
