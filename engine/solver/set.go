package solver

import "math/bits"

// maxItems is the greatest number of items (groups of services) in one problem.
const maxItems = setWords * 64

const setWords = 8

// set is a set of items. It is a value and can be a map key.
type set [setWords]uint64

func (s *set) add(i int)      { s[i>>6] |= 1 << (i & 63) }
func (s *set) drop(i int)     { s[i>>6] &^= 1 << (i & 63) }
func (s *set) has(i int) bool { return s[i>>6]>>(i&63)&1 != 0 }

func (s *set) empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

func (s *set) size() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// meets reports whether the two sets share an item.
func (s *set) meets(o *set) bool {
	for i, w := range s {
		if w&o[i] != 0 {
			return true
		}
	}
	return false
}

// holds reports whether every item of o is in s.
func (s *set) holds(o *set) bool {
	for i, w := range o {
		if w&^s[i] != 0 {
			return false
		}
	}
	return true
}

func (s *set) minus(o *set) set {
	var r set
	for i, w := range s {
		r[i] = w &^ o[i]
	}
	return r
}

func (s *set) and(o *set) set {
	var r set
	for i, w := range s {
		r[i] = w & o[i]
	}
	return r
}

// each calls f for every item in rising order until f returns false.
func (s *set) each(f func(i int) bool) {
	for w, word := range s {
		for word != 0 {
			b := bits.TrailingZeros64(word)
			word &^= 1 << b
			if !f(w<<6 + b) {
				return
			}
		}
	}
}

// appendItems appends the items in rising order.
func (s *set) appendItems(to []int32) []int32 {
	for w, word := range s {
		for word != 0 {
			b := bits.TrailingZeros64(word)
			word &^= 1 << b
			to = append(to, int32(w<<6+b))
		}
	}
	return to
}

func setOf(items ...int) set {
	var s set
	for _, i := range items {
		s.add(i)
	}
	return s
}
