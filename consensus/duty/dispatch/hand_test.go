package dispatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
)

// hand is an agent: it runs its tasks, and repeats a result until it is confirmed.
type hand struct {
	p    *play
	name string
	fail int // of a hundred attempts
	r    *rand.Rand

	mu      sync.Mutex
	lives   int
	conn    *line
	working map[string]*pb.Task   // by task and fence
	results map[string]*pb.Result // that nobody has confirmed
	tasks   map[string]*pb.Task   // all tasks of a life
}

// line is the leader's end of a session.
type line struct {
	h       *hand
	session string
	life    int
	dead    bool
}

func key(task string, fence uint64) string { return fmt.Sprint(task, "@", fence) }

func (l *line) Close() {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.dead = true
}

func (l *line) Send(m *pb.LeaderMessage) bool {
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.dead || h.lives != l.life {
		return false
	}
	forget := slices.Clone(m.Confirmed)
	if w := m.Welcome; w != nil {
		forget = append(forget, slices.DeleteFunc(w.Verdicts, func(v *pb.Verdict) bool { return v.Keep })...)
	}
	for _, v := range forget {
		k := key(v.Task, v.Fence)
		if r := h.results[k]; r != nil && r.Outcome == pb.Outcome_OUTCOME_SUCCEEDED && h.p.world != nil {
			h.p.world.confirmed(h.tasks[k])
		}
		if delete(h.results, k); h.working[k] != nil { // the leader waits for its end
			h.end(k, pb.Outcome_OUTCOME_CANCELLED)
		}
	}
	for _, c := range m.Cancels {
		switch k := key(c.Task, c.Fence); {
		case h.working[k] != nil:
			h.end(k, pb.Outcome_OUTCOME_CANCELLED)
		case h.results[k] == nil: // it never came, or is confirmed
			h.results[k] = &pb.Result{Task: c.Task, Fence: c.Fence, Outcome: pb.Outcome_OUTCOME_CANCELLED}
		}
	}
	for _, t := range m.Tasks {
		k := key(t.Id, t.Fence)
		if h.working[k] != nil || h.results[k] != nil {
			continue
		}
		h.working[k] = t
		if h.p.world != nil {
			h.tasks[k] = t
			h.p.world.began(t)
		}
		outcome := pb.Outcome_OUTCOME_SUCCEEDED
		if h.r.IntN(100) < h.fail {
			outcome = []pb.Outcome{pb.Outcome_OUTCOME_RETRYABLE, pb.Outcome_OUTCOME_NOTHING_DONE, pb.Outcome_OUTCOME_UNKNOWN}[h.r.IntN(3)]
		}
		time.AfterFunc(time.Duration(50+h.r.IntN(3000))*time.Millisecond, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.lives == l.life && h.working[k] != nil {
				h.end(k, outcome)
			}
		})
	}
	return true
}

func (h *hand) end(k string, outcome pb.Outcome) {
	t := h.working[k]
	delete(h.working, k)
	h.results[k] = &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: outcome, Message: outcome.String()}
}

// work lives until ctx ends: it keeps a session and reports over it.
func (h *hand) work(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d := h.p.dispatcher()
		h.mu.Lock()
		l := h.conn
		fresh := l == nil || l.dead || l.life != h.lives
		hello := &pb.Hello{Agent: h.name, Slots: 2, Incarnation: uint64(h.lives + 1)}
		var results []*pb.Result
		for _, r := range h.results {
			results = append(results, r)
			hello.Held = append(hello.Held, &pb.Held{Task: r.Task, Fence: r.Fence, Started: true, Result: r})
		}
		for _, t := range h.working {
			hello.Held = append(hello.Held, &pb.Held{Task: t.Id, Fence: t.Fence, Started: true})
		}
		if fresh {
			l = &line{h: h, session: fmt.Sprint(h.name, "-", time.Now().UnixNano()), life: h.lives}
			h.conn = l
		}
		h.mu.Unlock()
		switch {
		case fresh:
			if err := d.Open(ctx, l.session, hello, l); err != nil {
				l.Close()
			}
		default:
			d.Hear(l.session, uint64(n), false)
			if len(results) > 0 {
				d.ReportSoon(l.session, results)
			}
		}
	}
}

// die drops all state in memory, like an agent that is killed and started again.
func (h *hand) die() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lives++
	h.conn = nil
	h.working, h.results, h.tasks = map[string]*pb.Task{}, map[string]*pb.Result{}, map[string]*pb.Task{}
}
