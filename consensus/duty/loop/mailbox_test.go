package loop_test

import (
	"testing"

	"github.com/coopr/coopr/consensus/duty/loop"
)

func TestMailbox(t *testing.T) {
	var m loop.Mailbox[func()]
	var got []int
	for i := range 3 {
		if !m.Post(func() { got = append(got, i) }) {
			t.Fatal("an open mailbox refused a call")
		}
	}
	if m.CloseIfEmpty() {
		t.Error("a mailbox with calls was closed")
	}
	for _, call := range m.Take() {
		call()
	}
	if len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 2 {
		t.Errorf("calls %v", got)
	}
	if len(m.Take()) > 0 || !m.CloseIfEmpty() || m.Post(func() {}) {
		t.Error("a mailbox that was closed takes calls")
	}
	m = loop.Mailbox[func()]{}
	m.Post(func() {})
	if m.Close(); len(m.Take()) > 0 || m.Post(func() {}) {
		t.Error("a mailbox that was closed has calls")
	}
}
