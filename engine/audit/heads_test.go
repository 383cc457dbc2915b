package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/signing"
)

// signHead adds a record with a signed head.
func signHead(t *testing.T, w *Writer, h SignedHead) {
	t.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = Canonical(text); err != nil {
		t.Fatal(err)
	}
	w.Change(&Change{Type: TypeSigned, Actor: "coopr", After: text})
}

func headOf(t *testing.T, at Place, seed []byte) SignedHead {
	t.Helper()
	h, err := at.Sign(1, seed)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A signed head must be the mesh's, and match the chain. Records after the last one are covered by none.
func TestSignedHeads(t *testing.T) {
	seed, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	keys := signing.Chain{signing.Public(1, seed)}
	for _, c := range []struct {
		name string
		head func(at Place) SignedHead
		bad  string
	}{
		{"good", func(at Place) SignedHead { return headOf(t, at, seed) }, ""},
		{"forged", func(at Place) SignedHead { return headOf(t, at, other) }, "forged"},
		{"of another chain", func(at Place) SignedHead { at.Hash[0]++; return headOf(t, at, seed) }, "does not match"},
		{"of a later record", func(at Place) SignedHead { at.Seq += 9; return headOf(t, at, seed) }, "does not match"},
		{"by an unknown key", func(at Place) SignedHead { h := headOf(t, at, seed); h.Key = 2; return h }, "not known"},
	} {
		w := (&Trail{}).Write()
		for range 3 {
			w.Change(&Change{Type: "x"})
		}
		signHead(t, w, headOf(t, w.Done().Stats().Head, seed))
		w.Change(&Change{Type: "x"})
		signHead(t, w, c.head(w.Done().Stats().Head))
		w.Change(&Change{Type: "x"})
		tr := w.Done()
		file, err := VerifyLines(bytes.NewReader(export(t, tr, Filter{}, 0)), keys)
		if err != nil {
			t.Fatal(err)
		}
		for kind, rep := range map[string]Verification{"log": tr.Verify(keys), "file": file} {
			switch {
			case c.bad == "" && (!rep.OK || rep.Signed != 5 || rep.Heads != 2 || rep.Head.Seq != 7):
				t.Errorf("%s, %s: %+v", c.name, kind, rep)
			case c.bad != "" && (rep.OK || rep.Bad.Seq != 6 || !strings.Contains(rep.Bad.Reason, c.bad)):
				t.Errorf("%s, %s: %+v", c.name, kind, rep.Bad)
			}
		}
		if file, err := VerifyLines(bytes.NewReader(export(t, tr, Filter{}, 3)), keys); c.bad == "" && (err != nil || !file.OK || file.Heads != 2) {
			t.Errorf("%s, a part: %+v %v", c.name, file, err)
		}
	}
}
