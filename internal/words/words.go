// Package words forms the phrases that messages share: lists, counts, short forms, and
// suggestions for misspelt names.
package words

import (
	"fmt"
	"slices"
	"strings"
)

// And joins names as in "a, b and c".
func And(names []string) string { return join(names, " and ") }

// Or joins names as in "a, b or c".
func Or(names []string) string { return join(names, " or ") }

func join(names []string, last string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	n := len(names) - 1
	return strings.Join(names[:n], ", ") + last + names[n]
}

// Count returns a number with a noun: "1 fault", "2 faults". The plural of the noun
// must end in s.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Nearest returns the known name that a misspelt name most likely stands for, or ""
// if none is close. At most a third of the name's letters may differ. Case does not
// count.
func Nearest(name string, known []string) string {
	best, least := "", len(name)/3+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if k == name || k == "" {
			continue
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k), least); d < least {
			best, least = k, d
		}
	}
	return best
}

// DidYouMean returns `: did you mean "x"?` for the nearest known name, or "".
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}

// DidYouMeanOrOneOf returns what DidYouMean does, or else a few of the known names.
func DidYouMeanOrOneOf(name string, known []string) string {
	if hint := DidYouMean(name, known); hint != "" {
		return hint
	}
	if len(known) == 0 {
		return ""
	}
	const show = 6
	if len(known) > show {
		return fmt.Sprintf(" (%s, … are)", strings.Join(known[:show], ", "))
	}
	return fmt.Sprintf(" (%s are)", strings.Join(known, ", "))
}

// Shorten returns a text for a message: the beginning of one that has more than 40 bytes.
func Shorten(s string) string {
	if len(s) <= 40 {
		return s
	}
	return strings.ToValidUTF8(s[:37], "") + "…"
}

// Typo returns the known name that is at most one letter off, or "". Case does not count. Two letters off may be a name of its own, such
// as "restart" where "start" is known.
func Typo(name string, known []string) string {
	for _, k := range known {
		if Near(strings.ToLower(name), strings.ToLower(k), 1) {
			return k
		}
	}
	return ""
}

// Near reports whether at most n edits turn one name into the other.
func Near(a, b string, n int) bool { return distance(a, b, n+1) <= n }

// distance returns the number of letters to insert, delete, replace or swap with the
// next one that turns a into b (the optimal string alignment distance), or limit if
// there are at least that many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			cost = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cost = min(cost, before[j-1]+1)
			}
			row[j+1] = cost
			least = min(least, cost)
		}
		if least > limit {
			return limit
		}
	}
	return min(row[len(b)], limit)
}
