package model

import "testing"

// TestOrphaned checks which machines are orphans, and for which reason.
func TestOrphaned(t *testing.T) {
	made := func(id string, change func(*Node)) *Node {
		n := &Node{Created: true, Confirmed: true, Results: map[string]any{"providerid": id}}
		if change != nil {
			change(n)
		}
		return n
	}
	for _, x := range []struct {
		what        string
		n           *Node
		known, busy bool
		want        OrphanReason
	}{
		{"nobody knows the cluster", nil, false, false, OrphanUnknown},
		{"no such node", nil, true, false, OrphanNoNode},
		{"no such node, but one may just be going", nil, true, true, ""},
		{"the node's own", made("m", nil), true, false, ""},
		{"a second one", made("other", nil), true, false, OrphanSecond},
		{"a second one, while one may be made", made("other", nil), true, true, ""},
		{"not seen to run yet", made("other", func(n *Node) { n.Confirmed = false }), true, false, ""},
		{"its provider gave no id", made("", nil), true, false, ""},
		{"nobody knows what became of it", made("other", func(n *Node) { n.Broken = true }), true, false, ""},
		{"gone, by the records", made("m", func(n *Node) { n.Created = false }), true, false, OrphanNotMade},
		{"never made", &Node{}, true, false, OrphanNotMade},
	} {
		if got, is := Orphaned(x.n, x.known, x.busy, "m"); got != x.want || is != (x.want != "") {
			t.Errorf("%s: %q %v", x.what, got, is)
		}
	}
}
