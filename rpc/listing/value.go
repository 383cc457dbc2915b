package listing

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// The kinds of values, in the order in which they are sorted.
const (
	absent byte = iota
	number
	text
)

// A value is what a field of a row has: nothing, a number, or a text. Truth values are texts.
type value struct {
	kind  byte
	num   float64
	whole int64 // of a number without a fraction
	text  string
}

// textOf returns the value of a text as it is answered: without names of encrypted values.
func textOf(s string) value {
	if model.HasSealedRef(s) {
		s = string(model.HideSealedRefs([]byte(s)))
	}
	return value{kind: text, text: s}
}

func numberOf(f float64) value {
	if f == float64(int64(f)) {
		return value{kind: number, num: f, whole: int64(f)}
	}
	return value{kind: number, num: f}
}

// String returns the value as filters compare it.
func (v value) String() string {
	if v.kind != number {
		return v.text
	}
	if v.num == float64(v.whole) {
		return strconv.FormatInt(v.whole, 10)
	}
	return strconv.FormatFloat(v.num, 'g', -1, 64)
}

func compare(a, b value) int {
	if a.kind != b.kind {
		return cmp.Compare(a.kind, b.kind)
	}
	if a.kind == number {
		return cmp.Compare(a.num, b.num)
	}
	return words.Natural(a.text, b.text)
}

// ContainsFold reports whether a text contains another, whatever the case. That other one is in lower case.
func ContainsFold(s, lower string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return strings.Contains(strings.ToLower(s), lower)
		}
	}
	for i := 0; i+len(lower) <= len(s); i++ {
		k := 0
		for k < len(lower) && small(s[i+k]) == lower[k] {
			k++
		}
		if k == len(lower) {
			return true
		}
	}
	return false
}

func small(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
