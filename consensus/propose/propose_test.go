package propose_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/coopr/coopr/consensus/propose"
	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a state machine whose entries consist of lines. It answers each line with its number.
type lines struct {
	*grouptest.Journal
}

func (l lines) Apply(e *raft.Log) any {
	var out []int
	for _, line := range strings.Split(string(e.Data), "\n") {
		if line == "refuse all" {
			return errors.New("refused")
		}
		if line == "answer too few" {
			return []int{}
		}
		n := l.Journal.Apply(&raft.Log{Data: []byte(line)}).(int)
		out = append(out, n)
	}
	return out
}

func encode(cmds []string) ([]byte, error) {
	for _, c := range cmds {
		if c == "cannot be encoded" {
			return nil, errors.New("cannot be encoded")
		}
	}
	return []byte(strings.Join(cmds, "\n")), nil
}

func proposer(t testing.TB, apply func([]byte) raftgroup.Future, change func(*propose.Config[string, int])) *propose.Proposer[string, int] {
	t.Helper()
	cfg := propose.Config[string, int]{Encode: encode, Apply: apply, Size: func(s string) int { return len(s) + 1 }}
	if change != nil {
		change(&cfg)
	}
	p, err := propose.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// future is a Future that the test answers.
type future struct {
	done chan struct{}
	data string
	resp any
	err  error
}

func (f *future) Done() <-chan struct{}          { return f.done }
func (f *future) Err() error                     { <-f.done; return f.err }
func (f *future) Wait(ctx context.Context) error { <-f.done; return f.err }
func (f *future) Index() uint64                  { return 1 }
func (f *future) Response() any                  { return f.resp }

func (f *future) answer(err error) {
	f.err = err
	var out []int
	for i := range strings.Split(f.data, "\n") {
		out = append(out, i)
	}
	f.resp = out
	close(f.done)
}

// slow is a log whose entries the test answers.
type slow struct {
	mu      sync.Mutex
	entries []*future
}

func (s *slow) apply(data []byte) raftgroup.Future {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &future{done: make(chan struct{}), data: string(data)}
	s.entries = append(s.entries, f)
	return f
}

func (s *slow) take(t *testing.T, n int) []*future {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries) != n {
		var got []string
		for _, f := range s.entries {
			got = append(got, f.data)
		}
		t.Fatalf("%d entries under way, want %d: %q", len(s.entries), n, got)
	}
	out := s.entries
	s.entries = nil
	return out
}

type answer struct {
	n   int
	err error
}

func ask(ctx context.Context, p *propose.Proposer[string, int], cmd string) chan answer {
	c := make(chan answer, 1)
	go func() {
		n, err := p.Propose(ctx, cmd)
		c <- answer{n, err}
	}()
	return c
}

func TestEveryAnswerFindsItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := grouptest.Start(t, 3, grouptest.Options{FSM: func(string) raft.FSM { return lines{&grouptest.Journal{}} }})
		defer c.Stop()
		lead := c.Leader()
		p := proposer(t, lead.Group().Apply, nil)
		var all sync.WaitGroup
		var mu sync.Mutex
		numbers := map[int]string{}
		for caller := range 50 {
			all.Go(func() {
				for i := range 20 {
					cmd := fmt.Sprint(caller, ".", i)
					n, err := p.Propose(context.Background(), cmd)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					numbers[n] = cmd
					mu.Unlock()
				}
			})
		}
		all.Wait()
		got := lead.FSM().(lines).Entries()
		if len(got) != 1000 || len(numbers) != 1000 {
			t.Fatalf("%d commands applied, %d answers", len(got), len(numbers))
		}
		for i, cmd := range got {
			if numbers[i+1] != cmd {
				t.Fatalf("number %d is %q, its caller was told of %q", i+1, cmd, numbers[i+1])
			}
		}
		if s := p.Stats(); s.Commands != 1000 || s.Entries >= 1000 || s.Waiting != 0 || s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestPacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log slow
		p := proposer(t, log.apply, func(c *propose.Config[string, int]) {
			c.MaxInFlight, c.MaxCount, c.MaxBytes = 2, 3, 19
		})
		bg := context.Background()
		a := ask(bg, p, "a")
		first := log.take(t, 1) // sent at once
		b := ask(bg, p, "b")
		second := log.take(t, 1) // two entries may be under way
		var rest []chan answer
		for _, cmd := range []string{"c", "d", "e", "f", "fifteen letters", "g"} {
			rest = append(rest, ask(bg, p, cmd))
			synctest.Wait() // keeps the commands in this order
		}
		log.take(t, 0)
		first[0].answer(nil)
		third := log.take(t, 1)
		if third[0].data != "c\nd\ne" {
			t.Fatalf("packed %q", third[0].data)
		}
		second[0].answer(nil)
		fourth := log.take(t, 1)
		if fourth[0].data != "f\nfifteen letters" {
			t.Fatalf("packed %q", fourth[0].data) // MaxCount would allow one more command, MaxBytes does not
		}
		third[0].answer(nil)
		fifth := log.take(t, 1)
		fourth[0].answer(nil)
		fifth[0].answer(nil)
		for i, want := range []int{0, 0, 0, 1, 2, 0, 1, 0} {
			if got := <-append([]chan answer{a, b}, rest...)[i]; got.err != nil || got.n != want {
				t.Fatalf("caller %d was answered %+v", i, got)
			}
		}
	})
}

func TestCallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log slow
		p := proposer(t, log.apply, func(c *propose.Config[string, int]) { c.MaxInFlight = 1 })
		ctx, cancel := context.WithCancel(context.Background())
		sent := ask(ctx, p, "sent")
		first := log.take(t, 1)
		waiting := ask(ctx, p, "waiting")
		stays := ask(context.Background(), p, "stays")
		synctest.Wait()
		cancel()
		if got := <-sent; !errors.Is(got.err, raftgroup.ErrUnknownOutcome) || !errors.Is(got.err, context.Canceled) {
			t.Fatalf("left while its entry was under way: %v", got.err)
		}
		if got := <-waiting; !errors.Is(got.err, context.Canceled) || errors.Is(got.err, raftgroup.ErrUnknownOutcome) {
			t.Fatalf("left while waiting: %v", got.err)
		}
		first[0].answer(nil)
		second := log.take(t, 1)
		if second[0].data != "stays" {
			t.Fatalf("sent %q", second[0].data)
		}
		second[0].answer(nil)
		if got := <-stays; got.err != nil || got.n != 0 {
			t.Fatalf("%+v", got)
		}
		if _, err := p.Propose(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		log.take(t, 0)
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log slow
		p := proposer(t, log.apply, func(c *propose.Config[string, int]) { c.MaxInFlight, c.MaxQueue, c.MaxBytes = 1, 2, 100 })
		bg := context.Background()
		if _, err := p.Propose(bg, strings.Repeat("x", 100)); !errors.Is(err, propose.ErrTooLarge) {
			t.Fatalf("a large command: %v", err)
		}
		if _, err := p.Propose(bg, "cannot be encoded"); err == nil {
			t.Fatal("encoded what cannot be")
		}
		under := ask(bg, p, "a")
		first := log.take(t, 1)
		q1, q2 := ask(bg, p, "b"), ask(bg, p, "c")
		synctest.Wait()
		if _, err := p.Propose(bg, "d"); !errors.Is(err, propose.ErrBusy) {
			t.Fatalf("a full queue: %v", err)
		}
		p.Close()
		for _, q := range []chan answer{q1, q2} {
			if got := <-q; !errors.Is(got.err, propose.ErrClosed) {
				t.Fatalf("closed while waiting: %v", got.err)
			}
		}
		if _, err := p.Propose(bg, "e"); !errors.Is(err, propose.ErrClosed) || !errors.Is(err, raftgroup.ErrShutdown) {
			t.Fatal(err)
		}
		first[0].answer(nil)
		if got := <-under; got.err != nil {
			t.Fatal(got.err)
		}
	})
}

func TestAnswersOfTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := grouptest.Start(t, 1, grouptest.Options{FSM: func(string) raft.FSM { return lines{&grouptest.Journal{}} }})
		defer c.Stop()
		p := proposer(t, c.Leader().Group().Apply, nil)
		if _, err := p.Propose(context.Background(), "refuse all"); err == nil || err.Error() != "refused" {
			t.Fatal(err)
		}
		if _, err := p.Propose(context.Background(), "answer too few"); err == nil {
			t.Fatal("too few answers were taken")
		}
	})
}

// TestLossOfLeadership: every caller gets an answer, and no successful command is
// lost.
func TestLossOfLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := grouptest.Start(t, 3, grouptest.Options{FSM: func(string) raft.FSM { return lines{&grouptest.Journal{}} }})
		defer c.Stop()
		lead := c.Leader()
		p := proposer(t, lead.Group().Apply, nil)
		var all sync.WaitGroup
		var mu sync.Mutex
		good := map[string]bool{}
		kinds := map[string]int{}
		for caller := range 20 {
			all.Go(func() {
				for i := range 1000 {
					cmd := fmt.Sprint(caller, ".", i)
					_, err := p.Propose(context.Background(), cmd)
					mu.Lock()
					switch {
					case err == nil:
						good[cmd] = true
					case errors.Is(err, raftgroup.ErrUnknownOutcome):
						kinds["unknown"]++
					case errors.Is(err, raftgroup.ErrNotLeader):
						kinds["not leader"]++
					default:
						t.Error(err)
					}
					mu.Unlock()
					if err != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		rest := []string{}
		for _, m := range c.Members() {
			if m.ID != lead.ID {
				rest = append(rest, m.ID)
			}
		}
		c.Partition([]string{lead.ID}, rest)
		all.Wait()
		next := c.LeaderAmong(rest...)
		have := map[string]bool{}
		for _, cmd := range next.FSM().(lines).Entries() {
			have[cmd] = true
		}
		for cmd := range good {
			if !have[cmd] {
				t.Fatalf("%s was answered and is lost", cmd)
			}
		}
		if len(good) == 0 || kinds["unknown"] == 0 {
			t.Fatalf("%d good, %v", len(good), kinds)
		}
	})
}
