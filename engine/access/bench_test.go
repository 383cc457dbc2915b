package access

import "testing"

func BenchmarkNewSet(b *testing.B) {
	for b.Loop() {
		if _, faults := NewSet(nil, nil); faults != nil {
			b.Fatal(faults)
		}
	}
}
