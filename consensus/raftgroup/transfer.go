package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// transferTries is how often a leader tries to transfer its leadership. Each attempt may take one election timeout for the voter to
// catch up and, in the library, another one; a busy machine may stall for that long.
const transferTries = 3

// errBehind is the error of a voter that has not answered, or lacks entries, when it is to take the leadership.
var errBehind = errors.New("is out of reach or lacks entries of the log")

// Transfer transfers the leadership to voter id, or to the first other voter that holds the whole log when id is empty, and retries a
// failed transfer. nil means that this member leads no longer. Entries submitted during the transfer fail with ErrTransferring.
func (g *Group) Transfer(ctx context.Context, id string) error {
	if !g.IsLeader() {
		return fmt.Errorf("transfer of leadership: %w", g.notLeader())
	}
	t := transfer{g: g, term: g.Term(), to: id}
	if len(t.heirs()) == 0 {
		if id == "" {
			return fmt.Errorf("transfer of leadership: %w", ErrNoPeer)
		}
		return fmt.Errorf("transfer of leadership to %s: it is not another voter of the group: %w", id, ErrNoPeer)
	}
	g.mu.Lock()
	g.transfers++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.transfers--
		g.mu.Unlock()
	}()
	for try := 1; ; try++ {
		asked, err := t.attempt(ctx)
		switch {
		case err == nil, asked && !t.leads():
			return nil
		case try < transferTries && t.leads() && pause(ctx, g.done, g.timing.ElectionTimeout/4):
			continue
		case !t.leads():
			return fmt.Errorf("transfer of leadership: %w", g.notLeader())
		}
		go g.probe(t.term)
		return fmt.Errorf("%w: %w", ErrNotHandedOver, err)
	}
}

// transfer is a transfer of the leadership of a term.
type transfer struct {
	g    *Group
	term uint64
	to   string // the voter that takes the leadership; empty: any
}

// leads reports whether this member still leads in the transfer's term.
func (t transfer) leads() bool { return t.g.IsLeader() && t.g.Term() == t.term }

// heirs returns the voters that may take the leadership.
func (t transfer) heirs() []Server {
	var heirs []Server
	for _, s := range t.g.Servers() {
		if s.Voter && s.ID != t.g.cfg.ID && (t.to == "" || s.ID == t.to) {
			heirs = append(heirs, s)
		}
	}
	return heirs
}

// attempt tries the transfer once. It reports whether a voter was asked to take the leadership.
func (t transfer) attempt(ctx context.Context) (asked bool, err error) {
	soon, cancel := context.WithTimeout(ctx, t.g.timing.ElectionTimeout)
	defer cancel()
	to, err := t.caughtUp(soon)
	if err != nil {
		return false, err
	}
	return true, t.g.ask(ctx, func() raft.Future {
		return t.g.raft.LeadershipTransferToServer(raft.ServerID(to.ID), raft.ServerAddress(to.Addr))
	})
}

// caughtUp returns one of the heirs that receives entries now and holds the whole log. The library is asked only for such a voter.
// Otherwise its transfer could end while its request still waits for the goroutine that sends entries to the voter, which rests for up
// to ten seconds after errors, and there is room for one such request: the next transfer to that voter would wait without an end, and
// this member would take no entries for the rest of its term.
func (t transfer) caughtUp(ctx context.Context) (Server, error) {
	g := t.g
	newest := g.raft.LastIndex()
	round := g.trans.openRound()
	g.trans.ask(g.cfg.ID, t.term, t.heirs())
	first, cancel := context.WithTimeout(ctx, g.timing.HeartbeatTimeout)
	defer cancel()
	// While nothing is written, which a leader with a bad disk cannot do, the request does not wait for that goroutine.
	to, err := t.await(first, func(heirs []Server) (*Server, <-chan struct{}) { return g.trans.upToDate(newest, t.term, round, heirs) })
	if err == nil {
		return to, nil
	}
	// A voter that holds an entry which is added now receives entries.
	if err := g.Barrier(ctx); err != nil {
		return Server{}, err
	}
	newest = g.raft.LastIndex()
	g.trans.ask(g.cfg.ID, t.term, t.heirs())
	return t.await(ctx, func(heirs []Server) (*Server, <-chan struct{}) { return g.trans.holder(newest, t.term, heirs) })
}

// await waits until find returns one of the heirs. find returns a channel that is closed when it is to be called again, or nil if that is
// of no use.
func (t transfer) await(ctx context.Context, find func([]Server) (*Server, <-chan struct{})) (Server, error) {
	for {
		moved := t.g.LeaderChanged()
		if !t.leads() {
			return Server{}, t.g.notLeader()
		}
		heirs := t.heirs()
		to, news := find(heirs)
		if to != nil {
			return *to, nil
		}
		if news == nil {
			return Server{}, behind(heirs)
		}
		select {
		case <-news:
		case <-moved:
		case <-ctx.Done():
			return Server{}, behind(heirs)
		case <-t.g.done:
			return Server{}, ErrShutdown
		}
	}
}

// behind returns the error that none of the heirs can take the leadership.
func behind(heirs []Server) error {
	if len(heirs) == 1 {
		return fmt.Errorf("%s %w", heirs[0].ID, errBehind)
	}
	return fmt.Errorf("each of the %d other voters %w", len(heirs), errBehind)
}

// pause waits for d and reports whether it did so in full: it returns false when ctx or done ends it.
func pause(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-done:
	}
	return false
}
