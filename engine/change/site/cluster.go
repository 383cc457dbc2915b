package site

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
)

// Carries reports whether a service of a cluster has change objects.
func Carries(cl *model.Cluster) bool {
	for _, s := range cl.Definitions {
		if len(s.Changes) > 0 {
			return true
		}
	}
	return false
}

// OfCluster returns the site that keeps a cluster in shape. For every node and every service
// that is started on it, it has the service's objects, named NODE/SERVICE/NAME. A dependency
// on an object of another node's service becomes one dependency for each of these nodes. The
// error names the contents whose macros cannot be expanded.
func OfCluster(name string, cl *model.Cluster, nodes []*model.Node) (*Document, error) {
	d := &Document{
		Name:          name,
		Description:   "change objects of the services of cluster " + cl.Name,
		CheckInterval: clusterCheckInterval,
		Objects:       []Object{},
	}
	runs := func(n *model.Node, service string) bool {
		return n.Confirmed && !n.Leaves && n.States[service] == model.Start.String() && slices.Contains(n.Services, service) &&
			!slices.Contains(n.Leaving, service)
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b *model.Node) int { return a.Number - b.Number })
	known := make([]macro.Node, 0, len(nodes))
	for _, n := range nodes {
		if !n.Leaves {
			known = append(known, macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Staying()})
		}
	}
	macros := macro.NewCluster(cl.Owner, known)
	var faults []error
	// found returns the objects that a name refers to.
	found := func(n *model.Node, service, name string) []string {
		if s, rest, ok := strings.Cut(name, "/"); ok {
			if _, known := cl.Definitions[s]; known {
				service, name = s, rest
			}
		}
		if !slices.ContainsFunc(cl.Definitions[service].Changes, func(o model.ChangeObject) bool { return o.Name == name }) {
			return []string{service + "/" + name} // the compiler reports the missing object
		}
		if runs(n, service) {
			return []string{n.ShortName() + "/" + service + "/" + name}
		}
		var out []string
		for _, other := range nodes {
			if runs(other, service) {
				out = append(out, other.ShortName()+"/"+service+"/"+name)
			}
		}
		return out
	}
	for _, n := range nodes {
		for _, service := range n.Services {
			if !runs(n, service) {
				continue
			}
			for _, c := range cl.Definitions[service].Changes {
				if c.CheckInterval > 0 {
					d.CheckInterval = min(d.CheckInterval, c.CheckInterval)
				}
				o := Object{
					Name:      n.ShortName() + "/" + service + "/" + c.Name,
					Host:      "node:" + cl.ID + "/" + n.ShortName(),
					Type:      c.Type,
					Preferred: c.Preferred,
					Actions:   c.Actions,
				}
				var err error
				if c.Content != nil {
					if o.Content, err = macro.ExpandConfig(c.Content, macro.Context{Cluster: macros, Self: n.Number}); err != nil {
						faults = append(faults, fmt.Errorf("%s: %w", o.Name, err))
					}
				}
				for _, r := range c.Requires {
					for _, on := range found(n, service, r.Object) {
						o.Requires = append(o.Requires, Requirement{To: r.To, From: r.From, Object: on, State: r.State})
					}
				}
				for _, h := range c.Holds {
					for _, on := range found(n, service, h.Object) {
						o.Holds = append(o.Holds, Holding{State: h.State, Object: on, In: h.In})
					}
				}
				d.Objects = append(d.Objects, o)
			}
		}
	}
	return d, errors.Join(faults...)
}

// clusterCheckInterval is how often the objects of clusters are checked for drift, in
// milliseconds, unless an object says otherwise.
const clusterCheckInterval = 30_000
