package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/internal/loglimit"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
)

// number returns a variable as a number.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// demanded returns CHAOS_TIME. It skips a test that nobody asks for, by that or in another way.
func demanded(t *testing.T, otherwise bool) (long string) {
	t.Helper()
	if long = os.Getenv("CHAOS_TIME"); long == "" && !otherwise {
		t.Skip("a run of minutes, with real processes: make chaos")
	}
	if err := lab.Missing(); err != nil {
		t.Fatal(err) // who asks for a run does not want it to be skipped
	}
	return long
}

// kept returns a folder of its own for the logs of one run, in CHAOS_KEEP, or "" without that variable.
func kept(t *testing.T) string {
	t.Helper()
	keep := os.Getenv("CHAOS_KEEP")
	if keep == "" {
		return ""
	}
	parent := filepath.Join(keep, t.Name())
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(parent, time.Now().UTC().Format("20060102-150405-"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestChaos is the run that the package's documentation describes.
func TestChaos(t *testing.T) {
	given := os.Getenv("CHAOS_FAULTS")
	long := demanded(t, given != "")
	l := lab.New(t)
	bin := programs.Build(t)
	agents := int(number(t, "CHAOS_AGENTS", 3))
	if agents != 3 && agents != 5 {
		t.Fatal("CHAOS_AGENTS: 3 or 5 agents")
	}
	seed := number(t, "CHAOS_SEED", uint64(time.Now().Unix()))
	store := os.Getenv("CHAOS_STORE")
	if store == "" {
		store = []string{"boltdb", "wal"}[seed%2]
	}
	var next func() (schedule, bool)
	if given != "" {
		s, err := parseSchedule(given, agents)
		if err != nil {
			t.Fatal(err)
		}
		next = following(s)
	} else {
		limit, err := time.ParseDuration(long)
		if err != nil {
			t.Fatal(err)
		}
		next = within(limit, generator(seed, agents))
	}
	t.Logf("%d agents, CHAOS_SEED=%d, CHAOS_STORE=%s", agents, seed, store)
	once := func(next func() (schedule, bool)) *report {
		r := run(context.Background(), &mesh{lab: l, dir: t.TempDir(), store: store, keep: kept(t)}, bin, agents, seed, next, t.Logf)
		t.Log(r)
		return r
	}
	r := once(next)
	if r.err == nil {
		return
	}
	t.Errorf("CHAOS_AGENTS=%d CHAOS_STORE=%s CHAOS_SEED=%d CHAOS_FAULTS=%s: %v", agents, store, seed, r.done, r.err)
	if most := int(number(t, "CHAOS_SHRINK", 0)); most > 0 {
		t.Logf("the smallest schedule that fails: %s", shrink(r.done, most, func(s schedule) bool { return once(following(s)).err != nil }))
	}
}

// following returns the faults of a schedule, those together that happen at the same time.
func following(s schedule) func() (schedule, bool) {
	return func() (together schedule, ok bool) {
		if len(s) == 0 {
			return nil, false
		}
		together, s = s.first()
		return together, true
	}
}

// within returns the faults of a generator for a time, counted from the first one.
func within(limit time.Duration, next func() schedule) func() (schedule, bool) {
	var over time.Time
	return func() (schedule, bool) {
		if over.IsZero() {
			over = time.Now().Add(limit)
		}
		return next(), time.Now().Before(over)
	}
}

// report is the result of a run.
type report struct {
	done  schedule
	gaps  map[string][]time.Duration // by kind (or twoAtOnce), for each fault of the kind the longest time without a write
	whole map[string][]time.Duration // by kind, how long the mesh took to be whole after each fault
	ops   int
	work  int // operations on clusters
	err   error
}

// String returns the report for people.
func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults, %d operations of clients, %d operations on clusters\n", len(r.done), r.ops, r.work)
	fmt.Fprintf(&b, "%-11s %6s %18s %18s\n", "fault", "times", "longest gap", "longest recovery")
	for _, kind := range append(kinds(), twoAtOnce) {
		if n := len(r.gaps[kind]); n > 0 {
			fmt.Fprintf(&b, "%-11s %6d %17.2fs %17.2fs\n", kind, n, slices.Max(r.gaps[kind]).Seconds(), slices.Max(r.whole[kind]).Seconds())
		}
	}
	return b.String()
}

// twoAtOnce is the kind of two faults that happened at the same time.
const twoAtOnce = "two at once"

// run starts a mesh, loads it with work, applies faults until next has no more, and checks what the clients saw.
func run(ctx context.Context, m *mesh, bin string, agents int, seed uint64, next func() (schedule, bool),
	logf func(string, ...any)) *report {
	r := &report{gaps: map[string][]time.Duration{}, whole: map[string][]time.Duration{}}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := m.start(ctx, bin, agents)
	defer func() {
		switch {
		case r.err != nil && m.keep == "":
			r.err = errors.Join(m.tails(), r.err) // the cause comes last, as reports of a failure show its end
		case r.err != nil:
			r.err = errors.Join(r.err, m.quit())
		}
		r.err = errors.Join(r.err, m.end())
	}()
	if err == nil {
		err = m.define(ctx, bin)
	}
	if err != nil {
		r.err = err
		return r
	}
	load := startLoad(ctx, m, seed)
	for s, ok := next(); ok && r.err == nil; s, ok = next() {
		r.err = r.apply(ctx, load, s, logf)
	}
	if m.still != nil { // a fault may have begun, and another one failed to begin
		m.still()
		m.flaps.Wait()
	}
	if r.err != nil {
		cancel() // the clients may wait for a mesh that does not recover
	}
	logf("%7.1fs the clients stop", load.history.now().Seconds())
	load.halt()
	logf("%7.1fs the checks begin", load.history.now().Seconds())
	r.ops, r.work = len(load.history.ops), len(load.clusters)
	if r.err == nil {
		r.err = errors.Join(load.checkEvents(ctx), load.checkWork(ctx), load.checkTokens(ctx), m.checkAudit(ctx))
	}
	cancel()
	for _, f := range load.follows {
		<-f.done
	}
	for _, err := range load.errs {
		if !errors.Is(err, context.Canceled) {
			r.err = errors.Join(r.err, err)
		}
	}
	r.err = errors.Join(r.err, load.history.check(), m.crashes(), m.floods(began))
	logf("%7.1fs the checks end", load.history.now().Seconds())
	return r
}

// apply applies one fault, or two at the same time, and waits until the mesh is whole again.
func (r *report) apply(ctx context.Context, l *load, together schedule, logf func(string, ...any)) error {
	m := l.mesh
	together = slices.Clone(together)
	from := l.history.now()
	for i, s := range together {
		if s.agent == leading {
			s.agent = m.leader(ctx)
			together[i] = s
		}
		r.done = append(r.done, s)
		logf("%7.1fs %s (agent %s)", l.history.now().Seconds(), s, m.agents[s.agent].name)
		if err := faults[s.kind].begin(ctx, m, s.agent); err != nil {
			return fmt.Errorf("begin %s: %w", s, err)
		}
		l.pause(ctx, s.hold)
	}
	kind := twoAtOnce
	if len(together) == 1 {
		kind = together[0].kind
	}
	slices.SortFunc(together, func(a, b step) int { return int(faults[a.kind].place - faults[b.kind].place) })
	for _, s := range together {
		if err := faults[s.kind].end(ctx, m, s.agent); err != nil {
			return fmt.Errorf("end %s: %w", s, err)
		}
	}
	ended := l.history.now()
	if err := m.awaitWhole(ctx); err != nil {
		return fmt.Errorf("after %s: %w", together, err)
	}
	r.whole[kind] = append(r.whole[kind], l.history.now()-ended)
	l.pause(ctx, time.Second) // so that the next gap is its own
	r.gaps[kind] = append(r.gaps[kind], l.history.gap(from, l.history.now()))
	return nil
}

// define imports the definitions of the clusters.
func (m *mesh) define(ctx context.Context, bin string) error {
	definitions, err := filepath.Abs("../e2e/testdata/ledger/definitions")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "coopr"), "import", definitions)
	cmd.Env = []string{"HOME=" + m.dir, "COOPR_ADDR=" + m.agents[0].at(httpPort), "COOPR_TOKEN=" + m.token,
		"COOPR_CACERT=" + m.born("ca.pem")}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("import the definitions: %w: %s", err, out)
	}
	return nil
}

// checkAudit has every agent check its own copy of the audit log.
func (m *mesh) checkAudit(ctx context.Context) error {
	var errs []error
	for _, a := range m.agents {
		v, err := a.api.AuditVerify(ctx, client.Read{Consistency: api.Stale})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("the audit log of agent %s: %w", a.name, err))
		case !v.OK:
			errs = append(errs, fmt.Errorf("the audit log of agent %s is broken: %+v", a.name, v))
		}
	}
	return errors.Join(errs...)
}

var crash = regexp.MustCompile(`(?m)^(panic: |fatal error: |unexpected fault address|goroutine \d+ .*\[running)`)

// crashes looks for agents whose Go runtime gave up.
func (m *mesh) crashes() error {
	var errs []error
	for _, a := range m.agents {
		if log := a.machine.Console(); crash.MatchString(log) {
			at := crash.FindStringIndex(log)[0]
			errs = append(errs, fmt.Errorf("agent %s crashed:\n%s", a.name, log[at:min(len(log), at+3000)]))
		}
	}
	return errors.Join(errs...)
}

// floods looks for agents whose logs have more lines than they may print in the time since they began.
func (m *mesh) floods(began time.Time) error {
	var errs []error
	most := loglimit.Lines * (int(time.Since(began).Seconds()) + 1)
	for _, a := range m.agents {
		if lines := strings.Count(a.machine.Console(), "\n"); lines == 0 || lines > most {
			errs = append(errs, fmt.Errorf("agent %s has printed %d lines, and may print %d", a.name, lines, most))
		}
	}
	return errors.Join(errs...)
}

// tails returns the ends of the agents' logs as an error.
func (m *mesh) tails() error {
	var errs []error
	for _, a := range m.agents {
		if a.machine != nil {
			lines := strings.Split(strings.TrimSpace(a.machine.Console()), "\n")
			errs = append(errs, fmt.Errorf("the log of agent %s ends with:\n%s", a.name, strings.Join(lines[max(0, len(lines)-40):], "\n")))
		}
	}
	return errors.Join(errs...)
}
