package worker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Stream is the worker's end of a session with the leader.
type Stream interface {
	Send(*pb.WorkerMessage) error
	Recv() (*pb.LeaderMessage, error)
}

// Config configures a Worker. Everything is required but Registry, Sites, Drain, Clock and Followed.
type Config struct {
	// Hello returns the description of this agent. The worker adds what it holds.
	Hello func() *pb.Hello
	// Connect opens a stream to the present leader. The stream ends with ctx.
	Connect  func(ctx context.Context) (Stream, error)
	Executor host.Executor
	Journal  Journal
	Logs     *Logs
	Logger   *slog.Logger
	// Registry takes the agent registry when the leader sends it; may be nil.
	Registry func(*pb.AgentRegistry)
	// Sites takes the leader's orders for change objects, with their session; may be nil.
	Sites func(session string, orders []*pb.SiteOrders)
	// Drain is how long the tasks of a leaving worker may go on; 0 means 10 s.
	Drain time.Duration
	// Clock is the clock that heartbeats report; nil means time.Now.
	Clock func() time.Time
	// Followed returns the versions of the keys of gossip that this agent uses, and of the CAs under which it has its certificates, which
	// heartbeats report; nil means 0.
	Followed func() (gossip, cas uint64)
	// Incidents are those from before the worker, for the first heartbeat.
	Incidents []*pb.Incident
}

// attempt is a lease that the worker holds.
type attempt struct {
	task   *pb.Task
	since  time.Time
	cancel context.CancelFunc
	result *pb.Result // set when it has ended; not confirmed yet
	marked bool       // the start has been reported to the leader
}

// Worker is the worker of one agent.
type Worker struct {
	cfg Config

	mu       sync.Mutex
	held     map[Key]*attempt
	out      pb.WorkerMessage // waits to be sent
	saves    saves
	outgoing chan struct{} // one slot: out has something to send
	session  string
	clocks   []*pb.ClockOffset // that differ from the others
	until    time.Time         // this worker may rely on its leases until then
	fence    *loop.Queue[struct{}]
	leaving  bool
	drained  chan struct{} // closed when a leaving worker holds nothing
	running  sync.WaitGroup
	base     context.Context
	hangUp   func()        // ends the open session
	refuses  error         // the journal takes no records, so this worker takes no leases
	unfit    chan struct{} // one slot: refuses has been set
	hellos   uint64        // that this process has sent
	// incarnation is the lowest incarnation with which the leader accepts the next hello.
	incarnation uint64
	checks      *checks
	commands    *semaphore.Weighted
	forwards    *semaphore.Weighted
}

// New returns a worker that holds the leases in its journal.
func New(cfg Config) (*Worker, error) {
	w := &Worker{cfg: cfg, held: map[Key]*attempt{}, outgoing: make(chan struct{}, 1), drained: make(chan struct{}),
		unfit: make(chan struct{}, 1), commands: newCommands(),
		forwards: semaphore.NewWeighted(forwardsAtOnce)}
	w.fence = loop.New(loop.Config[struct{}]{Reconcile: w.checkFence})
	w.checks = newChecks(cfg.Executor, w.InTouch, w.sayHealth)
	w.out.Incidents = cfg.Incidents
	if w.cfg.Drain == 0 {
		w.cfg.Drain = 10 * time.Second
	}
	if w.cfg.Clock == nil {
		w.cfg.Clock = time.Now
	}
	if w.cfg.Followed == nil {
		w.cfg.Followed = func() (gossip, cas uint64) { return 0, 0 }
	}
	old, err := cfg.Journal.Load()
	if err != nil {
		return nil, err
	}
	if err := cfg.Journal.Check(); err != nil {
		w.refuse(err)
	}
	for _, h := range old {
		a := &attempt{task: &pb.Task{Id: h.Task, Fence: h.Fence}, result: h.Result}
		if a.result == nil {
			// It ran when the agent ended: its progress is not known.
			a.result = &pb.Result{Task: h.Task, Fence: h.Fence, Outcome: pb.Outcome_OUTCOME_CANCELLED,
				Message: "the agent was killed while it worked on this"}
		}
		w.held[Key{h.Task, h.Fence}] = a
	}
	return w, nil
}

// Run keeps a session with the leader until ctx ends. Then it ends what it holds and
// reports it, for as long as Config.Drain allows.
func (w *Worker) Run(ctx context.Context) error {
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.base = base
	defer func() { stop(); w.checks.close(); w.running.Wait() }()
	w.running.Go(func() { _ = w.fence.Run(base) })
	w.running.Go(func() { w.awaitJournal(base) })
	go func() {
		<-ctx.Done()
		w.leave(stop)
	}()
	pause := 10 * time.Millisecond
	for {
		start := time.Now()
		err := w.talk(base)
		if base.Err() != nil || w.done() {
			return nil
		}
		w.cfg.Logger.Debug("session ended", "error", err)
		if time.Since(start) > time.Second {
			pause = 10 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-w.drained:
			return nil
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}

// leave informs the leader that this worker takes no more leases. When the time to drain has
// passed, it cancels the tasks that still run.
func (w *Worker) leave(stop func()) {
	w.mu.Lock()
	w.leaving = true
	w.out.Leaving = true
	w.mu.Unlock()
	w.checkDrained()
	w.notify()
	timer := time.NewTimer(w.cfg.Drain)
	defer timer.Stop()
	select {
	case <-w.drained:
	case <-timer.C:
		w.mu.Lock()
		w.cancelAll("the agent is stopping")
		w.mu.Unlock()
		last := time.NewTimer(2 * time.Second)
		defer last.Stop()
		select {
		case <-w.drained:
		case <-last.C:
		}
	}
	// The leader ends the session when it hears of it; give that a moment.
	stop()
}

func (w *Worker) done() bool {
	select {
	case <-w.drained:
		return true
	default:
		return false
	}
}

func (w *Worker) checkDrained() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaving && len(w.held) == 0 {
		select {
		case <-w.drained:
		default:
			close(w.drained)
		}
	}
}

// maxUsed is how many uses of tokens wait at most for the next heartbeat.
const maxUsed = 1000

// ReportUse has the next heartbeat say that this agent has admitted a token. A report may be lost.
func (w *Worker) ReportUse(token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.out.Used) < maxUsed {
		w.out.Used = append(w.out.Used, token)
	}
}

// maxIncidents is how many kinds of incidents wait at most for the next heartbeat.
const maxIncidents = 100

// ReportIncident has the next heartbeat say that this agent has answered a request that belongs in the audit log. A report may be lost.
func (w *Worker) ReportIncident(i *pb.Incident) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.out.Incidents {
		if x.Type == i.Type && x.Tenant == i.Tenant && x.Actor == i.Actor && x.Action == i.Action && x.Object == i.Object {
			x.Count = max(x.Count, 1) + max(i.Count, 1)
			return
		}
	}
	if len(w.out.Incidents) < maxIncidents {
		w.out.Incidents = append(w.out.Incidents, i)
	}
}

// notify has the session send what waits in w.out.
func (w *Worker) notify() {
	select {
	case w.outgoing <- struct{}{}:
	default:
	}
}

// checkFence cancels everything when the leader was out of reach for so long that it may give
// this worker's leases to others, and ends the session. It returns the time of the next check:
// heartbeats have moved the limit on by then. Each session begins with a check.
func (w *Worker) checkFence(context.Context, struct{}) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until.IsZero() || lease.InTouch(time.Now(), w.until) {
		return w.until, nil
	}
	// Under the lock, so that no answer renews leases that are being cancelled.
	w.cfg.Logger.Warn("the leader was out of reach for too long: cancelling all leased tasks")
	w.cancelAll("the agent lost touch with the leader")
	w.until = time.Time{}
	if w.session != "" { // else a hello is on its way
		w.hangUp()
	}
	return time.Time{}, nil
}

// cancelAll cancels all attempts. The caller holds w.mu.
func (w *Worker) cancelAll(reason string) {
	for _, a := range w.held {
		if a.cancel != nil && a.result == nil {
			w.cfg.Logger.Info("task cancelled", "task", a.task.Id, "fence", a.task.Fence, "reason", reason)
			a.cancel()
		}
	}
}

// Busy returns how many tasks run.
func (w *Worker) Busy() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, a := range w.held {
		if a.result == nil {
			n++
		}
	}
	return n
}

// Session returns the id of the session, or "".
func (w *Worker) Session() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.session
}

// Clocks returns the clocks of agents that differ from the others, as the leader has said last. Without a session it is nil.
func (w *Worker) Clocks() []*pb.ClockOffset {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clocks
}

// take starts tasks that were leased to this worker in a session. If the session has ended, it does
// not begin them: the next hello was sent without them, so their leases end.
func (w *Worker) take(session string, tasks []*pb.Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.session != session {
		return
	}
	var fresh []*attempt
	var records []*pb.Held
	for _, t := range tasks {
		k := Key{t.Id, t.Fence}
		if w.held[k] != nil {
			continue // sent twice
		}
		a := &attempt{task: t, since: time.Now()}
		fresh = append(fresh, a)
		records = append(records, &pb.Held{Task: t.Id, Fence: t.Fence, Started: true})
	}
	if len(fresh) == 0 {
		return
	}
	var err error
	switch {
	case w.leaving:
		err = errors.New("the agent is leaving")
	case !lease.Begins(session, w.session, now, w.until):
		// The tasks were delayed, and may be leased to another worker by now.
		err = errors.New("the tasks arrived when the worker could no longer rely on its leases")
	default:
		if err = w.cfg.Journal.Put(records...); err != nil {
			w.refuse(err)
		}
	}
	if err != nil {
		// No task begins without a record: the leases are returned.
		w.cfg.Logger.Warn("leases given back", "tasks", len(fresh), "error", err)
		for _, a := range fresh {
			w.out.Returned = append(w.out.Returned, &pb.Started{Task: a.task.Id, Fence: a.task.Fence})
		}
		w.notify()
		return
	}
	for _, a := range fresh {
		ctx, cancel := context.WithCancel(w.base)
		a.cancel = cancel
		w.held[Key{a.task.Id, a.task.Fence}] = a
		w.running.Add(1)
		go func() {
			defer w.running.Done()
			defer cancel()
			w.run(ctx, a)
		}()
	}
}

// run carries out one lease.
func (w *Worker) run(ctx context.Context, a *attempt) {
	hide := mask.New(a.task.Secrets...)
	log := &attemptLog{logs: w.cfg.Logs, key: Key{a.task.Id, a.task.Fence}, task: a.task, save: w.save, mask: hide}
	res := w.cfg.Executor.Execute(ctx, a.task, log)
	tail := log.end()
	if len(a.task.Secrets) > 0 {
		res.LogTail = "" // the plugin's may begin within a secret
	}
	returned := secretResults(a.task, res.Output)
	hideAll := hide
	if len(returned) > 0 {
		hideAll, tail = mask.New(slices.Concat(a.task.Secrets, returned)...), ""
	}
	res.Message, res.LogTail = hideAll.Text(res.Message), hideAll.Text(res.LogTail)
	if a.task.Automator {
		res.Output = hideIn(a.task, hide, res.Output) // a provider's says how its machine is reached, perhaps with what is in its fields
	}
	if action, err := model.ParseAction(a.task.Action); err == nil {
		if err := action.CheckOutput(res.Output); err != nil {
			outcome := pb.Outcome_OUTCOME_FATAL
			if errors.Is(err, model.ErrMalformedOutput) {
				outcome = pb.Outcome_OUTCOME_UNKNOWN
			}
			res = &pb.Result{Task: res.Task, Fence: res.Fence, Outcome: outcome, Message: err.Error()}
		}
	}
	if res.Outcome != pb.Outcome_OUTCOME_SUCCEEDED && res.LogTail == "" {
		res.LogTail = tail
	}
	w.ended(a, res)
}

func (w *Worker) ended(a *attempt, res *pb.Result) {
	// A result with a secret is in memory only until the leader has encrypted it. If the agent is killed before that, the leader has
	// the task's effects observed, as it does for a task that was running.
	if len(secretResults(a.task, res.Output)) == 0 {
		if err := w.cfg.Journal.Put(&pb.Held{Task: a.task.Id, Fence: a.task.Fence, Started: true, Result: res}); err != nil {
			// The result is reported all the same. If the agent crashes before that, the lease
			// counts as lost, and the leader has its effects observed.
			w.cfg.Logger.Warn("a result could not be written to the journal", "task", a.task.Id, "error", err)
		}
	}
	w.mu.Lock()
	a.result = res
	if w.held[Key{a.task.Id, a.task.Fence}] == a {
		w.out.Results = append(w.out.Results, res)
	}
	w.mu.Unlock()
	w.notify()
}

// sayHealth sends the leader requests and verdicts of checks.
func (w *Worker) sayHealth(wanted string, h *pb.Health) {
	w.mu.Lock()
	if wanted != "" {
		w.out.Wanted = append(w.out.Wanted, wanted)
	}
	if h != nil {
		w.out.Health = append(w.out.Health, h)
	}
	w.mu.Unlock()
	w.notify()
}

func (w *Worker) save(s *pb.SaveState) {
	w.mu.Lock()
	w.saves.add(s)
	w.mu.Unlock()
	w.notify()
}

// cancel cancels one lease.
func (w *Worker) cancel(c *pb.Cancel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.held[Key{c.Task, c.Fence}]
	switch {
	case a == nil:
		// It has ended and was confirmed, or never arrived. The leader need not wait for it.
		w.out.Returned = append(w.out.Returned, &pb.Started{Task: c.Task, Fence: c.Fence})
		w.notify()
	case a.cancel != nil:
		w.cfg.Logger.Info("task cancelled", "task", c.Task, "fence", c.Fence, "reason", c.Reason)
		a.cancel()
	}
}

// confirm forgets leases whose results are committed, or refused for good. Attempts that
// still run are cancelled, and held until they have ended: the leader begins nothing else
// on their nodes before it has heard of that.
func (w *Worker) confirm(verdicts []*pb.Verdict) {
	var keys []Key
	w.mu.Lock()
	for _, v := range verdicts {
		k := Key{v.Task, v.Fence}
		if a := w.held[k]; a != nil {
			if a.cancel != nil && a.result == nil {
				w.cfg.Logger.Info("task cancelled", "task", v.Task, "fence", v.Fence, "reason", "the leader does not know the lease any more")
				a.cancel()
				continue
			}
			delete(w.held, k)
			keys = append(keys, k)
		}
	}
	w.mu.Unlock()
	if err := w.cfg.Journal.Forget(keys...); err != nil {
		w.cfg.Logger.Warn("confirmed leases could not be removed from the journal", "error", err)
	}
	w.checkDrained()
}

// Holds reports whether an attempt of a task runs here; fence 0 means any.
func (w *Worker) Holds(task string, fence uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, a := range w.held {
		if k.Task == task && (fence == 0 || k.Fence == fence) && a.result == nil {
			return true
		}
	}
	return false
}

// Reconnect ends the session. The next one begins with a new hello.
func (w *Worker) Reconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hangUp != nil {
		w.hangUp()
	}
}
