package worker

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
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

// answer is a stream on which one heartbeat is answered.
type answer struct {
	Stream
	beat uint64
}

func (a *answer) Recv() (*pb.LeaderMessage, error) {
	if a.beat == 0 {
		return nil, io.EOF
	}
	m := &pb.LeaderMessage{Heartbeat: a.beat}
	a.beat = 0
	return m, nil
}

// The answer to a heartbeat does not renew leases that have expired, also when every leased task has been
// stopped. A suspended agent sends a heartbeat when it resumes, and a leader that was suspended too answers
// it, although another one may have ended the session.
func TestOverIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{}
		heard := func() bool {
			s := &session{w: w, stream: &answer{beat: 1}, ttl: 5 * time.Second, beats: map[uint64]time.Time{1: time.Now()}}
			if err := s.receive(); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			return w.InTouch()
		}
		w.until = time.Now().Add(time.Second)
		if !heard() {
			t.Error("an answer in time does not count")
		}
		time.Sleep(time.Until(w.until))
		if heard() {
			t.Error("in touch by an answer that came when leases were over")
		}
		w.until = time.Time{} // as fence leaves it
		if heard() {
			t.Error("in touch by an answer that came after all was stopped")
		}
	})
}
