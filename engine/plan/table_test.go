package plan

import (
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A table does what a map does, however far apart its leaves are; and a table
// that was published does not change.
func TestTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type moment struct {
			table table[int]
			want  map[uint32]int
		}
		now := moment{want: map[uint32]int{}}
		past := []moment{now}
		index := rapid.OneOf(rapid.Uint32Range(0, 40), rapid.Uint32Range(0, 5000), rapid.Uint32Range(0, math.MaxUint32))
		for range rapid.IntRange(1, 12).Draw(t, "edits") {
			gen := uint64(len(past)) // that of an edit that was dropped is used again
			next := moment{now.table, maps.Clone(now.want)}
			for range rapid.IntRange(0, 6).Draw(t, "writes") {
				i, v := index.Draw(t, "index"), rapid.Int().Draw(t, "value")
				*next.table.own(i, gen) = v
				next.want[i] = v
			}
			if rapid.IntRange(0, 3).Draw(t, "drop") > 0 {
				now = next
				past = append(past, now)
			}
		}
		for _, m := range past {
			for range 10 {
				i := index.Draw(t, "read")
				want, there := m.want[i]
				if got := m.table.get(i); (got != nil) != there || (there && *got != want) {
					t.Fatalf("leaf %d is %v, want %d, %t", i, got, want, there)
				}
			}
			var order []uint32
			m.table.each(func(i uint32, v *int) {
				if *v != m.want[i] {
					t.Fatalf("leaf %d is %d, want %d", i, *v, m.want[i])
				}
				order = append(order, i)
			})
			if !slices.Equal(order, slices.Sorted(maps.Keys(m.want))) {
				t.Fatalf("the table has leaves %v, want %v", order, m.want)
			}
		}
	})
}
