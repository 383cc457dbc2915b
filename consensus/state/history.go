package state

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// keptSnapshots is how many snapshots of a cluster are kept.
const keptSnapshots = 20

// remember takes a snapshot of a cluster: rows never change, so it is made of
// pointers to them. It gives the snapshot's number. The cluster's row must be
// written after it, for it counts the snapshots.
func (a *applier) remember(cl *model.Cluster, op *model.Operation, moment string) int {
	if last := get[model.Snapshot](a.txn, tHistory, "id", cl.Tenant, cl.ID, uint32(cl.Snapshots)); last != nil && moment == model.MomentBefore && last.State.Version == cl.Version {
		return last.Number // nothing happened since the last operation's end
	}
	cl.Snapshots++
	kept := *cl
	a.put(tHistory, &model.Snapshot{
		Tenant: cl.Tenant, Cluster: cl.ID, Number: cl.Snapshots, Time: a.now, Operation: op.ID, Moment: moment,
		State: &kept, Nodes: list[model.Node](a.txn, tNodes, "cluster", cl.Tenant, cl.ID),
	})
	a.forgetSnapshots(cl, op)
	return cl.Snapshots
}

// forgetSnapshots removes the oldest snapshots, but never one that the operation at
// work, or the one before it, may go back to.
func (a *applier) forgetSnapshots(cl *model.Cluster, op *model.Operation) {
	needed := cl.Snapshots
	for _, o := range []*model.Operation{op, get[model.Operation](a.txn, tOperations, "id", cl.Operation)} {
		if o == nil {
			continue
		}
		for _, n := range []int{o.Before, o.To} {
			if n > 0 {
				needed = min(needed, n)
			}
		}
	}
	for _, s := range list[model.Snapshot](a.txn, tHistory, "id_prefix", cl.Tenant, cl.ID) {
		if s.Number <= cl.Snapshots-keptSnapshots && s.Number < needed {
			a.remove(tHistory, s)
		}
	}
}

// History gives a cluster's snapshots, the oldest first.
func (v *View) History(tenant, cluster string) []*model.Snapshot {
	return list[model.Snapshot](v.txn, tHistory, "id_prefix", tenant, cluster)
}

// Snapshot finds a snapshot of a cluster by its number.
func (v *View) Snapshot(tenant, cluster string, number int) (*model.Snapshot, bool) {
	s := get[model.Snapshot](v.txn, tHistory, "id", tenant, cluster, uint32(number))
	return s, s != nil
}

// historyBody is how a cluster's snapshot stands in a snapshot of the state:
// Nodes are places in the list of all nodes of such snapshots, which come before
// it as records of tHistoryNodes. Most snapshots share most nodes.
type historyBody struct {
	model.Snapshot
	Nodes []int `json:"nodes"`
}

// historyWriter writes a node once, however many snapshots hold it. A state that
// was restored has copies of a node where another has one: they are one here, too,
// so that equal states make equal snapshots.
type historyWriter struct {
	written map[*model.Node]int
	bodies  map[[sha256.Size]byte]int
	nodes   func(body []byte)
}

func (w *historyWriter) encode(s *model.Snapshot) ([]byte, error) {
	if w.written == nil {
		w.written, w.bodies = map[*model.Node]int{}, map[[sha256.Size]byte]int{}
	}
	b := historyBody{Snapshot: *s, Nodes: make([]int, len(s.Nodes))}
	for i, n := range s.Nodes {
		at, ok := w.written[n]
		if !ok {
			body, err := json.Marshal(n)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(body)
			if at, ok = w.bodies[sum]; !ok {
				w.nodes(body)
				at = len(w.bodies)
				w.bodies[sum] = at
			}
			w.written[n] = at
		}
		b.Nodes[i] = at
	}
	return json.Marshal(b)
}

// historyReader puts back together what historyWriter wrote.
type historyReader []*model.Node

func (r *historyReader) node(body []byte) error {
	n := &model.Node{}
	*r = append(*r, n)
	return json.Unmarshal(body, n)
}

func (r *historyReader) snapshot(body []byte) (*model.Snapshot, error) {
	var b historyBody
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, err
	}
	s := b.Snapshot
	s.Nodes = make([]*model.Node, len(b.Nodes))
	for i, at := range b.Nodes {
		if at < 0 || at >= len(*r) {
			return nil, fmt.Errorf("snapshot %d of cluster %s speaks of a node that is not there", s.Number, s.Cluster)
		}
		s.Nodes[i] = (*r)[at]
	}
	return &s, nil
}

// settledNode gives a copy of a node to write to.
func settledNode(have *model.Node) *model.Node {
	n := *have
	if n.States = maps.Clone(n.States); n.States == nil {
		n.States = map[string]string{}
	}
	if n.Marks = maps.Clone(n.Marks); n.Marks == nil {
		n.Marks = map[string]model.Mark{}
	}
	n.Services = slices.Clone(n.Services)
	return &n
}
