package logstore_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

func TestMemorySnapshots(t *testing.T) {
	m := logstore.NewMemorySnapshots(2)
	create := func(index, term uint64) raft.SnapshotSink {
		t.Helper()
		s, err := m.Create(1, index, term, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(s, term, "/", index); err != nil {
			t.Fatal(err)
		}
		return s
	}
	expect := func(want ...uint64) {
		t.Helper()
		list, err := m.List()
		if err != nil || len(list) != len(want) {
			t.Fatalf("%v, %v, want %v", list, err, want)
		}
		for i, meta := range list {
			_, r, err := m.Open(meta.ID)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil || meta.Index != want[i] || string(text) != fmt.Sprint(meta.Term, "/", meta.Index) || meta.Size != int64(len(text)) {
				t.Fatalf("%+v, %q, %v", meta, text, err)
			}
		}
	}
	begun := create(10, 1) // is closed after a newer one
	expect()
	for _, end := range []func() error{create(20, 1).Close, create(15, 1).Cancel, begun.Close, begun.Cancel} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	expect(20, 10)
	if err := create(5, 2).Close(); err != nil {
		t.Fatal(err)
	}
	expect(5, 20)
	if _, _, err := m.Open("nothing"); err == nil {
		t.Fatal("opened nothing")
	}
	if _, err := m.Create(0, 1, 1, raft.Configuration{}, 1, nil); err == nil {
		t.Fatal("an old version was taken")
	}
}
