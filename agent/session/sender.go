package session

import (
	"sync"

	pb "github.com/coopr/coopr/rpc/proto"
)

// maxTasks is the number of tasks from which on no other message is merged into a message.
const maxTasks = 1024

// sender queues the leader's messages to a worker; one goroutine sends them. Queued
// messages are merged if their order does not matter.
type sender struct {
	notify chan struct{} // one slot: the queue is not empty
	closed chan struct{}

	mu    sync.Mutex
	queue []*pb.LeaderMessage
	over  bool
}

func newSender(out stream) *sender {
	s := &sender{notify: make(chan struct{}, 1), closed: make(chan struct{})}
	go s.run(out)
	return s
}

// Send queues a message. It reports whether the session is still open.
func (s *sender) Send(m *pb.LeaderMessage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.queue = append(s.queue, m)
	select {
	case s.notify <- struct{}{}:
	default:
	}
	return true
}

// Close ends the session.
func (s *sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		close(s.closed)
	}
}

func (s *sender) run(out stream) {
	for {
		select {
		case <-s.closed:
			return
		case <-out.Context().Done():
			return
		case <-s.notify:
		}
		s.mu.Lock()
		queue := s.queue
		s.queue = nil
		s.mu.Unlock()
		for len(queue) > 0 {
			m := queue[0]
			queue = queue[1:]
			for len(queue) > 0 && canMerge(m, queue[0]) {
				merge(m, queue[0])
				queue = queue[1:]
			}
			if out.Send(m) != nil {
				s.Close()
				return
			}
		}
	}
}

// canMerge reports whether next can be merged into m.
func canMerge(m, next *pb.LeaderMessage) bool {
	return next.Welcome == nil && m.Welcome == nil && m.Heartbeat == 0 && len(m.Tasks) < maxTasks && !ordered(m) && !ordered(next)
}

// ordered reports whether a message is about health checks or sites, which the
// worker handles in the order in which they were sent.
func ordered(m *pb.LeaderMessage) bool {
	return m.WatchAnew || len(m.Watches)+len(m.Unwatch)+len(m.Sites) > 0
}

// merge appends next to m. Sessions may share a message's lists, so m gets new ones.
func merge(m, next *pb.LeaderMessage) {
	m.Tasks = append(m.Tasks[:len(m.Tasks):len(m.Tasks)], next.Tasks...)
	m.Cancels = append(m.Cancels[:len(m.Cancels):len(m.Cancels)], next.Cancels...)
	m.Confirmed = append(m.Confirmed[:len(m.Confirmed):len(m.Confirmed)], next.Confirmed...)
	m.Heartbeat, m.Saved = max(m.Heartbeat, next.Heartbeat), max(m.Saved, next.Saved)
	if next.Registry != nil {
		m.Registry = next.Registry
	}
	if next.ClocksChanged {
		m.Clocks, m.ClocksChanged = next.Clocks, true
	}
}
