package worker

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// checksAtOnce bounds the checks that run at a time on one agent; more wait for
// their turn, and so does what comes after them: a slow agent checks less often.
const checksAtOnce = 16

// gonePause bounds the time to the second look at a machine that seems gone.
const gonePause = 30 * time.Second

// goneTwice is how many answers in a row make a machine gone.
const goneTwice = 2

// checks watches the health of services, as the leader told it to. It counts
// failures itself and says only what is not known already.
type checks struct {
	exec    host.Executor
	inTouch func() bool
	// say passes on what the leader is to hear: watches whose tasks are missing,
	// and verdicts.
	say  func(wanted string, h *pb.Health)
	ctx  context.Context
	stop context.CancelFunc
	room chan struct{}

	mu      sync.Mutex
	watches map[string]*watch
	closed  bool
	count   uint64 // of checks, to tell them apart
	running sync.WaitGroup
}

// watch is one service on one node. Its fields are under checks.mu.
type watch struct {
	*pb.Watch
	timer    *time.Timer
	from     time.Time // when this node version came
	failures uint32
	gone     int // answers in a row that the machine is gone
	verdict  model.HealthStatus
	told     model.HealthStatus
	toldGone bool
	busy     bool // a check runs
	asked    bool // the leader was asked for the tasks
	over     bool
}

func newChecks(exec host.Executor, inTouch func() bool, say func(string, *pb.Health)) *checks {
	ctx, stop := context.WithCancel(context.Background())
	return &checks{exec: exec, inTouch: inTouch, say: say, ctx: ctx, stop: stop, room: make(chan struct{}, checksAtOnce), watches: map[string]*watch{}}
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

// take carries out what the leader says of watches.
func (c *checks) take(m *pb.LeaderMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
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
		w.timer.Stop()
		delete(c.watches, key)
	}
}

// watchLocked begins a watch, or takes what changed of it.
func (c *checks) watchLocked(n *pb.Watch) {
	w, bare := c.watches[n.Key], n.Check == nil && n.Machine == nil
	if w == nil || w.NodeVersion != n.NodeVersion {
		c.dropLocked(n.Key)
		w = &watch{Watch: n, from: time.Now()}
		c.watches[n.Key] = w
		wait := millis(n.DelayMs) + time.Duration(rand.Float64()*float64(millis(n.IntervalMs)))
		w.timer = time.AfterFunc(wait, func() { c.due(w) })
	} else if bare && w.Version == n.Version {
		n.Check, n.Machine = w.Check, w.Machine
	}
	w.Watch = n
	if bare {
		w.told, w.toldGone = model.HealthStatus(n.Known), n.Gone
	}
	if w.asked { // here is the answer, or somebody who was not asked yet
		w.asked = false
		wait := time.Duration(0)
		if bare {
			wait = time.Duration(rand.Float64() * float64(millis(n.IntervalMs)))
		}
		w.timer.Reset(wait)
	}
	c.tellLocked(w, "", 0)
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// due runs a check whose time has come.
func (c *checks) due(w *watch) {
	c.mu.Lock()
	if w.over || w.busy || c.closed {
		c.mu.Unlock()
		return
	}
	switch {
	case !c.inTouch():
		w.timer.Reset(millis(w.IntervalMs)) // somebody else may watch by now
	case w.Check == nil && w.Machine == nil:
		if !w.asked {
			w.asked = true
			c.say(w.Key, nil)
		}
	default:
		w.busy = true
		spec := w.Watch
		c.count++
		number := c.count
		c.running.Add(1)
		c.mu.Unlock()
		defer c.running.Done()
		c.check(w, spec, number)
		return
	}
	c.mu.Unlock()
}

// check looks once, and notes what it saw.
func (c *checks) check(w *watch, spec *pb.Watch, number uint64) {
	select {
	case c.room <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	defer func() { <-c.room }()
	healthy, message, machine := true, "", uint32(0)
	if spec.Check != nil {
		res := c.look(spec.Check, number)
		healthy, message = res.Outcome == pb.Outcome_OUTCOME_SUCCEEDED, said(res)
		if res.Outcome == pb.Outcome_OUTCOME_CANCELLED {
			c.again(w, millis(spec.IntervalMs))
			return
		}
	}
	if spec.Machine != nil && (spec.Check == nil || !healthy) {
		machine = c.lookForMachine(spec.Machine, number)
	}
	if c.ctx.Err() != nil || !c.inTouch() {
		c.again(w, millis(spec.IntervalMs)) // it may be out of touch with the node, too
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.busy = false
	if w.over {
		return
	}
	wait := millis(spec.IntervalMs)
	if w.NodeVersion == spec.NodeVersion {
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
	}
	w.timer.Reset(wait)
}

func (c *checks) again(w *watch, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.busy = false
	if !w.over && c.ctx.Err() == nil {
		w.timer.Reset(wait)
	}
}

// tellLocked says what the leader does not know yet.
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

// look carries out one check.
func (c *checks) look(t *pb.Task, number uint64) *pb.Result {
	one := proto.CloneOf(t)
	one.Fence, one.Attempt = number, 1
	ctx, cancel := context.WithTimeout(c.ctx, millis(t.TimeoutMs)+5*time.Second) // the plugin's host has the time-out
	defer cancel()
	return c.exec.Execute(ctx, one, host.Discard{})
}

// lookForMachine asks a machine's provider about it: 1 it is there, 2 it is gone,
// 0 nobody knows. Only a success is an answer.
func (c *checks) lookForMachine(t *pb.Task, number uint64) uint32 {
	switch res := c.look(t, number); {
	case res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED:
		return 0
	case res.Adopted:
		return 1
	}
	return 2
}

// said gives a check's message, short enough for a record.
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
