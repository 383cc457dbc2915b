package audit

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/problem"
)

// ErrPruned means that requested records have been dropped at the end of their retention.
var ErrPruned = problem.New(problem.Conflict, "their retention is over")

// Trail is the log at one moment. It never changes. A Writer makes the next trail, which
// shares all full chunks with it, so snapshots and readers are not disturbed. Only one writer
// may continue a trail: two would overwrite each other's records.
type Trail struct {
	anchor  Place // of the last record that retention dropped
	full    []*chunk
	tail    *chunk // may be nil
	records uint64
	bytes   uint64
}

// Stats describes the size of a trail.
type Stats struct {
	// Anchor is the place before the first record that is kept, Head the place of the last.
	Anchor Place `json:"anchor"`
	Head   Place `json:"head"`
	// Records counts the records, each change of a task by itself.
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
	// Dropped counts the numbers of the chain between others that were dropped.
	Dropped uint64 `json:"dropped,omitempty"`
	// Oldest is the time of the oldest record in Unix milliseconds; 0: there is none.
	Oldest int64 `json:"oldest"`
}

// Stats returns the trail's size and its ends.
func (t *Trail) Stats() Stats {
	s := Stats{Anchor: t.anchor, Head: t.head(), Records: t.records, Bytes: t.bytes}
	all := t.chunks()
	for _, c := range all {
		s.Dropped += c.gaps
	}
	if len(all) > 0 {
		_ = all[0].walk(func(e entry) bool {
			s.Oldest, _ = all[0].when(e)
			return false
		})
	}
	return s
}

func (t *Trail) head() Place {
	switch {
	case t.tail != nil:
		return t.tail.last
	case len(t.full) > 0:
		return t.full[len(t.full)-1].last
	}
	return t.anchor
}

// chunks returns all chunks, oldest first.
func (t *Trail) chunks() []*chunk {
	if t.tail == nil {
		return t.full
	}
	return append(t.full[:len(t.full):len(t.full)], t.tail)
}

// when returns the time of a record and the number of changes in it.
func (c *chunk) when(e entry) (int64, uint64) {
	r := &reader{b: e.body}
	kind := r.byte()
	index, at := r.uvarint(), r.varint()
	switch kind {
	case kindGap:
		return at, 0
	case kindTasks:
		_, n, _ := c.head(r, index, at)
		return at, uint64(n)
	}
	return at, 1
}

// tenant returns the tenant of a record.
func (c *chunk) tenant(e entry) string {
	change, tasks, err := c.decode(e.body, false)
	switch {
	case err != nil:
		return ""
	case change != nil:
		return change.Tenant
	}
	return tasks.Plan.Tenant
}

// Writer makes the next trail. One goroutine uses it.
type Writer struct {
	t    Trail
	open bool // the writer owns t.tail and may change it
	// agents numbers the names in t.tail.
	agents map[string]uint64
	// latest is the name of the agent that was looked up last, with its number. Both are valid if
	// told is set.
	latest string
	number uint64
	told   bool
	buf    []byte
	body   []byte
}

// Write starts the next trail.
func (t *Trail) Write() *Writer { return &Writer{t: *t} }

// Done returns the next trail. The writer can go on without changing it.
func (w *Writer) Done() *Trail {
	w.open = false
	t := w.t
	return &t
}

// Head returns the number of the last record.
func (w *Writer) Head() uint64 { return w.t.head().Seq }

// tail returns a chunk to append to.
func (w *Writer) tail() *chunk {
	if c := w.t.tail; c != nil && len(c.data) >= chunkSize {
		full := *c
		if room := cap(c.data) - len(c.data); room > len(c.data)/8 {
			full.data = slices.Clone(c.data)
		}
		w.t.full = append(w.t.full, &full)
		w.t.tail, w.open, w.agents = nil, false, nil
	}
	switch {
	case w.t.tail == nil:
		head := w.t.head()
		w.t.tail = &chunk{prev: head, last: head}
		if len(w.t.full) > 0 { // it will become full, too
			w.t.tail.data = make([]byte, 0, chunkSize+chunkSize/16)
		}
	case !w.open:
		c := *w.t.tail
		c.used = slices.Clone(c.used)
		w.t.tail = &c
	}
	w.open = true
	if w.agents == nil {
		w.told, w.agents = false, map[string]uint64{}
		for i, name := range w.t.tail.agents {
			w.agents[name] = uint64(i)
		}
	}
	return w.t.tail
}

// Change appends a record.
func (w *Writer) Change(c *Change) {
	tail := w.tail()
	w.buf = c.canonical(w.buf[:0])
	w.body = appendChange(w.body[:0], c)
	w.append(tail, c.Tenant, c.Time, 1)
}

// Tasks appends a batch of changes of tasks as one record of the chain.
func (w *Writer) Tasks(b *Tasks) {
	if len(b.Items) == 0 {
		return
	}
	tail := w.tail()
	plan := slices.Index(tail.plans, b.Plan)
	if plan < 0 {
		plan = len(tail.plans)
		tail.plans = append(tail.plans, b.Plan)
	}
	w.buf = b.canonical(w.buf[:0])
	w.body = appendTasks(w.body[:0], b, plan, func(name string) uint64 { return w.agent(tail, name) })
	w.append(tail, b.Plan.Tenant, b.Time, uint64(len(b.Items)))
}

func (w *Writer) agent(tail *chunk, name string) uint64 {
	if w.told && name == w.latest {
		return w.number
	}
	n, ok := w.agents[name]
	if !ok {
		n = uint64(len(tail.agents))
		tail.agents = append(tail.agents, name)
		w.agents[name] = n
	}
	w.latest, w.number, w.told = name, n, true
	return n
}

// append adds the record whose canonical bytes are in buf and whose body is in body.
func (w *Writer) append(tail *chunk, tenant string, at int64, records uint64) {
	size := tail.append(tail.last.next(sha256.Sum256(w.buf)), w.body, at, records)
	tail.use(tenant, records, size)
	w.t.records += records
	w.t.bytes += size
	// Release the buffers after one large operation.
	if cap(w.buf) > 1<<20 {
		w.buf, w.body = nil, nil
	}
}

func appendLength(b []byte, n int) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

// Prune drops records beyond the limits and returns their number. Batches are dropped as a whole. By time and by the number of
// all records, no record is dropped that is newer than one that stays. By tenant, gaps stay in the place of records. gone, which may
// be nil, is called for each entry of the chain that is dropped, with its number of records.
func (w *Writer) Prune(l Limits, gone func(at Place, records uint64)) (dropped uint64) {
	if gone == nil {
		gone = func(Place, uint64) {}
	}
	had := w.t.records
	w.front(&l, gone)
	w.drop(&l, gone)
	return had - w.t.records
}

// front drops the oldest records, by time and by the number of all records.
func (w *Writer) front(l *Limits, gone func(at Place, records uint64)) {
	had := w.t.records
	over := func() bool { return l.Keep > 0 && w.t.records > l.Keep }
	all := w.t.chunks()
	for len(all) > 0 {
		c := all[0]
		if !over() && c.first >= l.Before || !l.may(c.prev.Seq+1) {
			break
		}
		rest := w.cut(c, l, over, gone)
		all = all[1:]
		if rest != nil {
			all = append([]*chunk{rest}, all...)
			break
		}
	}
	if w.t.records == had {
		return
	}
	// A gap at the beginning is no gap any more.
	none := Limits{}
	for len(all) > 0 {
		rest := w.cut(all[0], &none, func() bool { return false }, gone)
		all = all[1:]
		if rest != nil {
			all = append([]*chunk{rest}, all...)
			break
		}
	}
	w.replace(all)
}

// replace replaces all chunks.
func (w *Writer) replace(all []*chunk) {
	w.agents, w.open = nil, false
	w.t.full, w.t.tail = nil, nil
	if n := len(all); n > 0 {
		w.t.full, w.t.tail = slices.Clone(all[:n-1]), all[n-1]
	}
}

// cut drops records from the front of a chunk and returns the rest, or nil. It moves the
// anchor to the last dropped record.
func (w *Writer) cut(c *chunk, l *Limits, over func() bool, gone func(at Place, records uint64)) *chunk {
	off, kept := 0, false
	rest := &chunk{agents: c.agents, plans: c.plans, last: c.last}
	_ = c.walk(func(e entry) bool { // a decoded chunk can always be walked
		at, n := c.when(e)
		size := len(appendLength(nil, len(e.body))) + len(e.at.Hash) + len(e.body)
		if !kept && (n == 0 || (at < l.Before || over()) && l.may(e.at.Seq)) {
			off += size
			w.t.records -= n
			w.t.bytes -= uint64(size)
			w.t.anchor = e.at
			if n > 0 {
				gone(e.at, n)
			}
			return true
		}
		if !kept {
			kept, rest.first, rest.final = true, at, at
		}
		if n > 0 {
			rest.use(c.tenant(e), n, uint64(size))
		}
		if g, ok := gapOf(e.body); ok {
			rest.gaps += g.records
		}
		rest.records += n
		rest.first, rest.final = min(rest.first, at), max(rest.final, at)
		return true
	})
	if !kept {
		return nil
	}
	rest.prev, rest.data = w.t.anchor, slices.Clone(c.data[off:])
	return rest
}

// Each calls fn for the records that match a filter, starting after a cursor (zero: at the
// beginning), oldest or newest first, until fn returns false.
func (t *Trail) Each(f *Filter, newest bool, from Cursor, fn func(Record) bool) error {
	all := t.chunks()
	if newest {
		all = slices.Clone(all)
		slices.Reverse(all)
	}
	if !from.IsZero() && !newest && from.Seq < t.anchor.Seq {
		return fmt.Errorf("%w: records up to %d are not kept any more", ErrPruned, t.anchor.Seq)
	}
	for _, c := range all {
		behind := !newest && c.last.Seq < from.Seq || newest && !from.IsZero() && c.prev.Seq >= from.Seq
		if behind || !f.period(c.first, c.final) {
			continue
		}
		goOn, err := c.each(f, newest, from, fn)
		if err != nil || !goOn {
			return err
		}
	}
	return nil
}

func (c *chunk) each(f *Filter, newest bool, from Cursor, fn func(Record) bool) (bool, error) {
	var entries []entry
	if err := c.walk(func(e entry) bool {
		if from.IsZero() || !newest && e.at.Seq >= from.Seq || newest && e.at.Seq <= from.Seq {
			entries = append(entries, e)
		}
		return true
	}); err != nil {
		return false, err
	}
	if newest {
		slices.Reverse(entries)
	}
	for _, e := range entries {
		goOn, err := c.expand(f, newest, from, e, fn)
		if err != nil || !goOn {
			return false, err
		}
	}
	return true, nil
}

// expand calls fn for the matching records of one entry.
func (c *chunk) expand(f *Filter, newest bool, from Cursor, e entry, fn func(Record) bool) (bool, error) {
	change, tasks, err := c.decode(e.body, false)
	switch {
	case err != nil:
		return false, fmt.Errorf("record %d: %w", e.at.Seq, err)
	case change != nil:
		wanted := f.wants(change.Tenant, change.Cluster, change.Operation, change.Actor, change.Time) && fits(f.Node, change.Node) &&
			f.wantsType(change.Type)
		if !wanted || e.at.Seq == from.Seq {
			return true, nil
		}
		return fn(change.record(e.at)), nil
	case tasks == nil:
		return true, nil // a gap
	case !f.wants(tasks.Plan.Tenant, tasks.Plan.Cluster, tasks.Plan.Operation, tasks.Actor, tasks.Time):
		return true, nil
	}
	if _, tasks, err = c.decode(e.body, true); err != nil {
		return false, fmt.Errorf("record %d: %w", e.at.Seq, err)
	}
	for i := range tasks.Items {
		if newest {
			i = len(tasks.Items) - 1 - i
		}
		if !from.IsZero() && e.at.Seq == from.Seq && (!newest && i+1 <= from.Item || newest && i+1 >= from.Item) {
			continue
		}
		it := &tasks.Items[i]
		if fits(f.Node, tasks.Plan.node(it.Vertex)) && f.wantsType(it.Type()) && !fn(tasks.record(e.at, i)) {
			return false, nil
		}
	}
	return true, nil
}
