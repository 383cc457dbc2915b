package worker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestInTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{}
		if w.InTouch() {
			t.Error("in touch before there was a session")
		}
		w.until = time.Now().Add(time.Second)
		if !w.InTouch() {
			t.Error("not in touch while leases hold")
		}
		time.Sleep(time.Second) // nothing has run meanwhile that could have noticed
		if w.InTouch() {
			t.Error("in touch when leases are over")
		}
	})
}
