package worker

import "time"

// InTouch says whether what is leased to this worker is certainly its own now.
// Unlike the timer that stops what runs, it is right at once when the process
// goes on after having been stopped for a while.
func (w *Worker) InTouch() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Before(w.until)
}
