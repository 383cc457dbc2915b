package audit

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/coopr/coopr/engine/model"
)

// chunkSize is the approximate size of a chunk of records in bytes. Views share whole chunks,
// and retention drops whole chunks first.
const chunkSize = 64 << 10

// chunk is a sequence of records in data. Each record is the length of its body, its hash and
// its body. A body avoids repetition: the names of tasks are in the plan, and an item is
// encoded as the difference from the item before it.
type chunk struct {
	prev, last Place // before the first record, and of the last
	records    uint64
	// first and final bound the records' times.
	first, final int64
	data         []byte
	agents       []string
	plans        []*Plan
	used         []Usage // by tenant, in any order
	gaps         uint64  // records of the chain in the chunk's gaps
}

// errDamaged means that a chunk's bytes cannot be read.
var errDamaged = errors.New("it cannot be read")

// entry is one record of a chunk, not yet decoded.
type entry struct {
	at   Place
	body []byte
}

// walk returns the chunk's records in order.
func (c *chunk) walk(fn func(entry) bool) error {
	b, seq := c.data, c.prev.Seq
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)) || uint64(len(b)-k) < n+32 {
			return fmt.Errorf("the record after %d: %w", seq, errDamaged)
		}
		e := entry{body: b[k+32 : k+32+int(n)]}
		step := uint64(1)
		if g, ok := gapOf(e.body); ok {
			step = g.records
		}
		if step == 0 || seq+step < seq {
			return fmt.Errorf("the record after %d: %w", seq, errDamaged)
		}
		seq += step
		e.at = Place{Seq: seq, Hash: Hash(b[k : k+32])}
		b = b[k+32+int(n):]
		if !fn(e) {
			return nil
		}
	}
	return nil
}

// The encodings of an item's attempt, in the top bits of its step.
const (
	noAttempt   = 0 // no attempt
	sameAttempt = 1 // number, fence and agent as in the last encoded attempt
	newAttempt  = 2
	withEnd     = 3 // a new attempt and its end
)

func appendChange(b []byte, c *Change) []byte {
	kind := c.kind()
	b = append(b, kind)
	b = binary.AppendUvarint(b, c.Index)
	b = binary.AppendVarint(b, c.Time)
	for _, s := range c.texts(kind) {
		b = appendText(b, *s)
	}
	b = appendText(b, string(c.Before))
	return appendText(b, string(c.After))
}

// appendTasks appends the encoding of a batch of task changes. plan is the number of the batch's
// plan in the chunk, and agent returns the number of an agent's name.
func appendTasks(b []byte, t *Tasks, plan int, agent func(string) uint64) []byte {
	b = append(b, kindTasks)
	b = binary.AppendUvarint(b, t.Index)
	b = binary.AppendVarint(b, t.Time)
	b = binary.AppendUvarint(b, uint64(plan))
	b = appendText(b, t.Actor)
	b = appendText(b, t.Request)
	b = binary.AppendUvarint(b, uint64(len(t.Items)))
	var last uint32
	told := TaskChange{Fence: t.Index}
	for i := range t.Items {
		it := &t.Items[i]
		how := byte(newAttempt)
		switch {
		case it.End != nil:
			how = withEnd
		case it.Attempt == 0 && it.Fence == 0 && it.Agent == "":
			how = noAttempt
		case it.Attempt == told.Attempt && it.Fence == told.Fence && it.Agent == told.Agent:
			how = sameAttempt
		}
		b = append(b, byte(it.From)|byte(it.To)<<3|how<<6)
		b = binary.AppendVarint(b, int64(it.Vertex)-int64(last))
		last = it.Vertex
		if how < newAttempt {
			continue
		}
		b = append(b, it.Attempt)
		b = binary.AppendVarint(b, int64(it.Fence-told.Fence))
		b = binary.AppendUvarint(b, agent(it.Agent))
		told = *it
		if how == withEnd {
			b = appendText(b, it.End.Outcome)
			b = appendText(b, it.End.Message)
		}
	}
	return b
}

// append adds an entry with its body and returns the number of bytes that it takes.
func (c *chunk) append(to Place, body []byte, at int64, records uint64) (size uint64) {
	before := len(c.data)
	c.data = appendLength(c.data, len(body))
	c.data = append(c.data, to.Hash[:]...)
	c.data = append(c.data, body...)
	c.last = to
	if before == 0 {
		c.first, c.final = at, at
	}
	c.first, c.final = min(c.first, at), max(c.final, at)
	c.records += records
	return uint64(len(c.data) - before)
}

// decode decodes a record and returns either a change or a batch of task changes, or neither for a gap. If items is
// false, it decodes only the head of a batch.
func (c *chunk) decode(body []byte, items bool) (*Change, *Tasks, error) {
	r := &reader{b: body}
	kind := r.byte()
	index, at := r.uvarint(), r.varint()
	switch kind {
	case kindChange, kindRequest:
		out := &Change{Index: index, Time: at}
		for _, s := range out.texts(kind) {
			*s = r.text()
		}
		out.Before, out.After = r.json(), r.json()
		return out, nil, r.end()
	case kindTasks:
		out, n, err := c.head(r, index, at)
		if err != nil || !items {
			return nil, out, err
		}
		c.items(r, out, n)
		return nil, out, r.end()
	case kindGap:
		return nil, nil, nil // walk has read it
	}
	return nil, nil, errDamaged
}

func (c *chunk) head(r *reader, index uint64, at int64) (*Tasks, int, error) {
	plan := r.uvarint()
	out := &Tasks{Index: index, Time: at, Actor: r.text(), Request: r.text()}
	n := r.uvarint()
	// An item has at least two bytes.
	if r.bad || plan >= uint64(len(c.plans)) || n > uint64(len(r.b)) {
		return nil, 0, errDamaged
	}
	out.Plan = c.plans[plan]
	return out, int(n), nil
}

func (c *chunk) items(r *reader, out *Tasks, n int) {
	out.Items = make([]TaskChange, n)
	var last int64
	told := TaskChange{Fence: out.Index}
	for i := range out.Items {
		step := r.byte()
		last += r.varint()
		it := TaskChange{Vertex: uint32(last), From: model.TaskStatus(step & 7), To: model.TaskStatus(step >> 3 & 7)}
		if last < 0 || last >= int64(len(out.Plan.Action)) {
			r.bad = true
			it.Vertex = 0
		}
		switch step >> 6 {
		case sameAttempt:
			it.Attempt, it.Fence, it.Agent = told.Attempt, told.Fence, told.Agent
		case newAttempt, withEnd:
			it.Attempt = r.byte()
			it.Fence = told.Fence + uint64(r.varint())
			it.Agent = c.agent(r)
			told = it
			if step>>6 == withEnd {
				it.End = &End{Outcome: r.text(), Message: r.text()}
			}
		}
		if r.bad {
			return
		}
		out.Items[i] = it
	}
}

func (c *chunk) agent(r *reader) string {
	n := r.uvarint()
	if n >= uint64(len(c.agents)) {
		r.bad = true
		return ""
	}
	return c.agents[n]
}

// reader decodes what the append functions encode. After a fault it returns zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) end() error {
	if r.bad || len(r.b) > 0 {
		return errDamaged
	}
	return nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) took(n int) {
	if n <= 0 {
		r.bad, n = true, 0
	}
	r.b = r.b[n:]
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.took(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.took(n)
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) json() json.RawMessage {
	if b := r.bytes(); len(b) > 0 {
		return b
	}
	return nil
}
