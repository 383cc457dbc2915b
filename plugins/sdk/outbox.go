package sdk

import (
	"sync"

	"github.com/coopr/coopr/plugins/sdk/wire"
	"github.com/coopr/coopr/rpc/proto"
)

// outbox gathers the messages of tasks and sends them in batches: while one message is being sent,
// the next one fills. One goroutine, in run, owns the sending side of the stream.
type outbox struct {
	send func(*proto.ExecuteResponse) error

	mu     sync.Mutex
	room   sync.Cond // log and save wait here while queued >= wire.BatchBytes
	queued int       // bytes of logs and saves in next
	next   *proto.ExecuteResponse
	closed bool
	notify chan struct{} // holds at most one token
}

func newOutbox(send func(*proto.ExecuteResponse) error) *outbox {
	o := &outbox{send: send, next: &proto.ExecuteResponse{}, notify: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
}

func (o *outbox) signal() {
	select {
	case o.notify <- struct{}{}:
	default:
	}
}

func (o *outbox) result(r *proto.Result) {
	o.mu.Lock()
	o.next.Results = append(o.next.Results, r)
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) log(l *proto.LogLine) {
	o.mu.Lock()
	for o.queued >= wire.BatchBytes && !o.closed {
		o.room.Wait()
	}
	if o.closed {
		o.mu.Unlock()
		return
	}
	o.next.Logs = append(o.next.Logs, l)
	o.queued += len(l.Text) + 64
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) save(s *proto.SaveState) {
	o.mu.Lock()
	for o.queued >= wire.BatchBytes && !o.closed {
		o.room.Wait()
	}
	if o.closed {
		o.mu.Unlock()
		return
	}
	o.next.Saves = append(o.next.Saves, s)
	o.queued += len(s.Key) + len(s.Value) + 64
	o.mu.Unlock()
	o.signal()
}

// run sends until done is closed and everything is sent, or the stream fails. Afterwards nothing
// waits for room any more, and new messages are dropped.
func (o *outbox) run(done <-chan struct{}) error {
	defer func() {
		o.mu.Lock()
		o.closed = true
		o.room.Broadcast()
		o.mu.Unlock()
	}()
	spare := &proto.ExecuteResponse{}
	for last := false; ; {
		o.mu.Lock()
		msg := o.next
		o.next, o.queued = spare, 0
		o.room.Broadcast()
		o.mu.Unlock()
		if len(msg.Results)+len(msg.Logs)+len(msg.Saves) > 0 {
			if err := o.send(msg); err != nil {
				return err
			}
			clear(msg.Results)
			clear(msg.Logs)
			clear(msg.Saves)
			msg.Results, msg.Logs, msg.Saves = msg.Results[:0], msg.Logs[:0], msg.Saves[:0]
			spare = msg
			continue
		}
		spare = msg
		if last {
			return nil
		}
		select {
		case <-o.notify:
		case <-done:
			last = true
		}
	}
}
