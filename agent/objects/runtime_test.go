package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/host"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	pb "github.com/coopr/coopr/rpc/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ward is some runtimes in one process, and a leader that is no more than a record.
type ward struct {
	t testing.TB

	mu       sync.Mutex
	record   *site.Record
	gens     map[uint64]*site.Generation
	docs     map[uint64]*site.Document
	sites    map[uint64]*object.Site
	last     *object.Site
	runtimes map[string]*ended
	reports  map[object.ID]*pb.ObjectReport
	sent     [8]int // messages between runtimes, by kind
	packets  int
	takes    bool           // the leader says which events are committed
	events   []string       // that were reported: session, number, object and message
	world    map[string]int // content in place, by object; 0: nothing
	busy     map[string]bool
	log      []string
	lose     func() bool // whether a stream breaks now
	action   time.Duration
	news     chan struct{}
	lines    sync.WaitGroup               // streams that are served
	patient  time.Duration                // how long to wait until all is converged
	shut     func(generation uint64) bool // whether its parts are not sent; may be nil
	// The rest is of random runs: what watches acts, how long a packet takes, and
	// how an act ends that is stopped or fails.
	began func(j *Job, action string) (ended func())
	delay func() time.Duration
	fails func() bool
	torn  func() bool
}

// ended is a host runtime that the test can end.
type ended struct {
	*Runtime
	process string
	session string
	touch   bool
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	told    map[uint64]string
}

func newWard(t testing.TB, agents ...string) *ward {
	w := &ward{
		t:        t,
		record:   &site.Record{Tenant: "t", Name: "s", Epoch: 1},
		gens:     map[uint64]*site.Generation{},
		docs:     map[uint64]*site.Document{},
		sites:    map[uint64]*object.Site{},
		runtimes: map[string]*ended{},
		reports:  map[object.ID]*pb.ObjectReport{},
		world:    map[string]int{},
		busy:     map[string]bool{},
		news:     make(chan struct{}, 1),
		patient:  2 * time.Minute,
	}
	for _, a := range agents {
		w.start(a)
	}
	t.Cleanup(func() {
		for _, a := range agents {
			w.kill(a)
		}
		w.lines.Wait()
	})
	return w
}

// start starts an agent's host runtime, as a new process.
func (w *ward) start(agent string) {
	h := &ended{
		process: fmt.Sprint(agent, time.Now().UnixNano()),
		session: agent,
		touch:   true,
		done:    make(chan struct{}),
		told:    map[uint64]string{},
	}
	h.Runtime = New(Config{Self: agent, Logger: slog.New(slog.DiscardHandler), Performer: w,
		Session: func() string { w.mu.Lock(); defer w.mu.Unlock(); return h.session },
		InTouch: func() bool { w.mu.Lock(); defer w.mu.Unlock(); return h.touch },
		Report:  w.hear,
		Open:    w.open})
	ctx, cancel := context.WithCancel(context.Background())
	h.ctx, h.cancel = ctx, cancel
	go func() { defer close(h.done); _ = h.Run(ctx) }()
	w.mu.Lock()
	w.runtimes[agent] = h
	w.mu.Unlock()
	w.tell()
}

// kill ends a host runtime with all that it does.
func (w *ward) kill(agent string) {
	w.mu.Lock()
	h := w.runtimes[agent]
	delete(w.runtimes, agent)
	w.mu.Unlock()
	if h != nil {
		h.cancel()
		<-h.done
	}
}

// loopback is one end of a stream between two runtimes. Both ends share broken.
type loopback struct {
	w         *ward
	in, out   chan *pb.ChangePacket
	broken    context.Context
	breakDown context.CancelFunc
	served    chan struct{} // closed when it is served no more
	once      sync.Once
}

// open opens a stream to a host runtime. It lasts until one of the two ends.
func (w *ward) open(ctx context.Context, to string) (Stream, error) {
	w.mu.Lock()
	h := w.runtimes[to]
	w.mu.Unlock()
	if h == nil {
		return nil, errors.New("there is no such host runtime")
	}
	broken, breakDown := context.WithCancel(ctx)
	one, two := make(chan *pb.ChangePacket, 100), make(chan *pb.ChangePacket, 100)
	served := make(chan struct{})
	here, there := &loopback{
		w:         w,
		in:        one,
		out:       two,
		broken:    broken,
		breakDown: breakDown,
		served:    served,
	}, &loopback{
		w:         w,
		in:        two,
		out:       one,
		broken:    broken,
		breakDown: breakDown,
		served:    served,
	}
	w.lines.Add(1)
	go func() {
		defer w.lines.Done()
		stop := context.AfterFunc(h.ctx, breakDown)
		defer stop()
		if first, err := there.Recv(); err == nil {
			_ = h.Accept(first, there)
		}
		close(served)
		close(there.out)
	}()
	return here, nil
}

func (x *loopback) Send(p *pb.ChangePacket) error {
	if x.w.delay != nil {
		time.Sleep(x.w.delay())
	}
	x.w.mu.Lock()
	lost := x.w.lose != nil && p.Site != "" && x.w.lose()
	if p.Site != "" && !lost {
		x.w.packets++
		for _, m := range p.Messages {
			x.w.sent[m.Kind]++
		}
	}
	x.w.mu.Unlock()
	if lost {
		x.breakDown()
	}
	select {
	case <-x.broken.Done():
		return errors.New("the stream broke")
	case <-x.served:
		return io.EOF
	case x.out <- p:
		return nil
	}
}

func (x *loopback) Recv() (*pb.ChangePacket, error) {
	select {
	case <-x.broken.Done():
		return nil, errors.New("the stream broke")
	case p, ok := <-x.in:
		if !ok {
			return nil, io.EOF
		}
		return p, nil
	}
}

func (x *loopback) Close() { x.once.Do(func() { close(x.out) }) }

// Check and Run play the machine.
func (w *ward) Check(_ context.Context, j *Job) (string, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.world[j.Object.Name] {
	case 0:
		return "down", "", nil
	case version(j.Object):
		return "up", "", nil
	}
	return "outdated", "", nil
}

func version(o *site.Object) int {
	switch v := o.Content["version"].(type) {
	case int:
		return 1 + v
	case float64:
		return 1 + int(v)
	}
	return 1
}

func (w *ward) Run(ctx context.Context, j *Job, action string) error {
	name := j.Object.Name
	w.mu.Lock()
	if w.busy[name] {
		w.t.Errorf("%s: two acts at a time", name)
	}
	w.busy[name] = true
	ended := func() {}
	if w.began != nil {
		ended = w.began(j, action)
	}
	w.mu.Unlock()
	var err error
	if w.action > 0 {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(w.action):
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[name] = false
	ended()
	if err == nil && w.fails != nil && w.fails() {
		err = errors.New("it failed")
	}
	if err == nil || w.torn != nil && w.torn() {
		w.world[name] = map[string]int{"start": version(j.Object), "restart": version(j.Object)}[action]
		w.log = append(w.log, name+" "+action)
	}
	return err
}

// apply puts a document on its way.
func (w *ward) apply(d *site.Document) {
	w.t.Helper()
	w.mu.Lock()
	next, err := compile.Site(d, compile.Options{Last: w.last})
	if err != nil {
		w.t.Fatal(err)
	}
	n := w.record.Last + 1
	b, err := json.Marshal(d)
	if err != nil {
		w.t.Fatal(err)
	}
	w.gens[n] = &site.Generation{Tenant: "t", Site: "s", Number: n, Document: b, IDs: compile.Numbers(d, next)}
	w.docs[n], w.sites[n] = d, next
	if err := w.record.Begin(n, compile.Switches(compile.NewPlan(w.last, next), next), false); err != nil {
		w.t.Fatal(err)
	}
	w.record.Version++
	w.last = next
	w.mu.Unlock()
	w.tell()
}

// tell assigns hosts to the runtimes of their names, lets groups switch, and sends all
// orders.
func (w *ward) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.record
	for again := true; again; {
		again = false
		var hosts []site.Host
		for _, h := range r.Hosts {
			agent, own := strings.CutPrefix(h.Name, "agent:")
			if !own && w.runtimes[h.Agent] != nil {
				agent = h.Agent
			} else if !own {
				agent = host.Choose(h.Name, slices.Sorted(maps.Keys(w.runtimes)))
			}
			if x := w.runtimes[agent]; x != nil && h.Process != x.process {
				hosts = append(hosts, site.Host{Name: h.Name, Agent: agent, Process: x.process})
			}
		}
		if len(hosts) > 0 {
			if err := r.Assign(hosts, func(agent string) bool { return w.runtimes[agent] != nil }); err != nil {
				w.t.Fatal(err)
			}
			r.Version++
		}
		if groups := r.Ready(func(id object.ID) bool {
			o := w.reports[id]
			return r.Lives[id].Host < 0 || o != nil && o.Inc == r.Lives[id].Inc && o.Removing && o.AtRest
		}); r.Next != 0 && len(groups) > 0 {
			if err := r.Turn(groups); err != nil {
				w.t.Fatal(err)
			}
			r.Version++
			again = true
		}
	}
	for agent, h := range w.runtimes {
		mine, concerns := map[string]bool{}, map[object.ID]bool{}
		for _, x := range r.Hosts {
			if x.Agent == agent && x.Process == h.process {
				mine[x.Name] = true
			}
		}
		slice := fmt.Sprint(slices.Sorted(maps.Keys(mine)))
		var parts []site.Part
		for _, n := range []uint64{r.Generation, r.Next} {
			if n == 0 {
				continue
			}
			p := w.gens[n].Part(w.docs[n], mine)
			for _, id := range p.IDs {
				concerns[id] = true
			}
			if h.told[n] != slice && (w.shut == nil || !w.shut(n)) {
				h.told[n] = slice
				parts = append(parts, p)
			}
		}
		o := r.Orders(mine, concerns)
		o.Parts, o.TakesEvents = parts, w.takes
		m, err := logformat.EncodeOrders(o)
		if err != nil {
			w.t.Fatal(err)
		}
		h.Orders(h.session, []*pb.SiteOrders{m, {}})
	}
}

func (w *ward) hear(session string, r *pb.RuntimeReport) {
	w.mu.Lock()
	removed := false
	for i, e := range r.Events {
		w.events = append(w.events, fmt.Sprint(session, " ", r.FirstEvent+uint64(i), " ", e.Object, " ", e.Message))
	}
	for _, o := range r.Objects {
		w.reports[object.ID(o.Id)] = o
		removed = removed || o.Removing && o.AtRest
	}
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
	if removed {
		go w.tell()
	}
}

// converge waits until everything is where it should be.
func (w *ward) converge() {
	w.t.Helper()
	over := time.After(w.patient)
	for {
		w.mu.Lock()
		converged := w.record.Next == 0
		for i, l := range w.record.Lives {
			if o := w.reports[object.ID(i)]; l.Host >= 0 && (o == nil || o.Inc != l.Inc || !o.AtRest || o.Generation != w.record.Generation) {
				converged = false
			}
		}
		for i := range w.docs[w.record.Generation].Objects {
			o := &w.docs[w.record.Generation].Objects[i]
			converged = converged && w.world[o.Name] == version(o) && !w.busy[o.Name]
		}
		w.mu.Unlock()
		if converged {
			return
		}
		select {
		case <-w.news:
		case <-over:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("it never converged: %+v; %v; did %v", w.record, w.reports, w.log)
		}
	}
}

// did returns the acts since the last call.
func (w *ward) did() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.log
	w.log = nil
	return out
}

// figure1 is the paper's, over the agents a, b and c.
func figure1(version int) *site.Document {
	return &site.Document{Name: "s", Objects: []site.Object{
		{
			Name:     "svcB",
			Host:     "agent:c",
			Type:     "service",
			Requires: []site.Requirement{{To: "up", Object: "svcA"}},
			Holds:    []site.Holding{{Object: "svcA"}},
		},
		{
			Name:     "svcA",
			Host:     "agent:b",
			Type:     "service",
			Requires: []site.Requirement{{To: "up", Object: "cfgA"}, {From: "up", To: "down", Object: "svcB", State: "down"}},
			Holds:    []site.Holding{{Object: "cfgA"}},
		},
		{
			Name:     "cfgA",
			Host:     "agent:a",
			Type:     "filetree",
			Content:  map[string]any{"version": version},
			Requires: []site.Requirement{{From: "outdated", To: "up", Object: "svcA", State: "down"}},
		},
	}}
}

var changed = []string{"svcB stop", "svcA stop", "cfgA restart", "svcA start", "svcB start"}

// Figure 1 over three runtimes: C1, C2, C7; the removed go first.
func TestFigure1(t *testing.T) {
	w := newWard(t, "a", "b", "c")
	w.apply(figure1(1))
	w.converge()
	if got := w.did(); !slices.Equal(got, []string{"cfgA start", "svcA start", "svcB start"}) {
		t.Error(got)
	}
	w.apply(figure1(2))
	w.converge()
	if got := w.did(); !slices.Equal(got, changed) {
		t.Error(got)
	}
	d := figure1(2)
	d.Objects = d.Objects[1:]
	d.Objects[0].Requires = d.Objects[0].Requires[:1]
	w.apply(d)
	w.converge()
	if got := w.did(); !slices.Equal(got, []string{"svcB stop"}) {
		t.Error(got)
	}
}

// Host runtimes are killed in the middle, and streams break. The site converges as it does without faults.
func TestFigure1UnderFaults(t *testing.T) {
	w := newWard(t, "a", "b", "c")
	w.action = 2 * time.Millisecond
	n := 0
	w.lose = func() bool { n++; return n%7 == 0 }
	w.apply(figure1(1))
	w.converge()
	for i, agent := range []string{"a", "b", "c", "b"} {
		w.apply(figure1(2 + i))
		time.Sleep(time.Duration(i) * 3 * time.Millisecond) // some moment
		w.kill(agent)
		w.start(agent)
		w.converge()
	}
}

// A runtime reports events again to the next leader, unless it knows that they are committed.
func TestEventsAreReportedAgain(t *testing.T) {
	for _, takes := range []bool{true, false} {
		w := newWard(t, "a")
		w.takes = takes
		doc := &site.Document{Name: "s", Objects: []site.Object{{Name: "x", Host: "agent:a", Type: "script", Content: map[string]any{"version": 1}}}}
		session := func(name string) {
			w.mu.Lock()
			w.runtimes["a"].session = name
			clear(w.runtimes["a"].told)
			w.mu.Unlock()
			w.tell()
		}
		heard := func(what string, want ...string) {
			t.Helper()
			over := time.After(w.patient)
			for {
				w.mu.Lock()
				got := slices.Clone(w.events)
				w.mu.Unlock()
				if slices.Equal(got, want) {
					return
				}
				select {
				case <-w.news:
				case <-over:
					t.Fatalf("%s: heard %q, not %q", what, got, want)
				}
			}
		}
		w.apply(doc)
		first, second := "a 1 x start: down → up", "b 1 x start: down → up"
		heard("the first leader", first)
		session("b")
		if !takes { // a leader of an older build has it for good
			doc.Objects[0].Content["version"] = 2
			w.apply(doc)
			heard("the next leader", first, "b 2 x restart: outdated → up")
			continue
		}
		heard("the next leader", first, second)
		w.mu.Lock()
		done, err := logformat.EncodeOrders(&site.Orders{Tenant: "t", Site: "s", Epoch: 1, EventsTaken: 1})
		w.runtimes["a"].Orders("b", []*pb.SiteOrders{done})
		w.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		session("c")
		doc.Objects[0].Content["version"] = 2
		w.apply(doc)
		heard("the last leader", first, second, "c 2 x restart: outdated → up")
	}
}

// Out of touch with the leader nothing begins, and what runs is stopped.
func TestLease(t *testing.T) {
	w := newWard(t, "a")
	touch := func(yes bool) { w.mu.Lock(); w.runtimes["a"].touch = yes; w.mu.Unlock() }
	w.action = time.Hour
	w.apply(&site.Document{Name: "s", Objects: []site.Object{{Name: "x", Host: "agent:a", Type: "script"}}})
	busy := func(want bool) {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			w.mu.Lock()
			is := w.busy["x"]
			w.mu.Unlock()
			if is == want {
				return
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("an act at work: %t", is)
			}
		}
	}
	busy(true)
	touch(false)
	busy(false)
	w.mu.Lock()
	w.action = 0
	w.mu.Unlock()
	if got := w.did(); len(got) != 0 {
		t.Errorf("without a lease it did %v", got)
	}
	touch(true)
	w.converge()
}

// A leader without the keys sends no part of a generation with secrets. An agent that has a session with it keeps what it runs, until a
// leader sends the part.
func TestNoPart(t *testing.T) {
	w := newWard(t, "a")
	doc := func(version int) *site.Document {
		return &site.Document{Name: "s", Objects: []site.Object{{Name: "x", Host: "agent:a", Type: "script",
			Content: map[string]any{"version": version}}}}
	}
	w.apply(doc(1))
	w.converge()
	runs := func() bool {
		h, there := w.runtimes["a"], make(chan bool, 1)
		h.mu.Lock()
		h.post(siteKey{"t", "s"}, func(x *siteRunner, _ int64) { there <- x.host != nil && x.host.Object(0) != nil })
		h.mu.Unlock()
		return <-there
	}
	if !runs() {
		t.Fatal("it does not run the object")
	}
	w.mu.Lock()
	w.shut = func(n uint64) bool { return n == 2 }
	w.mu.Unlock()
	w.apply(doc(2))
	w.session("a", "other")
	if !runs() {
		t.Error("it has forgotten what it runs")
	}
	w.mu.Lock()
	w.shut = nil
	w.mu.Unlock()
	w.tell()
	w.converge()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.world["x"] != version(&doc(2).Objects[0]) {
		t.Error("the object does not follow")
	}
}
