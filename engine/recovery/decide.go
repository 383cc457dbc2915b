package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// Input is the state of a cluster that a decision is based on. Decide does not change it.
type Input struct {
	Cluster *model.Cluster
	Nodes   []*model.Node
	// Health is by node id.
	Health map[string]*model.NodeHealth
	// Busy are the nodes that an operation has begun to work on and not finished, by id, with
	// the operation.
	Busy map[string]string
	// Main is the open operation that may change the layout, or "".
	Main string
	// Held says why nodes cannot be replaced before Main ends, by node id.
	Held map[string]string
	// Recovering is the number of nodes under recovery.
	Recovering int
	// Replaced is when the latest replacement began. Now is the current time. Both are in Unix
	// milliseconds.
	Replaced int64
	Now      int64
}

// Unit is a node and the services to restart on it.
type Unit struct {
	Node     string
	Services []string
}

// Wait is the reason why nothing is done for a node now.
type Wait struct {
	Node string
	Why  string
	// Until is when to decide again, in Unix milliseconds; 0: when something changes.
	Until int64
}

// Decision is what to do now. A replacement and restarts may come together. While an operation of the cluster is open, nodes are recreated:
// their machines are replaced, and no other node is touched.
type Decision struct {
	Restart  []Unit
	Replace  []string
	Recreate []string
	Waits    []Wait
}

// RetryAt returns when to decide again, in Unix milliseconds; 0: when something changes.
func (d *Decision) RetryAt() int64 {
	var at int64
	for _, w := range d.Waits {
		if w.Until > 0 && (at == 0 || w.Until < at) {
			at = w.Until
		}
	}
	return at
}

// dependencyGrace is how long, in milliseconds, a failing service waits for failing services
// that it depends on. It most probably recovers with them.
const dependencyGrace = 60_000

// decider holds one decision while it is made.
type decider struct {
	Input
	policy model.RecoveryPolicy
	out    Decision
	failed map[string][]failure // by service: where it fails
	gone   int
}

type failure struct {
	node   *model.Node
	gaveUp bool
}

// Decide returns what recovery does now. It considers the nodes in their order.
func Decide(s Input) Decision {
	d := &decider{Input: s, policy: s.Cluster.Template.RecoveryPolicy(), failed: map[string][]failure{}}
	for _, n := range s.Nodes {
		h := s.Health[n.ID]
		if h == nil {
			continue
		}
		if h.Machine == model.MachineGone {
			d.gone++
		}
		for _, svc := range d.failing(n, h) {
			d.failed[svc] = append(d.failed[svc], failure{n, h.GaveUp})
		}
	}
	free := d.policy.Most(len(s.Nodes)) - s.Recovering
	for _, n := range s.Nodes {
		h := s.Health[n.ID]
		if h == nil || n.Leaves {
			continue
		}
		services := d.failing(n, h)
		if h.Machine == "" && len(services) == 0 {
			continue
		}
		replace := d.permanent(h, services)
		why, until := d.mayNot(n, h, replace)
		if why == "" {
			if replace {
				why, until = d.mayNotReplace(n)
			} else if h.Machine == model.MachineGone {
				why = "its machine is gone, and the template's recovery replaces none"
			} else if half := d.halfMade(n, services); len(half) > 0 {
				why = fmt.Sprintf("%s cannot be started, as an operation left it half made: repeat the operation, or replace the node", words.And(half))
			} else {
				services = Restarts(d.services(n, services))
				why, until = d.waitsFor(n, h, services)
			}
		}
		if why == "" && free <= 0 {
			begun := len(d.out.Replace) + len(d.out.Recreate) + len(d.out.Restart)
			why = fmt.Sprintf("%d nodes are under recovery already: no more at once", s.Recovering+begun)
		}
		switch {
		case why != "":
			d.out.Waits = append(d.out.Waits, Wait{n.ID, why, until})
			continue
		case replace && d.Main != "":
			d.out.Recreate = append(d.out.Recreate, n.ID)
		case replace:
			d.out.Replace = append(d.out.Replace, n.ID)
		default:
			d.out.Restart = append(d.out.Restart, Unit{n.ID, services})
		}
		free--
	}
	return d.out
}

// failing returns the failing services of a node that recovery may restart.
func (d *decider) failing(n *model.Node, h *model.NodeHealth) []string {
	return slices.DeleteFunc(h.Failing(), func(s string) bool {
		def, ok := d.Cluster.Definitions[s]
		return !ok || !def.Runs() || h.Paused[s] != "" || !slices.Contains(n.Staying(), s)
	})
}

// halfMade returns those services of a node that a restart cannot repair, because what comes
// before their START was not done to the end.
func (d *decider) halfMade(n *model.Node, services []string) []string {
	return slices.DeleteFunc(slices.Clone(services), func(s string) bool {
		def, mark := d.Cluster.Definitions[s], n.Marks[s]
		_, configures := def.Provisioner.Actions[model.Configure.Key()]
		_, initializes := def.Provisioner.Actions[model.Initialize.Key()]
		initialized := mark.Initialized || !initializes
		switch n.States[s] {
		case model.Start.String(), model.Start.String() + "?", model.Stop.String(), model.Stop.String() + "?", model.Initialize.String():
			return true
		case model.Configure.String(), model.Configure.String() + "?":
			return initialized
		case model.Install.String():
			return initialized && !configures
		}
		return false
	})
}

// mayNot returns why nothing may be done for a node, which is to be replaced or not.
func (d *decider) mayNot(n *model.Node, h *model.NodeHealth, replace bool) (why string, until int64) {
	switch p := d.Cluster.RecoveryPaused; {
	case d.policy.Off:
		return "the template leaves recovery to people", 0
	case p != nil:
		return "recovery was paused by " + p.By, 0
	case h.GaveUp:
		return fmt.Sprintf("recovery gave up after %d attempts: restart or replace the node", h.Attempts), 0
	// mayNotReplace decides about the open operation if the machine is gone. A machine that is there may fail because of it.
	case d.Busy[n.ID] != "" && !(replace && h.Machine == model.MachineGone && d.Busy[n.ID] == d.Main):
		return "operation " + d.Busy[n.ID] + " is at work on it", 0
	case h.Next > d.Now:
		return fmt.Sprintf("attempt %d failed: the next is not due yet", h.Attempts), h.Next
	}
	return "", 0
}

// permanent reports whether the node is to be replaced.
func (d *decider) permanent(h *model.NodeHealth, services []string) bool {
	switch d.policy.Replace {
	case model.ReplaceNever:
		return false
	case model.ReplaceFailing:
		for _, s := range services {
			if h.Services[s].Since+int64(d.policy.PermanentAfter) <= d.Now && h.Attempts > 0 {
				return true
			}
		}
	}
	return h.Machine == model.MachineGone
}

// mayNotReplace returns why a node may not be replaced.
func (d *decider) mayNotReplace(n *model.Node) (why string, until int64) {
	switch {
	case d.gone > 1 && 2*d.gone > len(d.Nodes):
		return fmt.Sprintf("%d of %d machines seem gone: if they are, replace them yourself", d.gone, len(d.Nodes)), 0
	case d.Main != "" && d.Held[n.ID] != "":
		return d.Held[n.ID], 0
	case d.Replaced > 0 && d.Replaced+int64(d.policy.MinReplaceDelay) > d.Now:
		return "another node was replaced a moment ago", d.Replaced + int64(d.policy.MinReplaceDelay)
	}
	return "", 0
}

// waitsFor reports whether services wait for something that they depend on and that fails
// elsewhere.
func (d *decider) waitsFor(n *model.Node, h *model.NodeHealth, services []string) (why string, until int64) {
	since := int64(0)
	for _, s := range services {
		if v := h.Services[s]; v.Status == model.Unhealthy {
			since = max(since, v.Since)
		}
	}
	until = since + dependencyGrace
	if d.Now >= until {
		return "", 0
	}
	for _, s := range services {
		for _, on := range d.dependencies(s) {
			for _, f := range d.failed[on] {
				if f.node.ID != n.ID && !f.gaveUp {
					return fmt.Sprintf("%s depends on %s, which fails on %s", s, on, cmp.Or(f.node.Hostname, f.node.ID)), until
				}
			}
		}
	}
	return "", 0
}

// dependencies returns the services of the cluster that one needs at run time, over others
// too.
func (d *decider) dependencies(service string) []string {
	var out []string
	seen := map[string]bool{service: true}
	for next := []string{service}; len(next) > 0; next = next[1:] {
		for _, want := range d.Cluster.Definitions[next[0]].Dependencies.Runtime.Requires {
			for name, def := range d.Cluster.Definitions {
				if !seen[name] && (name == want || slices.Contains(def.Dependencies.Provides, want)) {
					seen[name] = true
					out, next = append(out, name), append(next, name)
				}
			}
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}

// services returns the input of Restarts: a node's services that run or fail, and are not paused.
func (d *decider) services(n *model.Node, failing []string) []Service {
	h := d.Health[n.ID]
	var out []Service
	for _, name := range n.Staying() {
		def, ok := d.Cluster.Definitions[name]
		if !ok || !def.Runs() || h.Paused[name] != "" {
			continue
		}
		s := Service{Name: name, Essential: def.IsEssential(), Failed: slices.Contains(failing, name)}
		switch n.States[name] {
		case model.Start.String(), model.Start.String() + "?":
			s.Running = true
		}
		if s.Running || s.Failed {
			out = append(out, s)
		}
	}
	return out
}
