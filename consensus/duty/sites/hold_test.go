package sites

import (
	"bytes"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/roster"
)

// The objects of all sites rest while the mesh is held.
func TestRestingWhileHeld(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := m.View().Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, why := range []*roster.Hold{nil, {Since: 1}} {
		v, err := state.Restored(bytes.NewReader(b.Bytes()), func(string) bool { return true }, time.UnixMilli(1), nil, why)
		if err != nil {
			t.Fatal(err)
		}
		if got := Resting(v, "t", "site"); got != (why != nil) {
			t.Errorf("held for %+v, and the objects rest: %v", why, got)
		}
	}
}
