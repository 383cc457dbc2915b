package keyring

import (
	"bytes"
	"errors"
	"testing"
)

func TestMAC(t *testing.T) {
	r := ring(t, empty(t), 1)
	mac, err := r.MAC("tickets", []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put(Set{Active: 2, Keys: []Key{NewKey(2)}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Verify("tickets", []byte("data"), mac); err != nil {
		t.Error("after another key became active:", err)
	}
	if err := r.Verify("others", []byte("data"), mac); !errors.Is(err, ErrForged) {
		t.Error("for another purpose:", err)
	}
	if err := r.Verify("tickets", []byte("date"), mac); !errors.Is(err, ErrForged) {
		t.Error("for other data:", err)
	}
	for i := range mac {
		bad := bytes.Clone(mac)
		bad[i] ^= 1
		if err := r.Verify("tickets", []byte("data"), bad); !errors.Is(err, ErrForged) && !errors.Is(err, ErrNoKey) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	for n := range mac {
		if err := r.Verify("tickets", []byte("data"), mac[:n]); !errors.Is(err, ErrForged) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := ring(t, empty(t)).MAC("tickets", nil); !errors.Is(err, ErrNoKey) {
		t.Error("from an empty keyring:", err)
	}
}

// Keys of purposes differ from each other and from the key of which they are derived, and are the same at each voter.
func TestKeyOfPurpose(t *testing.T) {
	k := NewKey(7)
	for what, other := range map[string]Key{"itself": k, "another purpose": k.For("others"), "another key": NewKey(7).For("logins")} {
		if k.For("logins").Same(other) {
			t.Errorf("the key of a purpose is that of %s", what)
		}
	}
	if got := k.For("logins"); got.Number != 7 || !got.Same(k.For("logins")) {
		t.Errorf("the key of a purpose is %s", got)
	}
}
