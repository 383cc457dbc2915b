package host

import (
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/coopr/coopr/internal/uptime"
	"github.com/coopr/coopr/plugins/sdk/wire"
	"github.com/coopr/coopr/rpc/proto"
)

// attempt identifies one attempt at a task.
type attempt struct {
	task  string
	fence uint64
}

// call is one task on its way through a plugin.
type call struct {
	task  *proto.Task
	sink  Sink
	lease lease              // set by WithLease; may be nil
	done  chan *proto.Result // receives exactly one result
	sent  bool               // guarded by stream.mu
}

// stream carries the tasks of a process: callers queue tasks, one goroutine sends everything queued
// as one message, another one reads.
type stream struct {
	mu     sync.Mutex
	calls  map[attempt]*call
	queue  []*call
	stops  []*proto.Cancel
	failed error
	// answered reports that the plugin has completed a task.
	answered bool
	notify   chan struct{} // holds at most one token
}

func newStream() *stream {
	return &stream{calls: map[attempt]*call{}, notify: make(chan struct{}, 1)}
}

func (s *stream) signal() {
	select {
	case s.notify <- struct{}{}:
	default:
	}
}

// send queues a task. An error means that the plugin never received it.
func (s *stream) send(c *call) error {
	key := attempt{c.task.Id, c.task.Fence}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	if s.calls[key] != nil {
		return fmt.Errorf("task %s with fence %d is running already", key.task, key.fence)
	}
	s.calls[key] = c
	s.queue = append(s.queue, c)
	s.signal()
	return nil
}

// cancel orders the plugin to stop a task. A task that is still queued ends at once.
func (s *stream) cancel(c *call, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := attempt{c.task.Id, c.task.Fence}
	if s.calls[key] != c {
		return
	}
	if !c.sent {
		delete(s.calls, key)
		c.done <- result(c.task, proto.Outcome_OUTCOME_NOTHING_DONE, "cancelled before it was sent to the plugin: "+reason)
		return
	}
	s.stops = append(s.stops, &proto.Cancel{Task: key.task, Fence: key.fence, Reason: reason})
	s.signal()
}

// write sends queued tasks until the process is dead. A failed send needs no handling here: the
// reader notices it too.
func (s *stream) write(to grpc.BidiStreamingClient[proto.ExecuteRequest, proto.ExecuteResponse], dead <-chan struct{}) {
	msg := &proto.ExecuteRequest{}
	for {
		s.mu.Lock()
		n, bytes := 0, 0
		for ; n < len(s.queue) && bytes < wire.BatchBytes; n++ {
			c := s.queue[n]
			if s.calls[attempt{c.task.Id, c.task.Fence}] != c {
				continue // cancelled while it was queued
			}
			left, limited := c.lease.left()
			if limited && left <= 0 {
				delete(s.calls, attempt{c.task.Id, c.task.Fence})
				c.done <- result(c.task, proto.Outcome_OUTCOME_NOTHING_DONE, leaseOver)
				continue
			}
			if now := uptime.Now(); limited && now > 0 && (msg.BeginBefore == 0 || int64(now+left) < msg.BeginBefore) {
				msg.BeginBefore = int64(now + left)
			}
			c.sent = true
			bytes += len(c.task.Input) + 128
			msg.Tasks = append(msg.Tasks, c.task)
		}
		left := copy(s.queue, s.queue[n:])
		clear(s.queue[left:])
		s.queue = s.queue[:left]
		msg.Cancels = append(msg.Cancels, s.stops...)
		s.stops = s.stops[:0]
		s.mu.Unlock()

		if len(msg.Tasks)+len(msg.Cancels) > 0 {
			if err := to.Send(msg); err != nil {
				return
			}
			clear(msg.Tasks)
			msg.Tasks, msg.Cancels, msg.BeginBefore = msg.Tasks[:0], msg.Cancels[:0], 0
			if left > 0 {
				continue
			}
		}
		select {
		case <-s.notify:
		case <-dead:
			return
		}
	}
}

// deliver passes log lines and saved values to their sinks and results to their callers. Messages
// without a call are late, and dropped.
func (s *stream) deliver(m *proto.ExecuteResponse) {
	get := func(task string, fence uint64) *call {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.calls[attempt{task, fence}]
	}
	for _, l := range m.Logs {
		if c := get(l.Task, l.Fence); c != nil {
			c.sink.Log(l)
		}
	}
	for _, v := range m.Saves {
		if c := get(v.Task, v.Fence); c != nil {
			c.sink.Save(v)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = s.answered || len(m.Results) > 0
	for _, r := range m.Results {
		key := attempt{r.Task, r.Fence}
		c := s.calls[key]
		if c == nil {
			continue
		}
		delete(s.calls, key)
		if _, known := proto.Outcome_name[int32(r.Outcome)]; !known || r.Outcome == proto.Outcome_OUTCOME_UNSPECIFIED {
			r.Outcome, r.Message = proto.Outcome_OUTCOME_UNKNOWN, "the plugin returned a result without an outcome: "+r.Message
		}
		c.done <- r
	}
}

// useful reports whether the plugin has completed a task.
func (s *stream) useful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// unfinished adds the attempts that were sent and have no result yet.
func (s *stream) unfinished(to map[attempt]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.calls {
		if c.sent {
			to[key] = true
		}
	}
}

// fail answers every waiting call: with the outcome lost if its task was sent, else with
// NOTHING_DONE.
func (s *stream) fail(reason error, lost proto.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = reason
	for key, c := range s.calls {
		delete(s.calls, key)
		o := lost
		if !c.sent {
			o = proto.Outcome_OUTCOME_NOTHING_DONE
		}
		c.done <- result(c.task, o, reason.Error())
	}
	s.queue = nil
}
