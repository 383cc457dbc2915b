package planner

import "github.com/coopr/coopr/engine/model"

// recipe is the tasks that are stamped onto each node with the same services and the same planned
// actions, in order, each with the earlier tasks for which it waits.
type recipe struct {
	tasks []pair
	slots []int   // parallel to tasks: indexes of the node's slots
	waits [][]int // parallel to tasks: indexes of tasks
}

// locally adds the tasks of services so that a service waits only for services on its own node.
// An upgrade can then finish one node before it begins the next.
func (st *stamper) locally(p *phase) {
	recipes := map[string]*recipe{}
	var key []byte
	var made []uint32
	for n := range st.in.Nodes {
		slots := st.slots(n)
		key = key[:0]
		some := false
		for _, k := range slots {
			some = some || p.slot[k] != 0
			key = append(key, byte(st.slotSvc[k]), byte(st.slotSvc[k]>>8), byte(p.slot[k]), byte(p.slot[k]>>8))
		}
		if !some {
			continue
		}
		r := recipes[string(key)]
		if r == nil {
			r = st.newRecipe(p, slots)
			recipes[string(key)] = r
		}
		made = made[:0]
		for i, t := range r.tasks {
			v := st.task(t.action, n, t.service)
			st.link(int(slots[r.slots[i]]), v)
			for _, w := range r.waits[i] {
				st.b.Edge(made[w], v)
			}
			made = append(made, v)
		}
	}
}

func (st *stamper) newRecipe(p *phase, slots []int32) *recipe {
	wanted := make([]mask, len(st.names))
	at := make(map[int]int, len(slots))
	for i, k := range slots {
		wanted[st.slotSvc[k]] |= p.slot[k]
		at[int(st.slotSvc[k])] = i
	}
	o := &pairs{cross: st.crossings(wanted, func(s int, a model.Action) bool { return wanted[s]&bit(a) != 0 })}
	o.sort(p.order, wanted)
	r := &recipe{tasks: o.list, waits: o.waits, slots: make([]int, len(o.list))}
	for i, t := range o.list {
		r.slots[i] = at[t.service]
	}
	return r
}
