package watch

import (
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// machineEvery is how often a machine is probed if no service on it is watched. doubtEvery is how
// often it is probed if an operation failed there, so that it may be gone.
const (
	machineEvery = 5 * time.Minute
	doubtEvery   = 30 * time.Second
)

// orders are the watches that workers have to begin or drop.
type orders map[*worker]*order

type order struct {
	watches []*pb.Watch
	drop    []string
}

func (o orders) of(x *worker) *order {
	if o[x] == nil {
		o[x] = &order{}
	}
	return o[x]
}

// sendAll sends the orders of refreshed clusters.
func (w *Controller) sendAll() {
	w.carryOut(w.out)
	clear(w.out)
}

func (w *Controller) carryOut(out orders) {
	for x, o := range out {
		w.send(x, o.watches, o.drop, false)
	}
}

// refresh updates the watches of a cluster. cl is nil if the cluster no longer exists, or must not be watched.
func (w *Controller) refresh(v *state.View, id string, cl *model.Cluster, out orders) {
	had, has := w.clusters[id], map[string]*want{}
	if cl != nil {
		has = w.wants(v, cl)
	}
	for key, t := range had {
		if has[key] == nil && t.owner != nil {
			o := out.of(t.owner)
			o.drop = append(o.drop, key)
		}
	}
	for key, t := range has {
		old := had[key]
		if old != nil {
			t.owner = old.owner
			if same(old, t) {
				continue
			}
		}
		w.assign(v, t, out, true)
	}
	if len(has) == 0 {
		delete(w.clusters, id)
	} else {
		w.clusters[id] = has
	}
}

// same reports whether b has an owner and the owner needs no message, because nothing that was sent
// to it about the watch differs between a and b.
func same(a, b *want) bool {
	x, y := a.head, b.head
	return x.Version == y.Version && x.NodeVersion == y.NodeVersion && x.IntervalMs == y.IntervalMs && x.DelayMs == y.DelayMs &&
		x.GraceMs == y.GraceMs && x.Failures == y.Failures && a.automator == b.automator && a.provider == b.provider && a.machine == b.machine &&
		b.owner != nil
}

// assign assigns a watch to the best worker. If changed is true, the owner receives the watch
// even if the owner stays the same.
func (w *Controller) assign(v *state.View, t *want, out orders, changed bool) {
	to := w.best(t)
	if to == t.owner && !changed {
		return
	}
	if t.owner != nil && t.owner != to {
		o := out.of(t.owner)
		o.drop = append(o.drop, t.head.Key)
	}
	if t.owner = to; to != nil && to.left.IsZero() {
		w.known(v, t)
		o := out.of(to)
		o.watches = append(o.watches, copyOf(t.head))
	}
}

// known copies the verdicts that the state has into a watch.
func (w *Controller) known(v *state.View, t *want) {
	h := v.Health(t.tenant, t.node)
	t.head.Known, t.head.Gone = "", false
	if h != nil {
		t.head.Known, t.head.Gone = string(h.Services[t.short].Status), h.Machine == model.MachineGone
	}
}

// best returns the worker for a watch, or nil if no worker can run it: a worker needs the watch's
// plugin, and a watch may be tied to one machine. best prefers workers that also have the provider's
// plugin. Among equals, the highest hash wins.
func (w *Controller) best(t *want) *worker {
	var best *worker
	var top uint64
	for _, x := range w.workers {
		if t.automator != "" && !x.Plugins[t.automator] || t.automator == "" && !x.Plugins[t.provider] ||
			t.machine != "" && t.machine != x.Machine {
			continue
		}
		h := rank(x.Agent, t.node) >> 1
		if x.Plugins[t.provider] {
			h |= 1 << 63
		}
		if best == nil || h > top {
			best, top = x, h
		}
	}
	return best
}

// rank orders agents for a node. All builds must compute the same, or a change of leader
// would move every watch.
func rank(agent, node string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(agent))
	h.Write([]byte{0})
	h.Write([]byte(node))
	x := h.Sum64() // its high bits depend little on the last letters
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// rebalance computes the owner of every watch again. The worker that has just joined, if there is
// one, is sent all its watches and drops all others.
func (w *Controller) rebalance(came string) {
	v := w.cfg.Machine.View()
	out := orders{}
	newcomer := w.workers[came]
	var its []*pb.Watch
	for _, wants := range w.clusters {
		for _, t := range wants {
			if t.owner != nil && w.workers[t.owner.Agent] != t.owner {
				t.owner = nil // the owner's session is over
			}
			w.assign(v, t, out, false)
			if newcomer != nil && t.owner == newcomer {
				w.known(v, t)
				its = append(its, copyOf(t.head))
			}
		}
	}
	if newcomer != nil {
		delete(out, newcomer)
	}
	w.carryOut(out)
	if newcomer != nil {
		w.send(newcomer, its, nil, true)
	}
}

// wants returns the watches that a cluster needs: one for each started service with a check
// action, on machines that no operation works on, and one for each machine on which an operation
// failed.
func (w *Controller) wants(v *state.View, cl *model.Cluster) map[string]*want {
	out := map[string]*want{}
	if cl.Status == model.ClusterTerminated {
		return out
	}
	nodes := v.LiveNodes(cl)
	probes := map[string]model.Probe{}
	for name, def := range cl.Definitions {
		if p, ok := def.Watched(); ok {
			probes[name] = p
		}
	}
	varies := cl.Varies()
	policy := cl.Template.RecoveryPolicy()
	machines := !policy.Off && policy.Replace != model.ReplaceNever
	doubts := slices.ContainsFunc(nodes, inDoubt)
	if len(nodes) == 0 || len(probes) == 0 && !machines && !varies && !doubts {
		return out
	}
	version := w.cfg.Tasks.Version(v, cl, nodes)
	busy := v.Busy(cl.Tenant, cl.ID)
	health := v.ClusterHealth(cl.Tenant, cl.ID)
	for _, n := range nodes {
		if !n.Created || !n.Confirmed || n.Broken || busy[n.ID] != "" {
			continue
		}
		if n.Leaves {
			if inDoubt(n) {
				w.want(out, cl, n, "", model.Probe{Interval: model.Millis(doubtEvery.Milliseconds())}, version)
			}
			continue
		}
		h := health[n.ID]
		some, paused := false, h != nil && len(h.Paused) > 0
		for _, s := range n.Staying() {
			p, ok := probes[s]
			if varies { // the node may still have older definitions, or keep them
				def, _ := cl.DefinitionAt(n.Marks[s], s)
				p, ok = def.Watched()
			}
			if !ok || paused && h.Paused[s] != "" || !watched(n, h, s) {
				continue
			}
			some = true
			w.want(out, cl, n, s, p, version^marked(n.Marks[s]))
		}
		switch {
		case some:
		case inDoubt(n):
			w.want(out, cl, n, "", model.Probe{Interval: model.Millis(doubtEvery.Milliseconds())}, version)
		case machines && runs(n):
			w.want(out, cl, n, "", model.Probe{Interval: model.Millis(machineEvery.Milliseconds())}, version)
		}
	}
	return out
}

// inDoubt reports whether an operation failed on a node: an action there was tried, and no success
// was reported.
func inDoubt(n *model.Node) bool {
	for _, s := range n.Services {
		if strings.HasSuffix(n.States[s], "?") || n.Marks[s].Config == model.HalfConfigured {
			return true
		}
	}
	return false
}

// marked returns a number that changes with the version that a service has. It changes
// before the operation that brings it there writes the node's record.
func marked(m model.Mark) uint64 {
	return uint64(m.Definition)*0xff51afd7ed558ccd ^ uint64(m.Config)*0xc4ceb9fe1a85ec53
}

// runs reports whether any service was started on a node.
func runs(n *model.Node) bool {
	for _, state := range n.States {
		if state == model.Start.String() {
			return true
		}
	}
	return false
}

// watched reports whether a service should run: it was started, or recovery restarts it.
func watched(n *model.Node, h *model.NodeHealth, service string) bool {
	switch n.States[service] {
	case model.Start.String(), model.Start.String() + "?":
		return true
	}
	return slices.Contains(h.Failing(), service)
}

func (w *Controller) want(out map[string]*want, cl *model.Cluster, n *model.Node, service string, p model.Probe, version uint64) {
	t := &want{tenant: cl.Tenant, cluster: cl.ID, node: n.ID, short: service}
	t.automator, t.provider, t.machine = w.cfg.Tasks.Needs(cl, n, service)
	key := string(model.NodeID(n.ID).Placement(service))
	t.head = &pb.Watch{
		Key: key, Version: version ^ n.Version*0x9e3779b97f4a7c15, NodeVersion: n.Version, IntervalMs: int64(p.Interval), DelayMs: int64(p.Delay),
		GraceMs: int64(p.Grace), Failures: uint32(max(1, p.Failures)),
	}
	out[key] = t
}
