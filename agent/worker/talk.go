package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// talk holds one session, from hello to its end.
func (w *Worker) talk(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	w.hangUp = cancel
	w.mu.Unlock()
	stream, err := w.cfg.Connect(ctx)
	if err != nil {
		return err
	}
	sent := time.Now()
	if err := stream.Send(&pb.WorkerMessage{Hello: w.hello()}); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("welcome: %w", err)
	}
	if first.Welcome == nil {
		return errors.New("the leader did not say welcome first")
	}
	s := &talk{w: w, session: first.Welcome.Session, stream: stream, ttl: time.Duration(first.Welcome.TtlMs) * time.Millisecond, beats: map[uint64]time.Time{}}
	w.welcome(first.Welcome, sent, s.ttl)
	defer w.parted(first.Welcome.Session)
	ended := make(chan error, 1)
	go func() { ended <- s.receive() }()
	err = s.send(ctx, time.Duration(first.Welcome.HeartbeatMs)*time.Millisecond, ended)
	cancel()
	return err
}

// hello says all that the worker holds.
func (w *Worker) hello() *pb.Hello {
	h := w.cfg.Hello()
	w.mu.Lock()
	defer w.mu.Unlock()
	h.Session = w.session
	for k, a := range w.held {
		h.Held = append(h.Held, &pb.Held{Task: k.Task, Fence: k.Fence, Started: true, Result: a.result})
	}
	// Results are said with what is held, and come again with the next hello
	// until they are confirmed.
	w.out.Results, w.out.Homes = nil, nil
	return h
}

// welcome takes what the leader says of the leases that were held.
func (w *Worker) welcome(m *pb.Welcome, sent time.Time, ttl time.Duration) {
	var abandon []*pb.Verdict
	for _, v := range m.Verdicts {
		if !v.Keep {
			abandon = append(abandon, v)
		}
	}
	w.settle(abandon)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = m.Session
	w.until = sent.Add(ttl - ttl/5)
	select {
	case w.anew <- struct{}{}:
	default:
	}
	w.out.Leaving = w.leaving
	w.out.Wanted, w.out.Health = nil, nil // this leader says anew what it wants to know
	w.cfg.Logger.Debug("session open", "session", m.Session, "kept", len(m.Verdicts)-len(abandon), "abandoned", len(abandon))
	w.poke()
}

func (w *Worker) parted(session string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.session == session {
		w.session = ""
	}
}

// talk is a session that is open. The maps are the sender's and receiver's
// together, under the worker's lock.
type talk struct {
	w       *Worker
	session string
	stream  Stream
	ttl     time.Duration
	beat    uint64
	beats   map[uint64]time.Time // heartbeats that were not answered yet
}

// gather is how long after a message the next results wait for those of tasks
// that still run, so that they share a message and a log entry: 40 % of the
// processor time of short tasks. What comes later, or last, goes at once.
const gather = 5 * time.Millisecond

// moreToCome says that what waits to be sent are results only, and that others
// will follow.
func (w *Worker) moreToCome() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaving || len(w.out.Returned)+len(w.out.Saves)+len(w.out.Homes) > 0 {
		return false
	}
	for _, a := range w.held {
		if a.result == nil {
			return true
		}
	}
	return false
}

func (s *talk) send(ctx context.Context, every time.Duration, ended <-chan error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	gathered := time.NewTimer(0)
	defer gathered.Stop()
	var sent time.Time
	for {
		beat := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-s.w.wake:
			if wait := gather - time.Since(sent); wait > 0 && s.w.moreToCome() {
				gathered.Reset(wait)
				continue
			}
		case <-gathered.C:
		case <-tick.C:
			beat = true
		}
		if m := s.next(beat); m != nil {
			sent = time.Now()
			if err := s.stream.Send(m); err != nil {
				return err
			}
		}
	}
}

// next takes what waits to be sent. What is lost with the stream is said again
// in the next hello, but for saves and returned leases, which go back.
func (s *talk) next(beat bool) *pb.WorkerMessage {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &pb.WorkerMessage{Results: w.out.Results, Returned: w.out.Returned, Saves: w.out.Saves, Leaving: w.leaving, Wanted: w.out.Wanted, Health: w.out.Health, Homes: w.out.Homes}
	w.out.Results, w.out.Returned, w.out.Saves, w.out.Wanted, w.out.Health, w.out.Homes = nil, nil, nil, nil, nil, nil
	if beat {
		s.beat++
		m.Heartbeat = s.beat
		now := time.Now()
		s.beats[s.beat] = now
		for k, a := range w.held {
			if a.result == nil && !a.marked && now.Sub(a.since) > time.Second {
				a.marked = true
				m.Started = append(m.Started, &pb.Started{Task: k.Task, Fence: k.Fence})
			}
		}
	} else if len(m.Results)+len(m.Returned)+len(m.Saves)+len(m.Wanted)+len(m.Health)+len(m.Homes) == 0 && !m.Leaving {
		return nil
	}
	return m
}

func (s *talk) receive() error {
	w := s.w
	for {
		m, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if m.Heartbeat > 0 {
			w.mu.Lock()
			if at, ok := s.beats[m.Heartbeat]; ok {
				// Leases that are over stay so until fence has stopped what they were
				// for. An agent that slept may be answered by itself: a leader that does
				// not know yet that it is none any more.
				if w.until.IsZero() || time.Now().Before(w.until) {
					w.until = at.Add(s.ttl - s.ttl/5)
				}
				for b := range s.beats {
					if b <= m.Heartbeat {
						delete(s.beats, b)
					}
				}
			}
			w.mu.Unlock()
		}
		if len(m.Confirmed) > 0 {
			w.settle(m.Confirmed)
		}
		for _, c := range m.Cancels {
			w.cancel(c)
		}
		if len(m.Tasks) > 0 {
			w.take(m.Tasks)
		}
		if m.WatchAnew || len(m.Unwatch)+len(m.Watches) > 0 {
			w.checks.take(m)
		}
		if len(m.Sites) > 0 && w.cfg.Sites != nil {
			w.cfg.Sites(s.session, m.Sites)
		}
		if len(m.Records) > 0 && w.cfg.Records != nil {
			var list []model.Agent
			if err := json.Unmarshal(m.Records, &list); err == nil {
				w.cfg.Records(list)
			}
		}
	}
}
