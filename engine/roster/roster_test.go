package roster

import "testing"

// The newest key is replaced by any other. The one before is good for the repetition of a request whose answer was lost. A key that is
// not on record is one that a voter has signed without a leader, if it is newer; otherwise it is a copy's.
func TestWhichKeysRenew(t *testing.T) {
	a := (&Identity{Keys: []string{"k1"}, Issued: 100}).WithKey("k2", 200)
	for _, c := range []struct {
		old    string
		issued int64
		next   string
		good   bool
	}{
		{"k2", 200, "k3", true},
		{"k2", 200, "k2", true},
		{"k1", 100, "k2", true},
		{"k1", 100, "k3", false},
		{"k0", 50, "k3", false},
		{"k0", 200, "k3", false},
		{"k3", 201, "k4", true},
		{"k3", 199, "k4", false},
	} {
		if got := a.Renews(c.old, c.issued, c.next); got != c.good {
			t.Errorf("%s of %d by %s: %v", c.old, c.issued, c.next, got)
		}
	}
	if got := a.WithKey("k3", 300); len(got.Keys) != 2 || got.Newest() != "k3" || got.Keys[0] != "k2" || got.Issued != 300 {
		t.Errorf("%+v", got)
	}
	if (&Identity{}).Newest() != "" {
		t.Error("an identity without keys has a newest one")
	}
}
