package keys

import (
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// exporter replaces the keyring of a voter by an empty one, and returns its store.
func (g *group) exporter(id string) *memkeys.Store {
	g.t.Helper()
	store := &memkeys.Store{}
	r, err := keyring.Open(store)
	if err != nil {
		g.t.Fatal(err)
	}
	g.rings[id] = r
	return store
}

// TestExports exports the keyrings of a leader and of another voter. The mesh has the latest export of the key that is in use on record.
func TestExports(t *testing.T) {
	g := newGroup(t, state.FeatureLevel)
	a, b := g.exporter("a"), g.exporter("b")
	g.term("a")
	expect := func(what string, want int64) {
		t.Helper()
		if err := g.c.NoteExports(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := g.View().KeyringExported(); got != want {
			t.Errorf("%s: exported at %d, not %d", what, got, want)
		}
	}
	expect("a mesh without keys", 0)
	if err := g.c.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("no export", 0)
	key, err := g.rings["a"].Key(1)
	if err != nil {
		t.Fatal(err)
	}
	of := func(k keyring.Key, at int64) keyring.Exported {
		return keyring.Exported{Number: k.Number, Print: k.Print(), At: time.UnixMilli(at)}
	}
	b.NoteExport(of(keyring.NewKey(1), 5))
	expect("a key of another mesh", 0)
	b.NoteExport(of(keyring.NewKey(2), 6))
	expect("another key", 0)
	b.NoteExport(of(key, 7))
	expect("that of another voter", 7)
	index := g.index
	a.NoteExport(of(key, 3))
	expect("an older one of the leader", 7)
	if g.index != index {
		t.Errorf("%d entries that change nothing", g.index-index)
	}
	a.NoteExport(of(key, 9))
	if err := g.c.round(t.Context()); err != nil || g.View().KeyringExported() != 9 {
		t.Errorf("after a round: %v, %d", err, g.View().KeyringExported())
	}
	delete(g.rings, "b")
	expect("without the other voter", 9)

	old := newGroup(t, logformat.SealedLevel)
	store := old.exporter("a")
	old.term("a")
	old.level["b"] = logformat.SealedLevel
	_ = old.c.round(t.Context()) // it fails, as the level cannot rise
	if key, err := old.rings["a"].Key(1); err == nil {
		store.NoteExport(of(key, 7))
	}
	if err := old.c.NoteExports(t.Context()); err != nil || old.View().KeyringExported() != 0 {
		t.Errorf("in a mesh with older voters: %v, %d", err, old.View().KeyringExported())
	}
}
