package worker

import (
	"time"

	"github.com/coopr/coopr/engine/lease"
	pb "github.com/coopr/coopr/rpc/proto"
)

// InTouch reports whether the leases of this worker are certainly still its own. Unlike the
// fence, which cancels tasks, it is right immediately after the process was suspended for a
// while.
func (w *Worker) InTouch() bool { return lease.InTouch(time.Now(), w.Until()) }

// Until returns the end of the time in which the leases of this worker are certainly its own; zero
// stands for a worker without leases.
func (w *Worker) Until() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.until
}

// ReportObjects sends the leader a report of change objects, if the session still lasts.
func (w *Worker) ReportObjects(session string, r *pb.RuntimeReport) {
	w.mu.Lock()
	if session == w.session {
		w.out.Runtimes = append(w.out.Runtimes, r)
	}
	w.mu.Unlock()
	w.notify()
}
