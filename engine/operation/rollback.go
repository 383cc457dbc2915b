package operation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// rollback prepares the return to a snapshot by undoing what was really done since
// (docs/spec/planner.md, "Transactions" 9). New nodes are deleted, new services removed,
// changed configurations restored, started services stopped, stopped services started, and
// deleted nodes made again. Nodes whose machines are gone are left to recovery.
func (p *Prepared) rollback(req Request, at Input, known model.Lookup) (*Prepared, error) {
	s, ok := at.Snapshot(req.To)
	if !ok {
		fs := model.Faults{}
		fs.Add(
			"to",
			fmt.Sprintf("cluster %s has no snapshot %d: `coopr cluster history %s` shows them", at.Cluster.Name, req.To, at.Cluster.Name),
		)
		return nil, fs
	}
	if s.Moment == model.MomentFailed && req.Follows == "" {
		fs := model.Faults{}
		fs.Add(
			"to",
			fmt.Sprintf(
				"snapshot %d was taken when operation %s failed, half done: choose one from before or after an operation",
				req.To,
				s.Operation,
			),
		)
		return nil, fs
	}
	then := s.State
	p.Cluster.Template, p.Cluster.Services, p.Cluster.Config = then.Template, then.Services, then.Config
	p.Cluster.Provider = withCredentials(then.Provider, known)
	p.Cluster.Definitions = map[string]model.Service{}
	// A service that leaves is stopped and removed by its own definition.
	for name, d := range at.Cluster.Definitions {
		p.Cluster.Definitions[name] = d
	}
	for name, d := range then.Definitions {
		p.Cluster.Definitions[name] = d
	}
	c := change{made: map[string]bool{}, back: s, gone: maps.Clone(at.Gone)}
	place := map[string]int{}
	for i := range p.Nodes {
		place[p.Nodes[i].ID] = i
		p.Nodes[i].Leaves = true // unless the snapshot has it
	}
	for _, old := range s.Nodes {
		i, stays := place[old.ID]
		if !stays {
			n := *old
			n.Created, n.States, n.Marks = false, nil, nil
			p.Nodes = append(p.Nodes, n)
			i = len(p.Nodes) - 1
		}
		backTo(&p.Nodes[i], old, &c)
	}
	slices.SortFunc(p.Nodes, func(a, b model.Node) int { return a.Number - b.Number })
	return p.converge(at, c)
}

// backTo sets a node's layout to that of its record in a snapshot, and its services to those of
// both records. Leaving has the services that the snapshot lacks.
func backTo(n, old *model.Node, c *change) {
	n.Leaves = false
	n.HardwareType, n.ImageType, n.Flavor, n.Image, n.SSHUser = old.HardwareType, old.ImageType, old.Flavor, old.Image, old.SSHUser
	n.Automators = union(n.Automators, old.Automators)
	n.Leaving = slices.DeleteFunc(slices.Clone(n.Services), func(s string) bool { return slices.Contains(old.Services, s) })
	if len(n.Leaving) == 0 {
		n.Leaving = nil
	}
	n.Services = union(n.Services, old.Services)
	if old.Created && (!n.Created || n.Broken) && !c.gone[n.ID] {
		c.made[n.ID] = true
	}
}
