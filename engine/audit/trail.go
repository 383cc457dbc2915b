package audit

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/problem"
)

// ErrPruned means that the retention of records that are asked for is over.
var ErrPruned = problem.New(problem.Conflict, "their retention is over")

// Trail is the log at one moment. It is never changed: a Writer makes the next
// one and shares all full chunks with it, so that a snapshot or a reader keeps
// its moment. There is one line of trails: two writers of the same trail would
// write over each other.
type Trail struct {
	anchor  Place // of the last record that retention has dropped
	full    []*chunk
	tail    *chunk // may be nil
	records uint64
	bytes   uint64
}

// Stats tell how large a trail is.
type Stats struct {
	// Anchor is the place before the first record that is kept, Head the last.
	Anchor Place `json:"anchor"`
	Head   Place `json:"head"`
	// Records counts every change of a task by itself.
	Records uint64 `json:"records"`
	Bytes   uint64 `json:"bytes"`
	// Oldest is the time of the oldest record, Unix milliseconds; 0: there is none.
	Oldest int64 `json:"oldest"`
}

// Stats returns the trail's size and its ends.
func (t *Trail) Stats() Stats {
	s := Stats{Anchor: t.anchor, Head: t.head(), Records: t.records, Bytes: t.bytes}
	if all := t.chunks(); len(all) > 0 {
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

// when returns a record's time and how many changes it stands for.
func (c *chunk) when(e entry) (int64, uint64) {
	r := &reader{b: e.body}
	kind := r.byte()
	index, at := r.uvarint(), r.varint()
	if kind != kindTasks {
		return at, 1
	}
	_, n, _ := c.head(r, index, at)
	return at, uint64(n)
}

// Writer makes the next trail. It belongs to one goroutine.
type Writer struct {
	t    Trail
	open bool // t.tail is the writer's own to change
	// agents numbers the names in t.tail.
	agents map[string]uint64
	// latest is the name that was asked for last, with its number; told says
	// that there is one.
	latest string
	number uint64
	told   bool
	buf    []byte
	body   []byte
}

// Write begins the next trail.
func (t *Trail) Write() *Writer { return &Writer{t: *t} }

// Done returns the next trail. The writer may go on: the trail that it gave keeps its moment.
func (w *Writer) Done() *Trail {
	w.open = false
	t := w.t
	return &t
}

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
		if len(w.t.full) > 0 { // it will be filled too
			w.t.tail.data = make([]byte, 0, chunkSize+chunkSize/16)
		}
	case !w.open:
		c := *w.t.tail
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
	w.append(tail, c.Time, 1)
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
	w.append(tail, b.Time, uint64(len(b.Items)))
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

// append closes the record whose canonical bytes are in buf and whose body is in body.
func (w *Writer) append(tail *chunk, at int64, records uint64) {
	tail.last = tail.last.next(sha256.Sum256(w.buf))
	before := len(tail.data)
	tail.data = appendLength(tail.data, len(w.body))
	tail.data = append(tail.data, tail.last.Hash[:]...)
	tail.data = append(tail.data, w.body...)
	if before == 0 {
		tail.first, tail.final = at, at
	}
	tail.first, tail.final = min(tail.first, at), max(tail.final, at)
	tail.records += records
	w.t.records += records
	w.t.bytes += uint64(len(tail.data) - before)
	// One large operation should not leave its scratch behind.
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

// Prune drops the oldest records: those from before a time (Unix
// milliseconds), and as many as it takes to keep at most keep of them (0: any
// number). It gives how many it dropped. A batch is dropped whole, and what is
// younger than a record that stays, stays.
func (w *Writer) Prune(before int64, keep uint64) (dropped uint64) {
	had := w.t.records
	over := func() bool { return keep > 0 && w.t.records > keep }
	all := w.t.chunks()
	for len(all) > 0 {
		c := all[0]
		if !over() && c.first >= before {
			break
		}
		rest := w.cut(c, before, over)
		all = all[1:]
		if rest != nil {
			all = append([]*chunk{rest}, all...)
			break
		}
	}
	if w.t.records == had {
		return 0
	}
	w.agents, w.open = nil, false
	if n := len(all); n > 0 && w.t.tail != nil {
		w.t.full, w.t.tail = slices.Clone(all[:n-1]), all[n-1]
	} else {
		w.t.full, w.t.tail = slices.Clone(all), nil
	}
	return had - w.t.records
}

// cut drops records off the front of a chunk and gives the rest, or nil. The
// anchor moves to the last one dropped.
func (w *Writer) cut(c *chunk, before int64, over func() bool) *chunk {
	off := 0
	rest := &chunk{agents: c.agents, plans: c.plans, last: c.last}
	_ = c.walk(func(e entry) bool { // what was decoded can be walked
		at, n := c.when(e)
		if rest.records == 0 && (at < before || over()) {
			size := len(appendLength(nil, len(e.body))) + len(e.at.Hash) + len(e.body)
			off += size
			w.t.records -= n
			w.t.bytes -= uint64(size)
			w.t.anchor = e.at
			return true
		}
		if rest.records == 0 {
			rest.first, rest.final = at, at
		}
		rest.records += n
		rest.first, rest.final = min(rest.first, at), max(rest.final, at)
		return true
	})
	if rest.records == 0 {
		return nil
	}
	rest.prev, rest.data = w.t.anchor, slices.Clone(c.data[off:])
	return rest
}

// Each returns the records that a filter wants, from behind a cursor on (zero: all), oldest or
// newest first, until fn says false.
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

// expand returns the wanted records of one entry.
func (c *chunk) expand(f *Filter, newest bool, from Cursor, e entry, fn func(Record) bool) (bool, error) {
	change, tasks, err := c.decode(e.body, false)
	switch {
	case err != nil:
		return false, fmt.Errorf("record %d: %w", e.at.Seq, err)
	case change != nil:
		wanted := f.wants(change.Tenant, change.Cluster, change.Operation, change.Actor, change.Time) && fits(f.Node, change.Node) && f.wantsType(change.Type)
		if !wanted || e.at.Seq == from.Seq {
			return true, nil
		}
		return fn(change.record(e.at)), nil
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
