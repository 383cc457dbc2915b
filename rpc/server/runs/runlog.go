package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func runLogRoute(s *rest.Server, tag, one string) {
	rest.Stream(
		s,
		rest.Route{
			ID:      "getRunLog",
			Method:  http.MethodGet,
			Path:    one + "/logs",
			Tag:     tag,
			Bare:    true,
			Summary: "Get the output of a run's program on all its nodes",
		},
		"application/x-ndjson",
		"One RunLine per line; the last one marks the end",
		func(ctx context.Context, c *rest.Call, in *struct {
			ByRun
			Follow bool `query:"follow" doc:"Continue until the program ends"`
		}, w http.ResponseWriter, r *http.Request) error {
			v, err := s.View(r.Context(), c)
			if err != nil {
				return err
			}
			if _, err := c.Run(v, in.ID); err != nil {
				return err
			}
			f := &runLog{s: s, c: c, run: in.ID, follow: in.Follow, w: w, seen: map[attemptKey]bool{}}
			if err := f.all(r.Context(), v); err != nil {
				if r.Context().Err() != nil {
					return rest.Ended(r.Context()) // or the reader is gone
				}
				return err
			}
			return nil
		},
	)
}

type attemptKey struct {
	task    string
	attempt int
}

// runLog follows the attempts of a run's program, each in a goroutine of its own.
type runLog struct {
	s      *rest.Server
	c      *rest.Call
	run    string
	follow bool

	mu    sync.Mutex // guards w
	w     http.ResponseWriter
	seen  map[attemptKey]bool
	tasks sync.WaitGroup
}

// all writes all present lines, and with follow also later ones.
func (f *runLog) all(ctx context.Context, v rest.View) error {
	ctx, cancel := context.WithCancel(ctx)
	defer f.tasks.Wait()
	defer cancel()
	f.w.WriteHeader(http.StatusOK)
	if fl, ok := f.w.(http.Flusher); ok {
		fl.Flush()
	}
	for {
		r, ok := v.Run(f.c.Who.Tenant, f.run)
		if !ok {
			break
		}
		if r.Operation != "" {
			f.begin(ctx, v, r)
		}
		if !f.follow || r.Status.Ended() {
			break
		}
		wait, done := context.WithTimeout(ctx, 5*time.Second)
		next, err := f.s.State.View(wait, api.Default, max(v.Index(), 1))
		done()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
		v = next
	}
	f.tasks.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return f.write(api.RunLine{End: true})
}

// begin starts to follow new attempts.
func (f *runLog) begin(ctx context.Context, v rest.View, r *profile.Run) {
	tasks := v.Tasks(f.c.Who.Tenant, r.Operation)
	for _, t := range tasks {
		for _, a := range t.Attempts {
			k := attemptKey{t.ID, a.Number}
			if f.seen[k] {
				continue
			}
			f.seen[k] = true
			name, _, _ := strings.Cut(t.Hostname, ".")
			if name == "" {
				name = t.Node
			}
			f.tasks.Go(func() { f.attempt(ctx, k, api.RunLine{Step: t.Service, Node: name, Task: t.ID, Attempt: a.Number}) })
		}
	}
}

// maxBroken is how often a log is read whose agent does not send all of it.
const maxBroken = 5

// attempt writes the lines of one attempt. If its log does not exist yet, because the program has
// written nothing, attempt looks for it until the attempt has ended.
func (f *runLog) attempt(ctx context.Context, k attemptKey, line api.RunLine) {
	done, broken := 0, 0
	for ctx.Err() == nil {
		over := !f.follow || f.ended(ctx, k)
		w := &lines{skip: done, emit: func(n int, text string) error {
			line.Number = n
			line.Time, line.Stderr, line.Text = splitLine(text)
			return f.write(line)
		}}
		err := f.s.Operations.TaskLog(ctx, f.c.Who, k.task, k.attempt, f.follow && !over, w)
		if err == nil {
			w.end()
		}
		done = max(done, w.number)
		var missing *api.LogMissing
		switch {
		case over && errors.As(err, &missing):
			f.missing(line, done, missing)
			return
		case over && (err == nil || errors.Is(err, problem.NotFound)): // it is not kept any more
			return
		case over: // the connection to the agent broke
			if broken++; broken == maxBroken {
				f.missing(line, done, &api.LogMissing{Why: err.Error()})
				return
			}
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// missing writes why lines of an attempt are missing, of which some were written, and then the last lines, which the state keeps. Their
// numbers are negative.
func (f *runLog) missing(line api.RunLine, written int, m *api.LogMissing) {
	part := "the output"
	if written > 0 {
		part = "the rest of the output"
	}
	line.Text, line.Missing = part+" is missing: "+m.Why, true
	if m.Tail != "" {
		line.Text += "; these are its last lines"
	}
	line.Number = -1
	_ = f.write(line)
	line.Missing = false
	w := &lines{emit: func(n int, text string) error {
		line.Number, line.Text = -1-n, text
		return f.write(line)
	}}
	_, _ = w.Write([]byte(m.Tail))
	w.end()
}

// ended reports whether an attempt has ended.
func (f *runLog) ended(ctx context.Context, k attemptKey) bool {
	v, err := f.s.Latest(ctx)
	if err != nil {
		return false
	}
	t, ok := v.Task(f.c.Who.Tenant, k.task)
	return !ok || t.Attempt != k.attempt || !t.Status.Held()
}

func (f *runLog) write(l api.RunLine) error {
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err = f.w.Write(append(b, '\n'))
	return err
}

// lines is a writer that splits its input into lines and passes on all but the first skip ones.
type lines struct {
	skip, number int
	rest         []byte
	emit         func(number int, text string) error
}

// Write writes a piece of the log.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, after, whole := bytes.Cut(l.rest, []byte{'\n'})
		if !whole {
			return len(p), nil
		}
		if l.number++; l.number > l.skip {
			if err := l.emit(l.number, string(line)); err != nil {
				return 0, err
			}
		}
		l.rest = after
	}
}

// end passes on the last line if it has no line end.
func (l *lines) end() {
	if len(l.rest) > 0 {
		_, _ = l.Write([]byte{'\n'})
	}
}

// splitLine splits a line of a task's log into its time, a mark for error output, and the output
// of the program.
func splitLine(s string) (at string, stderr bool, text string) {
	const stamp, mark = len("15:04:05.000"), len("15:04:05.000 ! ")
	if len(s) < mark || s[2] != ':' || s[5] != ':' || s[8] != '.' || s[stamp] != ' ' || s[stamp+1] != ' ' && s[stamp+1] != '!' {
		return "", false, s // a tail of the log that the state keeps with the attempt
	}
	return s[:stamp], s[stamp+1] == '!', s[mark:]
}
