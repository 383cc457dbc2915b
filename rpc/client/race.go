package client

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coopr/coopr/engine/problem"
)

// A request that an agent does not answer goes to the next agent as well, with the same request id, and
// the first final answer counts. The next agent is asked when the last one has not accepted the connection
// after connectTime, or has not begun its answer after answerTime.
const (
	connectTime = 300 * time.Millisecond
	answerTime  = time.Second
	// slowest is the rate, in bytes a second, at which an agent is expected to receive a body at least.
	slowest = 64 << 10
)

// attempt is a request to one agent.
type attempt struct {
	agent  int // index in Client.bases
	begun  time.Time
	cancel context.CancelFunc
	conn   atomic.Int32
}

// The states of an attempt's connection. A transport for tests may not report any.
const (
	connUnknown int32 = iota
	connAwaited
	connected
)

// unsent reports whether the agent cannot have received the request yet.
func (a *attempt) unsent() bool { return a.conn.Load() == connAwaited }

// result is the end of an attempt.
type result struct {
	*attempt
	resp *http.Response
	err  error
}

// answerError is an error that an agent has answered.
type answerError struct{ error }

func (e *answerError) Unwrap() error { return e.error }

// final reports whether the agent has answered with an error that it would answer again.
func (r result) final() bool {
	var answer *answerError
	if !errors.As(r.err, &answer) {
		return false
	}
	var e *Error
	return !errors.As(r.err, &e) || !e.passing()
}

// harmless reports whether the attempt has certainly changed nothing, and will not.
func (r result) harmless() bool {
	return r.unsent() || r.final() || errors.Is(r.err, problem.NoLeader) || errors.Is(r.err, problem.Busy) ||
		errors.Is(r.err, problem.Throttled)
}

// errDoubtful means that an agent has refused a write while another one, from which no answer came, may have
// carried it out.
var errDoubtful = errors.New("the request may or may not have been carried out")

// errStaleWrite is the error of a write by a client for stale reads.
var errStaleWrite = errors.New("only reads can be stale: a change needs the leader")

// noLeader reports whether the agent has answered that it reaches no leader.
func (r result) noLeader() bool { return errors.Is(r.err, problem.NoLeader) }

// lostQuorum reports whether the agent has answered that too few voters are there to have a leader.
func (r result) lostQuorum() bool {
	var e *Error
	return errors.As(r.err, &e) && e.Quorum != nil && e.Quorum.Lost
}

// harmlessWithout reports whether the answers to these attempts need not be waited for: of a read because they are overdue, as an
// agent at which it waits for a change has its time, and of a write because it was not sent.
func (r request) harmlessWithout(under map[int]*attempt) bool {
	for _, a := range under {
		if r.method == http.MethodGet && !a.overdue(r) || r.method != http.MethodGet && !a.unsent() {
			return false
		}
	}
	return true
}

// maxDoubtful is how often a request is sent again at once, even if patience has ended, because of errDoubtful.
const maxDoubtful = 3

// do sends a request until there is a final answer or patience ends. The caller closes the body of
// the answer.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	if c.stale && r.method != http.MethodGet {
		return nil, errStaleWrite
	}
	if r.method != http.MethodGet && r.id == "" {
		r.id, _ = ctx.Value(requestIDKey{}).(string)
		r.retry = r.id != ""
		if r.id == "" {
			r.id = NewRequestID()
		}
	}
	end := c.race(ctx, r)
	var e *Error
	switch {
	case end.err == nil:
		return end.resp, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case end.final():
		return nil, bare(end.err)
	case errors.As(end.err, &e):
		return nil, e
	}
	return nil, fmt.Errorf("%w at %s: %w", ErrUnreachable, strings.Join(c.bases, ", "), end.err)
}

// race asks one agent after the other, beginning with the one that answered last, until there is a final
// answer or patience ends. Agents that have not answered yet keep their requests. When every agent was
// asked, there are pauses.
//
// A refusal of a write is final only if the write is not under way elsewhere: the agent that was asked
// first may yet carry it out. So race waits for the other agents that may have received the request, and
// asks again if one of them does not report the outcome.
func (c *Client) race(ctx context.Context, r request) (last result) {
	begun := time.Now()
	deadline := begun.Add(c.patience)
	pause := 50 * time.Millisecond
	results := make(chan result, len(c.bases))
	under := map[int]*attempt{} // by agent
	defer func() {
		for _, a := range under {
			a.cancel()
		}
		go discard(results, len(under))
	}()
	var (
		newest   *attempt
		asked    int
		at       = time.Now()     // when the next agent is asked
		refusal  *result          // of a write
		doubt    bool             // an attempt that ran at the same time as another one may have been carried out
		doubtful int              // number of refusals that were doubtful
		again    bool             // a doubtful refusal has the request sent again, even if patience has ended
		giveUp   <-chan time.Time // when patience ends, once an agent has answered that it reaches no leader
		over     bool             // patience has ended so
	)
	for next := int(c.next.Load()) % len(c.bases); ; {
		more := asked == 0 || refusal == nil && r.stream == nil && c.patience >= 0 && len(under) < len(c.bases) &&
			(r.raced() || len(under) == 0) && (asked < len(c.bases) || at.Before(deadline) || again && len(under) == 0)
		if !more && len(under) == 0 || over && last.noLeader() && r.harmlessWithout(under) {
			c.next.Store(uint32(next))
			return last
		}
		timer := time.NewTimer(time.Until(at))
		if !more {
			timer.Stop()
		}
		select {
		case <-timer.C:
			if len(under) > 0 && under[newest.agent] == newest && !newest.overdue(r) {
				at = newest.due(r)
				continue
			}
			for under[next] != nil {
				next = (next + 1) % len(c.bases)
			}
			newest = c.start(ctx, r, next, results)
			under[next], again = newest, false
			r.retry = r.method != http.MethodGet
			next = (next + 1) % len(c.bases)
			asked++
			at = newest.due(r)
		case <-giveUp:
			timer.Stop()
			switch {
			case asked < len(c.bases):
				giveUp = time.After(connectTime)
			case !over:
				over, giveUp = true, time.After(c.lost) // an agent that may carry out a write has as long again
			case last.noLeader() && r.method == http.MethodGet:
				giveUp = time.After(answerTime) // until the answers that are still waited for are overdue
			case last.noLeader():
				last.err = fmt.Errorf("%w: %s; another agent has not answered", errDoubtful, last.err.Error())
				return last
			default:
				giveUp = nil
			}
		case end := <-results:
			timer.Stop()
			delete(under, end.agent)
			switch {
			case end.err == nil, ctx.Err() != nil, end.final() && r.method == http.MethodGet:
				c.next.Store(uint32(end.agent))
				return end
			case end.final():
				refusal = &end
				for _, a := range under {
					if a.unsent() {
						a.cancel()
					}
				}
			default:
				lost := end.lostQuorum()
				if early := begun.Add(c.lost); lost && early.Before(deadline) {
					deadline, giveUp = early, nil // another agent may reach a leader, or the voters may be back soon
				}
				if giveUp == nil && !over && end.noLeader() {
					giveUp = time.After(time.Until(deadline))
				}
				if !last.noLeader() || lost || !end.harmless() {
					last = end
				}
				doubt = (doubt || !end.harmless()) && (len(under) > 0 || refusal != nil)
				at = time.Now()
				if asked >= len(c.bases) {
					at = at.Add(pause/2 + mrand.N(pause))
					pause = min(2*pause, 2*time.Second)
				}
			}
			if refusal == nil || len(under) > 0 {
				continue
			}
			if !doubt {
				c.next.Store(uint32(refusal.agent))
				return *refusal
			}
			last.err = fmt.Errorf("%w: an agent refused it (%s), and another one did not answer", errDoubtful, refusal.err.Error())
			if doubtful++; doubtful > maxDoubtful {
				return last
			}
			// The mesh carries out no copy after it has refused a retry, so that the next answer is certain.
			next, at, refusal, doubt, again = refusal.agent, time.Now(), nil, false, true
		}
	}
}

// bare returns an error that an agent has answered without its wrapper.
func bare(err error) error {
	var answer *answerError
	if errors.As(err, &answer) {
		return answer.error
	}
	return err
}

// discard closes the answers of n attempts that came too late to count.
func discard(results <-chan result, n int) {
	for range n {
		if end := <-results; end.err == nil {
			end.resp.Body.Close()
		}
	}
}

// raced reports whether a request may be sent to several agents at once: the mesh carries it out once.
func (r request) raced() bool { return r.stream == nil && r.again == nil && !r.single }

// due returns the time at which the next agent is asked if nothing changes until then.
func (a *attempt) due(r request) time.Time {
	if a.conn.Load() != connected && time.Since(a.begun) < connectTime {
		return a.begun.Add(connectTime)
	}
	return a.begun.Add(r.answerTime())
}

// overdue reports whether it is time to ask the next agent.
func (a *attempt) overdue(r request) bool {
	return time.Since(a.begun) >= r.answerTime() || a.unsent() && time.Since(a.begun) >= connectTime
}

// answerTime is how long an agent may take to begin its answer before the next one is asked as well.
func (r request) answerTime() time.Duration {
	if r.method == http.MethodGet && !r.short {
		return silence // a stream may begin late
	}
	return answerTime + r.wait() + time.Duration(len(r.body))*time.Second/slowest // the body has to arrive first
}

// start sends a request to an agent. The result follows on results.
func (c *Client) start(ctx context.Context, r request, agent int, results chan<- result) *attempt {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{agent: agent, begun: time.Now(), cancel: cancel}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.conn.Store(connAwaited) },
		GotConn: func(httptrace.GotConnInfo) { a.conn.Store(connected) },
	})
	go func() {
		resp, err := c.once(ctx, c.bases[agent], r)
		if err != nil {
			cancel()
		} else {
			resp.Body = &body{resp.Body, func(error) { cancel() }}
		}
		results <- result{a, resp, err}
	}()
	return a
}
