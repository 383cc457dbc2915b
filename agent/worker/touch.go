package worker

import (
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
)

// InTouch says whether what is leased to this worker is certainly its own now.
// Unlike the timer that stops what runs, it is right at once when the process
// goes on after having been stopped for a while.
func (w *Worker) InTouch() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.until)
}

// ReportHome lets the leader hear of change objects, if the session still stands.
func (w *Worker) ReportHome(session string, r *pb.HomeReport) {
	w.mu.Lock()
	if session == w.session {
		w.out.Homes = append(w.out.Homes, r)
	}
	w.mu.Unlock()
	w.poke()
}
