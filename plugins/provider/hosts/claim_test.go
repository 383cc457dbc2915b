package hosts

import (
	"encoding/json"
	"testing"
)

// FuzzDecodeClaim reads the file that a machine has about its owner. A claim that is accepted
// is the same when it is written and read again.
func FuzzDecodeClaim(f *testing.F) {
	f.Add(`{"tenant":"t","mesh":"m","cluster":"00000001","node":"00000001-1000","fence":7,"task":"00000001-001/0"}`)
	f.Add(`{"refused":"its disk is full"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		h := &host{machine: &machine{Name: "m"}}
		c, err := h.decode(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := h.decode(string(written)); err != nil || *again != *c {
			t.Errorf("%s comes back as %+v: %v", written, again, err)
		}
	})
}
