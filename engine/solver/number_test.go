package solver

import "testing"

// TestMeet compares meet with a search through every count.
func TestMeet(t *testing.T) {
	for m1 := int64(1); m1 <= 12; m1++ {
		for m2 := int64(1); m2 <= 12; m2++ {
			for r1 := range m1 {
				for r2 := range m2 {
					want := int64(-1)
					for c := range m1 * m2 {
						if c%m1 == r1 && c%m2 == r2 {
							want = c
							break
						}
					}
					r, m, ok := meet(r1, m1, r2, m2)
					if ok != (want >= 0) || ok && (r != want || m != m1/gcd(m1, m2)*m2) {
						t.Fatalf("%d modulo %d and %d modulo %d: %d modulo %d, %v instead of %d", r1, m1, r2, m2, r, m, ok, want)
					}
				}
			}
		}
	}
}
