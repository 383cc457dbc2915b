package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// fate is what becomes of a request that is sent to an agent.
type fate struct {
	// hangs: the agent never accepts the connection.
	hangs bool
	// The agent carries the request out after work, and answers after a further pause.
	work, pause time.Duration
	// leaderless: the agent answers after work that it knows no leader.
	leaderless bool
	// lost: the agent answers after work that too few voters are there to have a leader.
	lost bool
	// breaks: the connection breaks after pause, instead of an answer.
	breaks bool
	// dies: the connection breaks after work, and the request is not carried out.
	dies bool
}

// replies is a transport to agents of a mesh that holds one object, which a request deletes. Each agent has a
// fate for each request that it gets; the last one repeats.
type replies struct {
	mu    sync.Mutex
	fates map[string][]fate
	asked []string // agents in the order in which they were asked
	times []time.Duration
	begun time.Time
	ids   map[string]bool
	there func() bool // whether the object exists, as far as others are concerned
	done  int         // how often the request was carried out
	work  sync.WaitGroup
}

func (m *replies) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	m.mu.Lock()
	m.asked, m.times = append(m.asked, host), append(m.times, time.Since(m.begun))
	m.ids[r.Header.Get(api.HeaderRequest)] = true
	f := m.fates[host][0]
	if len(m.fates[host]) > 1 {
		m.fates[host] = m.fates[host][1:]
	}
	m.mu.Unlock()
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GetConn(host)
	if f.hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	trace.GotConn(httptrace.GotConnInfo{})
	ended := make(chan *http.Response, 1)
	m.work.Go(func() { // also if the client gives up: the agent may not notice
		time.Sleep(f.work)
		var answer *http.Response
		switch {
		case f.leaderless:
			answer = reply(503, api.ProblemNoLeader)
		case f.lost:
			answer = reply(503, api.ProblemNoLeader, api.Quorum{Voters: 3, Alive: 1, Needed: 2, Lost: true})
		case !f.dies:
			answer = m.carryOut()
		}
		time.Sleep(f.pause)
		if f.breaks {
			answer = nil
		}
		ended <- answer
	})
	select {
	case answer := <-ended:
		if answer == nil {
			return nil, errors.New("connection reset")
		}
		answer.Request = r
		return answer, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// carryOut deletes the object. A request that is repeated after the deletion gets the same answer.
func (m *replies) carryOut() *http.Response {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.done > 0:
	case !m.there():
		return reply(404, api.ProblemNotFound)
	default:
		m.done++
	}
	return reply(200, "")
}

func reply(status int, problem string, quorum ...api.Quorum) *http.Response {
	p := api.Problem{Type: problem, Title: "refused", Status: status}
	if len(quorum) > 0 {
		p.Quorum = &quorum[0]
	}
	body, _ := json.Marshal(p)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body)))}
}

// play sends a write to agents with these fates and returns the time that it took and its error.
func play(t *testing.T, m *replies, agents ...string) (time.Duration, error) {
	t.Helper()
	m.begun, m.ids = time.Now(), map[string]bool{}
	c, err := client.New(client.Config{Addresses: agents, Transport: m})
	if err != nil {
		t.Fatal(err)
	}
	err = c.DeleteSecret(context.Background(), "x")
	return time.Since(m.begun), err
}

// since returns a function that reports whether a time has passed.
func since(d time.Duration) func() bool {
	begun := time.Now()
	return func() bool { return time.Since(begun) >= d }
}

// TestWritesGoToTheNextAgent: a write whose agent is silent is sent to the next one with the same id, and a refusal
// counts only if no other agent may still carry the write out.
func TestWritesGoToTheNextAgent(t *testing.T) {
	const ms = time.Millisecond
	always := time.Duration(0)
	for name, tt := range map[string]struct {
		a, b     []fate
		there    time.Duration // the object exists from then on
		notFound bool
		took     time.Duration
		asked    string
		done     int
	}{
		"an agent that answers":             {a: []fate{{work: 900 * ms}}, took: 900 * ms, asked: "a", done: 1},
		"no connection":                     {a: []fate{{hangs: true}}, b: []fate{{}}, took: 300 * ms, asked: "ab", done: 1},
		"no answer":                         {a: []fate{{work: time.Hour}}, b: []fate{{}}, took: 1000 * ms, asked: "ab", done: 1},
		"no leader":                         {a: []fate{{work: 600 * ms, leaderless: true}}, b: []fate{{}}, took: 600 * ms, asked: "ab", done: 1},
		"a refusal, the other has no conn":  {a: []fate{{hangs: true}}, b: []fate{{}}, there: time.Hour, notFound: true, took: 300 * ms, asked: "ab"},
		"a refusal, the other does it":      {a: []fate{{work: 3000 * ms}}, b: []fate{{}}, there: 2000 * ms, took: 3000 * ms, asked: "ab", done: 1},
		"a refusal, the other refuses, too": {a: []fate{{work: 3000 * ms}}, b: []fate{{}}, there: time.Hour, notFound: true, took: 3000 * ms, asked: "ab"},
		"a refusal, the other has no leader": {a: []fate{{work: 3000 * ms, leaderless: true}}, b: []fate{{}}, there: 2000 * ms, notFound: true,
			took: 3000 * ms, asked: "ab"},
		"a refusal, the other does it and its answer is lost": {a: []fate{{work: 3000 * ms, pause: 500 * ms, breaks: true}}, b: []fate{{}},
			there: 2000 * ms, took: 3500 * ms, asked: "abb", done: 1},
		"a refusal, the other dies": {a: []fate{{work: 3000 * ms, dies: true}}, b: []fate{{}}, there: time.Hour, notFound: true, took: 3000 * ms,
			asked: "abb"},
		"a lost answer": {a: []fate{{pause: 500 * ms, breaks: true}}, b: []fate{{}}, there: always, took: 500 * ms, asked: "ab", done: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &replies{fates: map[string][]fate{"a": tt.a, "b": tt.b}, there: since(tt.there)}
				took, err := play(t, m, "a", "b")
				m.work.Wait()
				if errors.Is(err, client.ErrNotFound) != tt.notFound || err != nil && !tt.notFound {
					t.Errorf("the answer is %v", err)
				}
				if asked := strings.Join(m.asked, ""); took != tt.took || asked != tt.asked || m.done != tt.done || len(m.ids) != 1 {
					t.Errorf("after %v; asked %s at %v with %d ids; done %d times", took, asked, m.times, len(m.ids), m.done)
				}
			})
		})
	}
}

// TestLostQuorum: a client does not wait long for a leader once an agent has answered that there can be none, unless
// another agent may yet carry a write out.
func TestLostQuorum(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		a, b []fate
		took time.Duration
		done bool
	}{
		"it is back in time":            {a: []fate{{lost: true}, {lost: true}, {}}, b: []fate{{hangs: true}}, done: true},
		"the other agent has a leader":  {a: []fate{{lost: true}}, b: []fate{{work: 100 * ms}}, took: 100 * ms, done: true},
		"it stays lost":                 {a: []fate{{work: 600 * ms, lost: true}}, b: []fate{{work: 600 * ms, lost: true}}},
		"the other agent does not hear": {a: []fate{{work: 600 * ms, lost: true}}, b: []fate{{hangs: true}}},
		"the other agent does it late":  {a: []fate{{work: 600 * ms, lost: true}}, b: []fate{{work: 5000 * ms}}, took: 5000 * ms, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &replies{fates: map[string][]fate{"a": tt.a, "b": tt.b}, there: since(0)}
				took, err := play(t, m, "a", "b")
				m.work.Wait()
				var e *client.Error
				if lost := errors.As(err, &e) && e.Quorum != nil && e.Quorum.Lost && errors.Is(err, client.ErrUnreachable); lost == tt.done ||
					(m.done > 0) != tt.done || took > max(5000*ms, tt.took+2000*ms) {
					t.Errorf("after %v: %v; done %d times, asked %v at %v", took, err, m.done, m.asked, m.times)
				}
			})
		})
	}
	// An agent that is frozen may go on with the write later.
	synctest.Test(t, func(t *testing.T) {
		m := &replies{fates: map[string][]fate{"a": {{lost: true}}, "b": {{work: time.Minute}}}, there: since(0)}
		took, err := play(t, m, "a", "b")
		m.work.Wait()
		if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), "may or may not") || took > 10*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestAnswersAreTrue lets agents be slow, lose answers, die and have no leader at random, while the object
// appears and disappears. It checks that the answers that the client gets match what was done.
func TestAnswersAreTrue(t *testing.T) {
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			some := func() time.Duration { return time.Duration(random.IntN(3000)) * time.Millisecond }
			m := &replies{fates: map[string][]fate{}}
			agents := []string{"a", "b", "c"}[:2+random.IntN(2)]
			for _, a := range agents {
				for range 3 {
					f := fate{work: some(), pause: some()}
					switch random.IntN(8) {
					case 0:
						f.hangs = true
					case 1:
						f.leaderless = true
					case 2:
						f.breaks = true
					case 3:
						f.dies = true
					}
					m.fates[a] = append(m.fates[a], f)
				}
				m.fates[a] = append(m.fates[a], fate{work: 10 * time.Millisecond})
			}
			appears, disappears := since(some()), since(some())
			m.there = func() bool { return appears() != disappears() }
			took, err := play(t, m, agents...)
			m.work.Wait()
			told := fmt.Sprintf("seed %d: after %v and %v the answer is %v, and the write was done %d times", seed, took, m.asked, err, m.done)
			switch {
			case err == nil && m.done != 1, errors.Is(err, client.ErrNotFound) && m.done != 0:
				t.Error(told)
			case err != nil && !errors.Is(err, client.ErrNotFound) && took < 15*time.Second:
				t.Error(told)
			}
		})
	}
}

// TestSilentAgentDoesNotHoldUp: while one agent is silent, the others are asked until they have a leader.
func TestSilentAgentDoesNotHoldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := fate{work: 600 * time.Millisecond, leaderless: true}
		m := &replies{there: since(0), fates: map[string][]fate{"a": {{work: time.Hour}}, "b": {none, none, {}}, "c": {none, none, {}}}}
		took, err := play(t, m, "a", "b", "c")
		if err != nil || took > 4*time.Second {
			t.Errorf("after %v, %v: %v", took, m.asked, err)
		}
		m.work.Wait()
	})
}

// TestSingleWrites: a write that the mesh might carry out twice is never under way at two agents.
func TestSingleWrites(t *testing.T) {
	for name, do := range map[string]func(context.Context, *client.Client) error{
		"join":     func(ctx context.Context, c *client.Client) error { return third(c.Join(ctx, []string{"x"})) },
		"leave":    func(ctx context.Context, c *client.Client) error { return c.Leave(ctx, "x", false) },
		"transfer": func(ctx context.Context, c *client.Client) error { return c.RaftTransfer(ctx, "x") },
		"remove":   func(ctx context.Context, c *client.Client) error { return c.RaftRemove(ctx, "x") },
		"token": func(ctx context.Context, c *client.Client) error {
			return second(c.CreateToken(ctx, api.NewToken{Actor: "x"}))
		},
		"upload": func(ctx context.Context, c *client.Client) error {
			return c.SnapshotRestore(ctx, strings.NewReader("x"), api.RestoreOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				agents := &busy{}
				c, err := client.New(client.Config{Addresses: []string{"a", "b"}, Transport: agents})
				if err != nil {
					t.Fatal(err)
				}
				_ = do(t.Context(), c) // the answer is not of the kind that it expects
				if agents.asked.Load() != 1 {
					t.Errorf("%d agents were asked", agents.asked.Load())
				}
			})
		})
	}
}

func third[T any](_ T, err error) error { return err }
