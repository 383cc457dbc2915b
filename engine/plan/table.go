package plan

// fan is the number of children of a branch of a table.
const (
	fanBits = 4
	fan     = 1 << fanBits
)

// table is an array of leaves of which a change copies only a few: a radix tree, so that a
// change in a table of a million vertices copies one branch more than in one of 60,000. A leaf
// that was never written is absent and reads as zero. The zero table is empty and grows as
// leaves are written.
//
// Every change has a generation. The change owns the branches and leaves of its generation.
// All others belong to published states and are copied first.
type table[L any] struct {
	root  *branch
	shift uint8 // of the root's digit
}

type branch struct {
	gen  uint64
	kids [fan]any // *branch, or at the lowest level *leaf[L], or nil
}

type leaf[L any] struct {
	gen  uint64
	body L
}

// get returns leaf i for reading, or nil.
func (t *table[L]) get(i uint32) *L {
	b := t.root
	if b == nil || i>>(t.shift+fanBits) != 0 {
		return nil
	}
	for shift := t.shift; shift > 0; shift -= fanBits {
		kid, ok := b.kids[i>>shift&(fan-1)].(*branch)
		if !ok {
			return nil
		}
		b = kid
	}
	if l, ok := b.kids[i&(fan-1)].(*leaf[L]); ok {
		return &l.body
	}
	return nil
}

// own returns leaf i for writing.
func (t *table[L]) own(i uint32, gen uint64) *L {
	for ; i>>(t.shift+fanBits) != 0; t.shift += fanBits {
		if t.root != nil {
			t.root = &branch{gen: gen, kids: [fan]any{t.root}}
		}
	}
	b := t.root.own(gen)
	t.root = b
	for shift := t.shift; shift > 0; shift -= fanBits {
		at := &b.kids[i>>shift&(fan-1)]
		kid, _ := (*at).(*branch)
		if kid == nil || kid.gen != gen {
			kid = kid.own(gen)
			*at = kid
		}
		b = kid
	}
	at := &b.kids[i&(fan-1)]
	l, _ := (*at).(*leaf[L])
	switch {
	case l == nil:
		l = &leaf[L]{gen: gen}
		*at = l
	case l.gen != gen:
		l = &leaf[L]{gen: gen, body: l.body}
		*at = l
	}
	return &l.body
}

func (b *branch) own(gen uint64) *branch {
	switch {
	case b == nil:
		return &branch{gen: gen}
	case b.gen == gen:
		return b
	}
	return &branch{gen: gen, kids: b.kids}
}

// each calls fn for every leaf that exists, in order.
func (t *table[L]) each(fn func(i uint32, l *L)) {
	var walk func(b *branch, shift uint8, at uint32)
	walk = func(b *branch, shift uint8, at uint32) {
		for k, kid := range b.kids {
			i := at | uint32(k)<<shift
			switch kid := kid.(type) {
			case *branch:
				walk(kid, shift-fanBits, i)
			case *leaf[L]:
				fn(i, &kid.body)
			}
		}
	}
	if t.root != nil {
		walk(t.root, t.shift, 0)
	}
}
