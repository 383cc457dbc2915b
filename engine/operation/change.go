package operation

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/planner"
	"github.com/coopr/coopr/engine/solver"
)

// change describes a change of a cluster that the records of its nodes do not show.
type change struct {
	// made are the ids of nodes to be created or replaced.
	made map[string]bool
	// back is the snapshot to return to, or nil.
	back *model.Snapshot
	// local lets each node proceed on its own, so that nodes can take turns.
	local bool
	// quiet suppresses restarts because of a changed configuration.
	quiet bool
	// gone are nodes on whose machines nothing can be stopped any more. If such nodes are removed
	// or replaced, their machines are just deleted.
	gone map[string]bool
}

// relayout prepares an operation that changes the set of nodes or the services on them.
func (p *Prepared) relayout(ctx context.Context, req Request, at Input, known model.Lookup) (*Prepared, error) {
	victims, err := named("nodeNames", req.Victims, at)
	if err != nil {
		return nil, err
	}
	kind := map[model.OperationType]solver.ChangeKind{
		model.OpGrow: solver.Grow, model.OpShrink: solver.Shrink, model.OpAddServices: solver.AddServices,
		model.OpRemoveServices: solver.RemoveServices, model.OpReplaceNode: solver.Replace,
	}[req.Type]
	services := p.services(known)
	in := p.solverInput(at.Nodes, services, known)
	in.Comparator, in.HardwareType, in.ImageType = req.Comparator, req.HardwareType, req.ImageType
	in.Change = solver.Change{Kind: kind, Services: req.Services, Nodes: req.Nodes, Victims: victims}
	in.Exclude = req.Tried
	if kind != solver.Replace && kind != solver.RemoveServices {
		in.Zones, in.Hosts = p.Cluster.Provider.Places()
	}
	if p.Answer, err = solver.Solve(ctx, in); err != nil {
		return nil, err
	}
	p.retries(req)
	var c change
	if err := p.take(p.Answer, services, known, &c); err != nil {
		return nil, err
	}
	c.gone = maps.Clone(at.Gone)
	if kind == solver.Replace || kind == solver.Shrink {
		p.about(&c, req, victims)
	}
	if err := p.mayDecommission(); err != nil {
		return nil, err
	}
	return p.converge(at, c)
}

// about records the nodes that a replacement or a shrink is about.
func (p *Prepared) about(c *change, req Request, victims []string) {
	named := map[string]bool{}
	if req.Type == model.OpReplaceNode {
		c.made = named
		for i := range p.Nodes {
			if n := &p.Nodes[i]; slices.Contains(victims, n.ID) {
				n.Leaves, n.Leaving = false, nil // a rollback that failed was to remove it
			}
		}
	} else {
		victims = p.Answer.Removed
	}
	if c.gone == nil {
		c.gone = map[string]bool{}
	}
	for _, id := range victims {
		named[id] = true
		c.gone[id] = c.gone[id] || req.Forced
	}
	if p.apart || req.Forced && req.Type == model.OpReplaceNode {
		p.only = named
	}
}

// services returns the definitions that a change may refer to: those that the cluster was
// built from, and the newest versions of all others.
func (p *Prepared) services(known model.Lookup) map[string]model.Service {
	services := lookupAll[model.Service](known, model.KindService)
	maps.Copy(services, p.Cluster.Definitions)
	return services
}

// solverInput returns the input that every change has in common. It leaves out zones and
// hosts. An operation that neither places nor chooses nodes is therefore not refused for an
// uneven spread, for example the replacement of nodes that were lost with their zone.
func (p *Prepared) solverInput(nodes []*model.Node, services map[string]model.Service, known model.Lookup) solver.Input {
	in := solver.Input{
		Template: p.Cluster.Template, Provider: p.Cluster.Provider.Name, Services: services,
		HardwareTypes: slices.Collect(maps.Values(lookupAll[model.HardwareType](known, model.KindHardwareType))),
		ImageTypes:    slices.Collect(maps.Values(lookupAll[model.ImageType](known, model.KindImageType))),
	}
	for _, n := range nodes {
		in.Existing = append(in.Existing, solver.ExistingNode{
			ID: n.ID, Number: n.Number, HardwareType: n.HardwareType, ImageType: n.ImageType, Services: n.Services,
			Zone: n.Zone, Host: n.Host,
		})
	}
	return in
}

// take applies the solver's answer to the records.
func (p *Prepared) take(a *solver.Answer, services map[string]model.Service, known model.Lookup, c *change) error {
	p.Cluster.Definitions = maps.Clone(p.Cluster.Definitions)
	for _, s := range a.Services {
		p.Cluster.Definitions[s] = services[s]
	}
	p.Cluster.Services = a.Services
	byID := map[string]*model.Node{}
	for i := range p.Nodes {
		byID[p.Nodes[i].ID] = &p.Nodes[i]
	}
	for _, ch := range a.Changed {
		n := byID[ch.ID]
		n.Services = union(n.Services, ch.Add)
		n.Leaving = union(n.Leaving, ch.Remove)
		n.Automators = union(n.Automators, automatorsOf(&p.Cluster, ch.Add))
	}
	for _, id := range a.Removed {
		if byID[id] != nil && p.Operation.Type != model.OpReplaceNode {
			byID[id].Leaves = true
		}
	}
	if p.Operation.Type == model.OpReplaceNode {
		return nil // the new node continues the old node's record
	}
	nodes, err := newNodes(&p.Cluster, a, a.New, known)
	if err != nil {
		return err
	}
	if c.made == nil {
		c.made = map[string]bool{}
	}
	for _, n := range nodes {
		c.made[n.ID] = true
	}
	p.Nodes = append(p.Nodes, nodes...)
	return nil
}

// mayDecommission refuses to remove services whose definitions forbid it (docs/spec/plans.md
// §10).
func (p *Prepared) mayDecommission() error {
	stays := func(service string) bool {
		allow := p.Cluster.Definitions[service].AllowDecommission
		return allow != nil && !*allow
	}
	var fs model.Faults
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if p.apart && !p.only[n.ID] {
			continue
		}
		goes := n.Leaving
		if n.Leaves {
			goes = n.Services
		}
		if s := slices.IndexFunc(goes, stays); s >= 0 {
			fs.Add(
				"",
				fmt.Sprintf(
					"service %s would be taken off node %s, and its definition has \"allow-decommission\": false: "+
						"choose other nodes, or change the definition and upgrade the service first",
					goes[s],
					n.ShortName(),
				),
			)
		}
	}
	return fs.Err()
}

// union returns the names of both lists, sorted and without duplicates.
func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// upgrade moves services to their newest definitions, where these differ from the definitions
// that the cluster was built from.
func (p *Prepared) upgrade(ctx context.Context, req Request, at Input, known model.Lookup) (*Prepared, error) {
	asked := req.Services
	if len(asked) == 0 {
		asked = p.Cluster.Services
	}
	newest := lookupAll[model.Service](known, model.KindService)
	var fs model.Faults
	for i, s := range asked {
		if _, ok := newest[s]; !ok && len(req.Services) > 0 {
			fs.Add(fmt.Sprintf("services[%d]", i), fmt.Sprintf("there is no definition of service %q any more", s))
		}
	}
	if err := fs.Err(); err != nil {
		return nil, err
	}
	c := change{local: true}
	p.renew(asked, newest)
	services := p.services(known)
	maps.Copy(services, p.Cluster.Definitions)
	in := p.solverInput(at.Nodes, services, known)
	in.Change.Kind = solver.Retemplate
	var err error
	if p.Answer, err = solver.Solve(ctx, in); err != nil {
		return nil, err
	}
	return p.converge(at, c)
}

// renew takes newer definitions of services, which are then installed again on every node that
// carries them.
func (p *Prepared) renew(services []string, newest map[string]model.Service) {
	was := p.Cluster.Definitions
	p.Cluster.Definitions = maps.Clone(was)
	for _, s := range services {
		d, ok := newest[s]
		if !ok {
			continue
		}
		if p.Cluster.Definitions[s] = d; model.SameService(was[s], d) {
			continue // nothing of it is on the nodes
		}
		for i := range p.Nodes {
			if n := &p.Nodes[i]; slices.Contains(n.Services, s) {
				n.Automators = union(n.Automators, automatorsOf(&p.Cluster, []string{s}))
			}
		}
	}
}

// syncTemplate brings a cluster to the versions of its template and services that are known: other
// definitions, new defaults of the configuration where the cluster still has the old ones, and
// services that are new defaults.
func (p *Prepared) syncTemplate(ctx context.Context, req Request, at Input, known model.Lookup) (*Prepared, error) {
	was := p.Cluster.Template
	d, ok := known.Definition(model.KindClusterTemplate, was.Name)
	if !ok {
		return nil, missing("clusterTemplate", "cluster template", was.Name, known.Names(model.KindClusterTemplate))
	}
	tpl, err := model.ResolveTemplate(*d.Value.(*model.ClusterTemplate), known)
	if err != nil {
		return nil, err
	}
	p.Cluster.Template = tpl
	p.Cluster.Config = model.RebaseConfig(model.EffectiveDefaults(was.Defaults), model.EffectiveDefaults(tpl.Defaults), p.Cluster.Config)
	if req.Config != nil {
		p.Cluster.Config = model.CombineConfig(p.Cluster.Config, req.Config, req.ConfigMode)
		p.Operation.Config = p.Cluster.Config
	}
	c := change{local: true}
	services := lookupAll[model.Service](known, model.KindService)
	p.renew(p.Cluster.Services, services)
	for name, d := range p.Cluster.Definitions {
		services[name] = d
	}
	in := p.solverInput(at.Nodes, services, known)
	in.Change = solver.Change{Kind: solver.Retemplate}
	if add := p.becameDefault(was, tpl); len(add) > 0 {
		in.Change = solver.Change{Kind: solver.AddServices, Services: add}
		in.Zones, in.Hosts = p.Cluster.Provider.Places()
		c.local = false
	}
	if p.Answer, err = solver.Solve(ctx, in); err != nil {
		return nil, err
	}
	if err := p.take(p.Answer, services, known, &c); err != nil {
		return nil, err
	}
	return p.converge(at, c)
}

// becameDefault returns the default services of a template that were not defaults before and
// are not on the cluster.
func (p *Prepared) becameDefault(was, is model.ClusterTemplate) []string {
	var out []string
	for _, s := range is.Defaults.Services {
		old := slices.ContainsFunc(was.Defaults.Services, func(o model.DefaultService) bool { return o.Name == s.Name })
		if !old && !slices.Contains(p.Cluster.Services, s.Name) {
			out = append(out, s.Name)
		}
	}
	return out
}

// converge plans the tasks that bring the cluster from its current state to that of the
// records.
func (p *Prepared) converge(at Input, c change) (*Prepared, error) {
	c.made = maps.Clone(c.made)
	for i := range p.Nodes {
		// Such a node is replaced, so its address changes.
		if n := &p.Nodes[i]; n.Created && n.Broken && !n.Leaves && !c.gone[n.ID] && !p.apart {
			if c.made == nil {
				c.made = map[string]bool{}
			}
			c.made[n.ID] = true
		}
	}
	p.moveOn(at, c)
	assignPlaces(&p.Cluster, p.Nodes, func(n *model.Node) bool { return c.made[n.ID] })
	nodes := pointers(p.Nodes)
	after, err := expand(&p.Cluster, nodes, c.made)
	if err != nil {
		return nil, err
	}
	d := newDifferences(p, at, c, after)
	diff := planner.Diff(d.from(at.Nodes), d.to(nodes), d.definition)
	p.leaveOnce(&diff, nodes, c.made)
	if err := p.follow(&diff, at); err != nil {
		return nil, err
	}
	p.leaveOut(&diff, c, d.leaves)
	p.turns = c.local || p.Operation.Type == model.OpConfigure && p.rollout.Strategy != ""
	in := planner.Input{
		Operation: planner.OpConverge, Services: able(&p.Cluster, nodes), Previous: previous(&p.Cluster),
		NodeLocal: p.turns, Wanted: diff.Wanted, Reconfigure: diff.Reconfigure,
	}
	if c.quiet {
		in.Services = maps.Clone(in.Services)
		no := false
		for name, s := range in.Services {
			s.RestartOnConfigure = &no
			in.Services[name] = s
		}
	}
	had := map[string]*model.Node{}
	for _, n := range at.Nodes {
		had[n.ID] = n
	}
	for _, n := range nodes {
		in.Nodes = append(in.Nodes, planner.Node{ID: n.ID, Number: n.Number, Services: n.Services, States: n.States, Created: n.Created})
		if had[n.ID] == nil || !reflect.DeepEqual(n, had[n.ID]) {
			p.Write = append(p.Write, *n)
		}
	}
	if len(c.made) > 0 {
		in.GatherFrom = slices.DeleteFunc(after.gather(nodes), func(id string) bool { return !c.made[id] })
		in.Gather = len(in.GatherFrom) > 0
	}
	if p.Graph, err = planned(in); err != nil {
		return nil, err
	}
	if p.Graph, err = p.withOwn(p.Graph, c.gone); err != nil {
		return nil, err
	}
	if err := p.takeOver(at.Superseded); err != nil {
		return nil, err
	}
	return p.grouped()
}

// leaveOut removes from a difference the nodes that the operation does not touch: nodes whose
// machines are gone, unless they are removed or replaced, and, if the operation is about certain
// nodes only, all other nodes.
func (p *Prepared) leaveOut(d *planner.Difference, c change, leaves map[string]bool) {
	for i := range p.Nodes {
		id := p.Nodes[i].ID
		switch {
		case c.gone[id] && !c.made[id] && !leaves[id]:
			p.Operation.Skipped = append(p.Operation.Skipped, id)
			delete(d.Reconfigure, id)
			delete(d.Wanted, id)
		case p.apart && !p.only[id]:
			delete(d.Wanted, id)
		}
	}
}

// leaveOnce removes from a difference the services with goal ONCE that have been started:
// neither a new configuration nor a new definition starts them again (docs/spec/plans.md §7).
func (p *Prepared) leaveOnce(d *planner.Difference, nodes []*model.Node, made map[string]bool) {
	for name, def := range p.Cluster.Definitions {
		if def.Goal != model.GoalOnce {
			continue
		}
		for _, n := range nodes {
			if n.States[name] != model.Start.String() || made[n.ID] || n.Leaves || slices.Contains(n.Leaving, name) {
				continue
			}
			d.Reconfigure[n.ID] = slices.DeleteFunc(d.Reconfigure[n.ID], func(s string) bool { return s == name })
			if w, ok := d.Wanted[n.ID]; ok {
				w.Services = maps.Clone(w.Services)
				delete(w.Services, name)
				d.Wanted[n.ID] = w
			}
		}
	}
}

// Does returns the actions of the plan that concern a node as a whole.
func (p *Prepared) Does(node string) map[model.Action]bool {
	if p.does == nil {
		p.does = map[string]map[model.Action]bool{}
		for v, a := range p.Graph.Action {
			if a.PerNode() {
				id := p.Graph.NodeID(v)
				if p.does[id] == nil {
					p.does[id] = map[model.Action]bool{}
				}
				p.does[id][a] = true
			}
		}
	}
	return p.does[node]
}
