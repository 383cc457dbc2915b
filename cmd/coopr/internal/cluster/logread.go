package cluster

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

const (
	// readers is how many logs are read at a time, and followers how many are followed: fewer than an agent has streams for a tenant.
	readers, followers = 8, 64
	// maxBroken is how often a log is read whose agent does not send all of it.
	maxBroken = 5
	// most is the length of a page of operations and of tasks.
	most = 1000
	// apart is how far the clocks of agents may differ: times of lines are of the agent that ran the task, those of attempts of the leader.
	apart = time.Minute
)

// taskLogs merges the logs of a cluster's tasks. Its fields belong to the goroutine that calls its methods.
type taskLogs struct {
	client  *client.Client
	cluster string // its id
	service string // "" for all
	tail    int    // negative for all lines
	since   time.Time
	pace    time.Duration
	show    func(logLine) error

	attempts map[attemptKey]*attemptLog
	ended    map[string]bool // operations whose attempts are all known, and over
}

// wanted reports whether a line is young enough.
func (l *taskLogs) wanted(line logLine) bool { return !line.Time.Before(l.since) }

// find looks for attempts, and returns those that it did not know, the latest last, also with an error: they are known from then on. It
// closes over of those that have ended. all is true if the cluster is terminated, so that there will be no more. meta is of the state that
// was read first.
func (l *taskLogs) find(ctx context.Context, read client.Read) (found []*attemptLog, all bool, meta client.Meta, err error) {
	cl, meta, err := l.client.Cluster(ctx, l.cluster, read)
	if err != nil {
		return nil, false, meta, err
	}
	all = cl.Status == model.ClusterTerminated
	defer func() { slices.SortStableFunc(found, func(a, b *attemptLog) int { return a.leased.Compare(b.leased) }) }()
	for offset := 0; ; {
		ops, m, err := l.client.Operations(ctx, l.cluster, nil, client.Page{Offset: offset, Limit: most}, client.Read{})
		if err != nil {
			return found, false, meta, err
		}
		for i := range ops {
			if l.ended[ops[i].ID] {
				continue
			}
			if ended := ops[i].EndedAt; ended == 0 || !time.UnixMilli(ended).Add(apart).Before(l.since) {
				tasks, err := l.ofOperation(ctx, &ops[i])
				found = append(found, tasks...)
				if err != nil {
					return found, false, meta, err
				}
			}
			l.ended[ops[i].ID] = ops[i].Status.Ended()
			all = all && ops[i].Status.Ended()
		}
		if offset += len(ops); len(ops) == 0 || offset >= m.Total {
			break
		}
	}
	return found, all, meta, nil
}

// ofOperation is find for the tasks of one operation.
func (l *taskLogs) ofOperation(ctx context.Context, op *api.OperationDetails) (found []*attemptLog, err error) {
	for offset := 0; ; {
		tasks, m, err := l.client.Tasks(ctx, op.ID, "", client.Page{Offset: offset, Limit: most}, client.Read{})
		if errors.Is(err, client.ErrNotFound) {
			return found, nil // it is not kept any more
		}
		if err != nil {
			return found, err
		}
		for i := range tasks {
			t := &tasks[i]
			if l.service != "" && t.Service != l.service {
				continue
			}
			for j := range t.Attempts {
				at := &t.Attempts[j]
				a := l.attempts[attemptKey{t.ID, at.Number}]
				if a == nil {
					a = newAttempt(t, at)
					l.attempts[a.attemptKey] = a
					found = append(found, a)
				}
				if (t.Attempt != at.Number || !t.Status.Held()) && !a.ended() {
					a.finish(time.UnixMilli(cmp.Or(at.Ended, at.Leased)).UTC())
				}
			}
		}
		if offset += len(tasks); len(tasks) == 0 || offset >= m.Total {
			return found, nil
		}
	}
}

// read reads the log of an attempt after the lines that were read already, and calls emit with each line. If the agent that has the log
// does not send it, a line says so, and lines that the state keeps follow; but not to somebody who follows the log, since the agent may
// return.
func (l *taskLogs) read(ctx context.Context, a *attemptLog, follow bool, emit func(logLine) error) error {
	r, err := l.client.TaskLog(ctx, a.task, a.number, follow)
	if err != nil {
		return err
	}
	defer r.Close()
	done := &a.lines
	if r.Missing != "" {
		if follow {
			return nil
		}
		if err := a.miss(r.Missing, emit); err != nil {
			return err
		}
		done = &a.kept // these lines are numbered from 1, too
	}
	in := bufio.NewReader(r)
	var last time.Time
	for n := 1; ; n++ {
		text, err := in.ReadString('\n')
		if err != nil && (!errors.Is(err, io.EOF) || text == "" || !a.ended()) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err // what there is of a line comes again
		}
		line := a.parse(strings.TrimRight(text, "\r\n"), last)
		if last = line.Time; n <= *done {
			continue
		}
		*done = n
		if err := emit(line); err != nil {
			return err
		}
	}
}

// miss emits a line that says that output of an attempt is missing, unless there was one.
func (a *attemptLog) miss(why string, emit func(logLine) error) error {
	if a.missed {
		return nil
	}
	a.missed = true
	line, part := a.head, "the output"
	if a.lines > 0 {
		part = "the rest of the output"
	}
	line.Time, line.Missing, line.Text = a.latest(), true, part+" is missing, except for its last lines if they follow: "+why
	return emit(line)
}

// readAll returns the lines of attempts, in order of time. Of those that are too many for tail it may leave out some.
func (l *taskLogs) readAll(ctx context.Context, attempts []*attemptLog) ([]logLine, error) {
	read := make([][]logLine, len(attempts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, a := range attempts {
		group.Go(func() error {
			return l.readWhole(ctx, a, func(line logLine) error {
				if l.tail != 0 && l.wanted(line) {
					read[i] = append(read[i], line)
				}
				if l.tail > 0 && len(read[i]) > 2*l.tail+1000 {
					slices.SortStableFunc(read[i], byTime)
					read[i] = slices.Clone(read[i][len(read[i])-l.tail:])
				}
				return nil
			})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	lines := slices.Concat(read...)
	slices.SortStableFunc(lines, byTime)
	return lines, nil
}

// readWhole reads what there is of a log, again if its agent is lost in between. After some times, a line says that the rest is missing.
func (l *taskLogs) readWhole(ctx context.Context, a *attemptLog, emit func(logLine) error) error {
	for n := 1; ; n++ {
		err := l.read(ctx, a, false, emit)
		var answer *client.Error
		switch {
		case err == nil, errors.Is(err, client.ErrNotFound): // its operation is not kept any more
			return nil
		case ctx.Err() != nil || errors.As(err, &answer) || errors.Is(err, client.ErrUnreachable):
			return err
		case n == maxBroken:
			return a.miss(err.Error(), emit)
		}
		if !cli.Pause(ctx, l.pace) {
			return context.Cause(ctx)
		}
	}
}

// present shows the lines that exist.
func (l *taskLogs) present(ctx context.Context) error {
	found, _, _, err := l.find(ctx, client.Read{})
	if err != nil {
		return err
	}
	if l.tail >= 0 {
		return l.presentTail(ctx, found)
	}
	found = slices.DeleteFunc(found, func(a *attemptLog) bool { return a.ended() && a.end.Add(apart).Before(l.since) })
	var held []logLine
	for len(found) > 0 { // the earliest first; lines are held until no later attempt can have earlier ones
		part := found[:min(readers, len(found))]
		found = found[len(part):]
		lines, err := l.readAll(ctx, part)
		if err != nil {
			return err
		}
		held = append(held, lines...)
		slices.SortStableFunc(held, byTime)
		n := len(held)
		if len(found) > 0 {
			next := found[0].leased.Add(-apart)
			n, _ = slices.BinarySearchFunc(held, next, func(line logLine, t time.Time) int { return line.Time.Compare(t) })
		}
		if err := l.showAll(held[:n]); err != nil {
			return err
		}
		held = slices.Clone(held[n:])
	}
	return nil
}

// presentTail shows the latest lines.
func (l *taskLogs) presentTail(ctx context.Context, found []*attemptLog) error {
	var lines []logLine
	for len(found) > 0 { // the latest first, as far as needed
		part := found[max(0, len(found)-4*readers):]
		found = found[:len(found)-len(part)]
		part = slices.DeleteFunc(slices.Clone(part), func(a *attemptLog) bool {
			end := a.latest().Add(apart)
			return a.ended() && (end.Before(l.since) || l.tail == 0 || l.tail > 0 && len(lines) == l.tail && end.Before(lines[0].Time))
		})
		earlier, err := l.readAll(ctx, part)
		if err != nil {
			return err
		}
		lines = append(earlier, lines...)
		slices.SortStableFunc(lines, byTime)
		lines = slices.Clone(lines[max(0, len(lines)-l.tail):])
	}
	return l.showAll(lines)
}

// showAll shows lines.
func (l *taskLogs) showAll(lines []logLine) error {
	for _, line := range lines {
		if err := l.show(line); err != nil {
			return err
		}
	}
	return nil
}

// follow shows later lines until the cluster is terminated.
func (l *taskLogs) follow(ctx context.Context) error {
	group, following := errgroup.WithContext(ctx)
	lines, done := make(chan logLine), make(chan struct{})
	group.Go(func() error {
		defer close(done)
		return l.watch(following, lines)
	})
	group.Go(func() error { return l.merge(following, lines, done) })
	if err := group.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// watch follows every attempt, also of later tasks, until the cluster is terminated and all its attempts have ended.
func (l *taskLogs) watch(ctx context.Context, lines chan<- logLine) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	group, following := errgroup.WithContext(ctx)
	fail := func(err error) error {
		stop(err)
		if failed := group.Wait(); failed != nil {
			return failed
		}
		return err
	}
	group.SetLimit(followers) // further attempts wait, and lose nothing
	waiting := make([]*attemptLog, 0, len(l.attempts))
	for _, a := range l.attempts {
		if !a.ended() {
			waiting = append(waiting, a)
		}
	}
	read := client.Read{}
	for {
		begun := time.Now()
		found, all, meta, err := l.find(following, read)
		if errors.Is(err, client.ErrNotFound) {
			all, err = true, nil // it was terminated, and is not kept any more
		}
		if errors.Is(err, client.ErrUnreachable) {
			err = nil // there will be a leader again, or Ctrl-C
		}
		if err != nil {
			return fail(err)
		}
		waiting = append(waiting, found...)
		for len(waiting) > 0 && group.TryGo(l.follower(following, waiting[0], lines)) {
			waiting = waiting[1:]
		}
		if all && len(waiting) == 0 {
			for _, a := range l.attempts {
				if !a.ended() {
					a.finish(a.leased) // its cluster is gone
				}
			}
			return group.Wait()
		}
		if !cli.Pause(following, max(l.pace, 2*time.Since(begun))) { // long lists are read less often
			return fail(context.Cause(following))
		}
		if read = cli.Newer(meta); all || len(waiting) > 0 {
			read = client.Read{}
		}
	}
}

// follower returns a function that reads the log of an attempt until it has ended.
func (l *taskLogs) follower(ctx context.Context, a *attemptLog, lines chan<- logLine) func() error {
	return func() error {
		for {
			over := a.ended()
			err := l.read(ctx, a, !over, func(line logLine) error {
				if !l.wanted(line) {
					return nil
				}
				select {
				case lines <- line:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case over && (err == nil || errors.Is(err, client.ErrNotFound)):
				return nil
			case final(err):
				return err
			}
			// The log has no end yet, the agent that sent it has stopped, or there are too many readers.
			if !cli.Pause(ctx, l.pace) {
				return context.Cause(ctx)
			}
		}
	}
}

// final reports whether an agent has refused to send a log, and will again.
func final(err error) bool {
	var answer *client.Error
	return errors.As(err, &answer) && !errors.Is(err, client.ErrUnreachable) && !slices.ContainsFunc(
		[]problem.Code{problem.NotFound, problem.Busy, problem.Throttled, problem.UnknownOutcome},
		func(code problem.Code) bool { return errors.Is(err, code) })
}

// merge shows lines in order of time, as far as they come together.
func (l *taskLogs) merge(ctx context.Context, lines <-chan logLine, done <-chan struct{}) error {
	var held []logLine
	tick := time.NewTicker(l.pace)
	defer tick.Stop()
	for ended := false; ; {
		select {
		case line := <-lines:
			held = append(held, line)
			continue
		case <-done:
			ended = true
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		slices.SortStableFunc(held, byTime)
		if err := l.showAll(held); err != nil {
			return err
		}
		held = held[:0]
		if ended {
			return nil
		}
	}
}
