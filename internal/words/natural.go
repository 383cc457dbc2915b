package words

import (
	"cmp"
	"strings"
)

// Natural compares two texts as people sort them: digits count by their value, so that node-9 comes before node-10. Different
// texts are never equal.
func Natural(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if !digit(a[i]) || !digit(b[j]) {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i++
			j++
			continue
		}
		var x, y string
		x, i = digits(a, i)
		y, j = digits(b, j)
		if len(x) != len(y) {
			return cmp.Compare(len(x), len(y))
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	if c := cmp.Compare(len(a)-i, len(b)-j); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns the digits of a text from i on, without leading zeros, and the place behind them.
func digits(s string, i int) (string, int) {
	start := i
	for i < len(s) && digit(s[i]) {
		i++
	}
	return strings.TrimLeft(s[start:i], "0"), i
}
