package audit

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// TypePruned is the type of the records of prunings. Their field dropped has how many records are in gaps from then on, so that a file
// from which somebody takes records has more of them than it says.
const TypePruned = "audit.pruned"

// Usage is how much of a trail a tenant has. Tenant "" is the mesh itself.
type Usage struct {
	Tenant  string
	Records uint64
	Bytes   uint64
}

// Usage returns how much of the trail each tenant has, by name.
func (t *Trail) Usage() []Usage {
	sum := map[string]Usage{}
	for _, c := range t.chunks() {
		for _, u := range c.used {
			s := sum[u.Tenant]
			sum[u.Tenant] = Usage{Tenant: u.Tenant, Records: s.Records + u.Records, Bytes: s.Bytes + u.Bytes}
		}
	}
	return slices.SortedFunc(maps.Values(sum), func(a, b Usage) int { return cmp.Compare(a.Tenant, b.Tenant) })
}

// use adds what a tenant has of the chunk.
func (c *chunk) use(tenant string, records, bytes uint64) {
	at := len(c.used) - 1
	for at >= 0 && c.used[at].Tenant != tenant {
		at--
	}
	if at < 0 {
		at = len(c.used)
		c.used = append(c.used, Usage{Tenant: tenant})
	}
	c.used[at].Records += records
	c.used[at].Bytes += bytes
}

// Share returns how many records each tenant may keep so that all of them together have at most a number of records and bytes.
// Every tenant may have an equal share, and what some leave of theirs is shared by the others. Tenants that keep everything are
// left out. 0 is no limit.
func Share(usage []Usage, records, bytes uint64) map[string]uint64 {
	keep := map[string]uint64{}
	limit := func(most uint64, of func(Usage) uint64) {
		if most == 0 {
			return
		}
		level, over := fair(usage, most, of)
		for _, u := range usage {
			if !over || of(u) <= level {
				continue
			}
			n := uint64(float64(u.Records) * float64(level) / float64(of(u)))
			if had, ok := keep[u.Tenant]; !ok || n < had {
				keep[u.Tenant] = n
			}
		}
	}
	limit(records, func(u Usage) uint64 { return u.Records })
	limit(bytes, func(u Usage) uint64 { return u.Bytes })
	return keep
}

// fair returns the most that each may have so that all together have at most that much. over is false if they have no more now.
func fair(usage []Usage, most uint64, of func(Usage) uint64) (level uint64, over bool) {
	sorted := slices.Clone(usage)
	slices.SortFunc(sorted, func(a, b Usage) int { return cmp.Compare(of(a), of(b)) })
	for i, u := range sorted {
		level = most / uint64(len(sorted)-i)
		if of(u) > level {
			return level, true
		}
		most -= of(u)
	}
	return level, false
}

// Limits are what a trail may have; see Writer.Prune.
type Limits struct {
	// Before is the time of the oldest records that are kept, in Unix milliseconds, and Keep how many of all records, from the
	// newest on. 0 is no limit.
	Before int64
	Keep   uint64
	// Tenants has how many of their newest records tenants keep. Others keep all.
	Tenants map[string]uint64
	// UpTo is the number of the last record that may be dropped; 0: any.
	UpTo uint64
}

// may reports whether the limits let a record be dropped.
func (l *Limits) may(seq uint64) bool { return l.UpTo == 0 || seq <= l.UpTo }

// gap stands for records of one or more tenants that were dropped while older records of others stay. The chain goes on with the hash of
// the last of them.
type gap struct {
	index   uint64 // of the last dropped record
	time    int64
	records uint64 // of the chain
}

func appendGap(b []byte, g gap) []byte {
	b = append(b, kindGap)
	b = binary.AppendUvarint(b, g.index)
	b = binary.AppendVarint(b, g.time)
	return binary.AppendUvarint(b, g.records)
}

// gapOf returns the gap that an entry's body stands for.
func gapOf(body []byte) (g gap, ok bool) {
	if len(body) == 0 || body[0] != kindGap {
		return g, false
	}
	r := &reader{b: body[1:]}
	g = gap{index: r.uvarint(), time: r.varint(), records: r.uvarint()}
	if r.end() != nil {
		g.records = 0 // which is damage
	}
	return g, true
}

// drop drops the oldest records of tenants that have more than they may keep.
func (w *Writer) drop(l *Limits, gone func(at Place, records uint64)) {
	excess := map[string]uint64{}
	for _, u := range w.t.Usage() {
		if keep, ok := l.Tenants[u.Tenant]; ok && u.Records > keep {
			excess[u.Tenant] = u.Records - keep
		}
	}
	if len(excess) == 0 {
		return
	}
	k := &remainder{at: w.t.anchor, anchor: w.t.anchor}
	for _, c := range w.t.chunks() {
		k.chunk(c, func(e entry, tenant string, records uint64) bool {
			n := excess[tenant]
			if n == 0 || !l.may(e.at.Seq) {
				return false
			}
			excess[tenant] = n - min(n, records)
			gone(e.at, records)
			return true
		}, l.may(c.prev.Seq+1) && slices.ContainsFunc(c.used, func(u Usage) bool { return excess[u.Tenant] > 0 }))
	}
	k.flush()
	w.t.anchor, w.t.records, w.t.bytes = k.anchor, 0, 0
	for _, c := range k.out {
		w.t.records += c.records
		w.t.bytes += uint64(len(c.data))
	}
	w.replace(k.out)
}

// remainder makes the chunks of what stays after a drop.
type remainder struct {
	out    []*chunk
	agents map[string]uint64 // in the last chunk of out; nil if that is shared with other trails
	at     Place             // of the last entry that was kept or dropped
	anchor Place
	gap    gap // before at, if it has records
}

// chunk adds the entries of a chunk that drop does not want. touched is false if drop wants none of them.
func (k *remainder) chunk(c *chunk, drop func(e entry, tenant string, records uint64) bool, touched bool) {
	if !touched {
		last := len(k.out) - 1
		small := k.agents != nil && len(k.out[last].data)+len(c.data) <= chunkSize/2
		if !small {
			k.flush()
			k.out, k.agents, k.at = append(k.out, c), nil, c.last
			return
		}
	}
	_ = c.walk(func(e entry) bool { // a chunk of a trail can always be walked and decoded
		if g, ok := gapOf(e.body); ok {
			k.drop(e.at, g)
			return true
		}
		change, tasks, _ := c.decode(e.body, true)
		tenant, records, index, at := "", uint64(1), uint64(0), int64(0)
		if tasks != nil {
			tenant, records, index, at = tasks.Plan.Tenant, uint64(len(tasks.Items)), tasks.Index, tasks.Time
		} else {
			tenant, index, at = change.Tenant, change.Index, change.Time
		}
		if touched && drop(e, tenant, records) {
			k.drop(e.at, gap{index: index, time: at, records: 1})
			return true
		}
		k.keep(e, tasks, tenant, at, records)
		return true
	})
}

// drop notes that records are not kept.
func (k *remainder) drop(at Place, g gap) {
	g.records += k.gap.records
	k.at, k.gap = at, g
	if len(k.out) == 0 {
		k.anchor, k.gap = at, gap{}
	}
}

// flush writes the gap before the next entry.
func (k *remainder) flush() {
	if k.gap.records == 0 {
		return
	}
	c := k.room()
	c.append(k.at, appendGap(nil, k.gap), k.gap.time, 0)
	c.gaps += k.gap.records
	k.gap = gap{}
}

// keep adds an entry. tasks is its content if it is of tasks.
func (k *remainder) keep(e entry, tasks *Tasks, tenant string, at int64, records uint64) {
	k.flush()
	c := k.room()
	body := e.body
	if tasks != nil {
		plan := slices.Index(c.plans, tasks.Plan)
		if plan < 0 {
			plan = len(c.plans)
			c.plans = append(c.plans, tasks.Plan)
		}
		body = appendTasks(nil, tasks, plan, func(name string) uint64 {
			n, ok := k.agents[name]
			if !ok {
				n = uint64(len(c.agents))
				c.agents, k.agents[name] = append(c.agents, name), n
			}
			return n
		})
	}
	c.use(tenant, records, c.append(e.at, body, at, records))
	k.at = e.at
}

// room returns a chunk of its own for the next entry.
func (k *remainder) room() *chunk {
	after := k.anchor
	if n := len(k.out); n > 0 {
		c := k.out[n-1]
		if k.agents != nil && len(c.data) < chunkSize {
			return c
		}
		after = c.last
	}
	k.out, k.agents = append(k.out, &chunk{prev: after, last: after}), map[string]uint64{}
	return k.out[len(k.out)-1]
}
