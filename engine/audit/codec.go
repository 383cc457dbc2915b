package audit

import (
	"encoding/binary"
	"fmt"

	"github.com/coopr/coopr/engine/model"
)

// The kinds of pieces. A trail is encoded in pieces, so that a large trail needs no large
// message: first its ends, then for each chunk the plans that it is the first to refer to, and
// the chunk itself.
const (
	pieceEnds  = 'e'
	piecePlan  = 'p'
	pieceChunk = 'c'
)

// Encode passes the trail in pieces to fn, until fn fails.
func (t *Trail) Encode(fn func(piece []byte) error) error {
	b := appendPlace([]byte{pieceEnds}, t.anchor)
	b = appendPlace(b, t.head())
	if err := fn(b); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, c := range t.chunks() {
		for _, p := range c.plans {
			if told[p.ID] {
				continue
			}
			told[p.ID] = true
			if err := fn(p.encode()); err != nil {
				return err
			}
		}
		if err := fn(c.encode()); err != nil {
			return err
		}
	}
	return nil
}

func appendPlace(b []byte, l Place) []byte {
	return append(binary.AppendUvarint(b, l.Seq), l.Hash[:]...)
}

func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

func (p *Plan) encode() []byte {
	b := []byte{piecePlan}
	for _, s := range [...]string{p.ID, p.Operation, p.Tenant, p.Cluster} {
		b = appendText(b, s)
	}
	b = appendTexts(appendTexts(b, p.Nodes), p.Services)
	b = binary.AppendUvarint(b, uint64(len(p.Action)))
	for v, a := range p.Action {
		b = append(b, byte(a))
		b = binary.AppendUvarint(b, uint64(p.Node[v]+1))
		b = binary.AppendUvarint(b, uint64(p.Service[v]+1))
	}
	return b
}

func (c *chunk) encode() []byte {
	b := appendPlace([]byte{pieceChunk}, c.prev)
	b = appendTexts(b, c.agents)
	b = binary.AppendUvarint(b, uint64(len(c.plans)))
	for _, p := range c.plans {
		b = appendText(b, p.ID)
	}
	return appendText(b, string(c.data))
}

// Decoder reassembles a trail from its pieces, in the order in which they were written.
type Decoder struct {
	t     Trail
	head  Place
	plans map[string]*Plan
	begun bool
}

// Add adds the next piece. It only checks that the piece can be read. Verify checks the chain.
func (d *Decoder) Add(piece []byte) error {
	r := &reader{b: piece}
	var err error
	switch kind := r.byte(); {
	case kind == pieceEnds && !d.begun:
		d.begun, d.plans = true, map[string]*Plan{}
		d.t.anchor, d.head = r.place(), r.place()
	case kind == piecePlan && d.begun:
		p := r.plan()
		d.plans[p.ID] = p
	case kind == pieceChunk && d.begun:
		err = d.chunk(r)
	default:
		err = errDamaged
	}
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Plan returns the plan with this id, if there are records of it.
func (d *Decoder) Plan(id string) (*Plan, bool) {
	p, ok := d.plans[id]
	return p, ok
}

// Done returns the trail.
func (d *Decoder) Done() (*Trail, error) {
	if !d.begun || d.t.head().Seq != d.head.Seq {
		return nil, fmt.Errorf("audit: records are missing: %w", errDamaged)
	}
	return &d.t, nil
}

func (d *Decoder) chunk(r *reader) error {
	c := &chunk{prev: r.place(), agents: r.texts()}
	for range r.uvarint() {
		p := d.plans[r.text()]
		if r.bad || p == nil {
			return errDamaged
		}
		c.plans = append(c.plans, p)
	}
	c.data = append([]byte(nil), r.bytes()...)
	if r.bad || c.prev.Seq != d.t.head().Seq {
		return errDamaged
	}
	c.last = c.prev
	var fault error
	err := c.walk(func(e entry) bool {
		if _, _, fault = c.decode(e.body, true); fault != nil {
			return false
		}
		at, n := c.when(e)
		if c.last == c.prev {
			c.first, c.final = at, at
		}
		if g, ok := gapOf(e.body); ok {
			c.gaps += g.records
		}
		if n > 0 {
			c.use(c.tenant(e), n, uint64(len(appendLength(nil, len(e.body)))+len(e.at.Hash)+len(e.body)))
		}
		c.first, c.final = min(c.first, at), max(c.final, at)
		c.records += n
		c.last = e.at
		return true
	})
	if err != nil {
		return err
	}
	if fault != nil || c.last == c.prev {
		return errDamaged
	}
	if d.t.tail != nil {
		d.t.full = append(d.t.full, d.t.tail)
	}
	d.t.tail = c
	d.t.records += c.records
	d.t.bytes += uint64(len(c.data))
	return nil
}

func (r *reader) place() Place {
	l := Place{Seq: r.uvarint()}
	if len(r.b) < len(l.Hash) {
		r.bad, r.b = true, nil
		return Place{}
	}
	copy(l.Hash[:], r.b)
	r.b = r.b[len(l.Hash):]
	return l
}

func (r *reader) texts() []string {
	var out []string
	for range r.uvarint() {
		out = append(out, r.text())
		if r.bad {
			return nil
		}
	}
	return out
}

func (r *reader) plan() *Plan {
	p := &Plan{ID: r.text(), Operation: r.text(), Tenant: r.text(), Cluster: r.text(), Nodes: r.texts(), Services: r.texts()}
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return p
	}
	p.Node, p.Service, p.Action = make([]int32, n), make([]int16, n), make([]model.Action, n)
	for v := range n {
		p.Action[v] = model.Action(r.byte())
		node, service := r.uvarint(), r.uvarint()
		if node > uint64(len(p.Nodes)) || service > uint64(len(p.Services)) {
			r.bad = true
			return p
		}
		p.Node[v], p.Service[v] = int32(node)-1, int16(int(service)-1)
	}
	return p
}
