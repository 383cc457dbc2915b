package worker

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// checksAtOnce bounds the checks that run at a time on one agent. Further checks wait: a
// slow agent checks less often.
const checksAtOnce = 16

// gonePause bounds the pause before the second probe of a machine that seems to be gone.
const gonePause = 30 * time.Second

// goneTwice is how many answers in a row make a machine gone.
const goneTwice = 2

// checks watches the health of services as the leader orders. It counts failures itself
// and reports only verdicts that the leader does not have. The keys of its queue are those
// of the watches.
type checks struct {
	exec    host.Executor
	inTouch func() bool
	// say sends the leader the key of a watch whose tasks are missing, or a verdict.
	say   func(wanted string, h *pb.Health)
	ctx   context.Context
	stop  context.CancelFunc
	queue *loop.Queue[string]

	mu      sync.Mutex
	watches map[string]*watch
	begun   bool // the queue runs
	closed  bool
	count   uint64 // of checks, to tell them apart
	running sync.WaitGroup
}

// watch is one service on one node. Its fields are guarded by checks.mu.
type watch struct {
	*pb.Watch
	next     time.Time // of the next check
	from     time.Time // when this version of the node came
	failures uint32
	gone     int // answers in a row that the machine is gone
	verdict  model.HealthStatus
	told     model.HealthStatus
	toldGone bool
	asked    bool // the leader was asked for the tasks
	over     bool
}

func newChecks(exec host.Executor, inTouch func() bool, say func(string, *pb.Health)) *checks {
	ctx, stop := context.WithCancel(context.Background())
	c := &checks{exec: exec, inTouch: inTouch, say: say, ctx: ctx, stop: stop, watches: map[string]*watch{}}
	c.queue = loop.New(loop.Config[string]{Reconcile: c.reconcile, Parallel: checksAtOnce})
	return c
}

// close ends all checks and waits for them.
func (c *checks) close() {
	c.mu.Lock()
	c.closed = true
	for k := range c.watches {
		c.dropLocked(k)
	}
	c.mu.Unlock()
	c.stop()
	c.running.Wait()
}

// take carries out the leader's orders about watches.
func (c *checks) take(m *pb.LeaderMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if !c.begun {
		c.begun = true
		c.running.Go(func() { _ = c.queue.Run(c.ctx) }) // it ends with ctx
	}
	if m.WatchAnew {
		named := make(map[string]bool, len(m.Watches))
		for _, n := range m.Watches {
			named[n.Key] = true
		}
		for k := range c.watches {
			if !named[k] {
				c.dropLocked(k)
			}
		}
	}
	for _, k := range m.Unwatch {
		c.dropLocked(k)
	}
	for _, n := range m.Watches {
		c.watchLocked(n)
	}
}

func (c *checks) dropLocked(key string) {
	if w := c.watches[key]; w != nil {
		w.over = true
		delete(c.watches, key)
	}
}

// watchLocked begins a watch, or updates it.
func (c *checks) watchLocked(n *pb.Watch) {
	w, bare := c.watches[n.Key], n.Check == nil && n.Machine == nil
	if w == nil || w.NodeVersion != n.NodeVersion {
		c.dropLocked(n.Key)
		w = &watch{Watch: n, from: time.Now()}
		c.watches[n.Key] = w
		c.scheduleLocked(w, millis(n.DelayMs)+part(n))
	} else if bare && w.Version == n.Version {
		n.Check, n.Machine = w.Check, w.Machine
	}
	w.Watch = n
	if bare {
		w.told, w.toldGone = model.HealthStatus(n.Known), n.Gone
	}
	if w.asked { // this is the answer, or the order of a leader that was not asked yet
		w.asked = false
		wait := time.Duration(0)
		if bare {
			wait = part(n)
		}
		c.scheduleLocked(w, wait)
	}
	c.tellLocked(w, "", 0)
}

func (c *checks) scheduleLocked(w *watch, wait time.Duration) {
	w.next = time.Now().Add(wait)
	c.queue.AddAt(w.Key, w.next)
}

// part returns a random part of the interval of a watch, so that watches that begin
// together are not checked together.
func part(n *pb.Watch) time.Duration {
	return time.Duration(rand.Float64() * float64(millis(n.IntervalMs)))
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// reconcile runs the check of a watch if it is due. It returns when the next one is.
func (c *checks) reconcile(_ context.Context, key string) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watches[key]
	switch {
	case w == nil || c.closed:
		return time.Time{}, nil
	case time.Now().Before(w.next): // the time of a watch that this one replaced
		return w.next, nil
	case !c.inTouch(): // another agent may have the watch by now
		w.next = time.Now().Add(millis(w.IntervalMs))
		return w.next, nil
	case w.Check == nil && w.Machine == nil:
		if !w.asked {
			w.asked = true
			c.say(w.Key, nil)
		}
		return time.Time{}, nil // the answer schedules the watch
	}
	spec := w.Watch
	c.count++
	number := c.count
	c.mu.Unlock()
	wait := c.check(w, spec, number)
	c.mu.Lock()
	if w.over {
		return time.Time{}, nil // a watch that replaced this one has been added
	}
	w.next = time.Now().Add(wait)
	return w.next, nil
}

// check runs the tasks of a watch once, and notes what they found. It returns the time
// until the next check.
func (c *checks) check(w *watch, spec *pb.Watch, number uint64) time.Duration {
	wait := millis(spec.IntervalMs)
	healthy, message, machine := true, "", uint32(0)
	if spec.Check != nil {
		res := c.execute(spec.Check, number)
		healthy, message = res.Outcome == pb.Outcome_OUTCOME_SUCCEEDED, said(res)
		if res.Outcome == pb.Outcome_OUTCOME_CANCELLED {
			return wait
		}
	}
	if spec.Machine != nil && (spec.Check == nil || !healthy) {
		machine = c.probeMachine(spec.Machine, number)
	}
	if c.ctx.Err() != nil || !c.inTouch() {
		return wait // the agent may be out of touch with the node, too
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.over || w.NodeVersion != spec.NodeVersion {
		return wait
	}
	switch {
	case machine == 2:
		w.gone++
		wait = min(wait, gonePause)
	case machine == 1 || healthy && spec.Check != nil:
		w.gone, machine = 0, 1
	}
	switch {
	case healthy && spec.Check != nil:
		w.failures, w.verdict = 0, model.Healthy
	case !healthy && (w.verdict == model.Healthy || time.Since(w.from) > millis(spec.DelayMs+spec.GraceMs)):
		if w.failures++; w.failures >= spec.Failures {
			w.verdict = model.Unhealthy
		}
	}
	c.tellLocked(w, message, machine)
	return wait
}

// tellLocked reports a verdict that the leader does not have yet.
func (c *checks) tellLocked(w *watch, message string, machine uint32) {
	gone := w.gone >= goneTwice
	news := w.verdict != "" && w.verdict != w.told
	if gone != w.toldGone && (gone || machine == 1) {
		news = true
	}
	if !news {
		return
	}
	h := &pb.Health{Key: w.Key, NodeVersion: w.NodeVersion, Healthy: w.verdict == model.Healthy, Message: message}
	if gone {
		h.Machine, h.Healthy = 2, false
	} else if machine == 1 {
		h.Machine = 1
	}
	if w.verdict != "" {
		w.told = w.verdict
	}
	w.toldGone = gone
	c.say("", h)
}

// execute carries out one task.
func (c *checks) execute(t *pb.Task, number uint64) *pb.Result {
	one := proto.CloneOf(t)
	one.Fence, one.Attempt = number, 1
	ctx, cancel := context.WithTimeout(c.ctx, millis(t.TimeoutMs)+5*time.Second) // the plugin's host enforces the timeout itself
	defer cancel()
	res := c.exec.Execute(ctx, one, host.Discard{})
	if len(t.Secrets) > 0 {
		hide := mask.New(t.Secrets...)
		res.Message, res.LogTail = hide.Text(res.Message), "" // the tail may begin within a secret
	}
	return res
}

// probeMachine asks a machine's provider about it. It returns 1 if the machine exists, 2
// if it is gone, and 0 if the provider did not answer.
func (c *checks) probeMachine(t *pb.Task, number uint64) uint32 {
	switch res := c.execute(t, number); {
	case res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED:
		return 0
	case res.Adopted:
		return 1
	}
	return 2
}

// said returns the message of a check, short enough for a record.
func said(r *pb.Result) string {
	m := strings.TrimSpace(r.Message)
	if tail := strings.TrimSpace(r.LogTail); tail != "" {
		lines := strings.Split(tail, "\n")
		m += ": " + lines[len(lines)-1]
	}
	const most = 500
	if len(m) > most {
		m = m[:most] + "…"
	}
	return strings.ToValidUTF8(m, "?")
}
