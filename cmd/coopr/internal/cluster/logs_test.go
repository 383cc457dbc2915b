package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// answers are those of an agent.
type answers func(path string) (status int, body any)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := a(r.URL.Path)
	text, err := json.Marshal(body)
	head := http.Header{}
	head.Set(api.HeaderTotal, "2")
	head.Set(api.HeaderIndex, "1")
	head.Set("Content-Type", "application/json")
	return &http.Response{StatusCode: status, Header: head, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
}

// TestFindKeepsWhatItFound loses the leader between the tasks of two operations: the attempts of the first are found once, and those of
// the second later.
func TestFindKeepsWhatItFound(t *testing.T) {
	lost := true
	c, err := client.New(client.Config{Patience: -1, Transport: answers(func(path string) (int, any) {
		switch {
		case strings.HasSuffix(path, "/tasks") && strings.Contains(path, "two") && lost:
			return http.StatusServiceUnavailable, api.Problem{Type: api.ProblemNoLeader, Title: "No leader", Status: http.StatusServiceUnavailable}
		case strings.HasSuffix(path, "/tasks"):
			id := strings.Split(path, "/")[3]
			return http.StatusOK, []model.Task{{ID: id + ".1", Attempt: 1, Attempts: []model.TaskAttempt{{Number: 1}}}}
		case strings.HasSuffix(path, "/operations"):
			return http.StatusOK, []api.OperationDetails{{Operation: model.Operation{ID: "one"}}, {Operation: model.Operation{ID: "two"}}}
		}
		return http.StatusOK, api.ClusterDetails{}
	})})
	if err != nil {
		t.Fatal(err)
	}
	l := &taskLogs{client: c, cluster: "web", attempts: map[attemptKey]*attemptLog{}, ended: map[string]bool{}}
	found, _, _, err := l.find(t.Context(), client.Read{})
	if len(found) != 1 || found[0].task != "one.1" || !errors.Is(err, client.ErrUnreachable) {
		t.Fatalf("without a leader: %d attempts, %v", len(found), err)
	}
	lost = false
	if found, _, _, err = l.find(t.Context(), client.Read{}); len(found) != 1 || found[0].task != "two.1" || err != nil {
		t.Errorf("later: %d attempts, %v", len(found), err)
	}
}

// TestTimesOfLines gives lines, which have a time of the day alone, their day.
func TestTimesOfLines(t *testing.T) {
	at := func(text string) time.Time {
		out, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a := &attemptLog{leased: at("2026-03-31T23:59:58Z"), over: make(chan struct{}), head: logLine{Node: "web1", Attempt: 2}}
	var last time.Time
	for _, x := range []struct {
		line, time string
		stderr     bool
		text       string
	}{
		{"23:59:57.500   from a clock that is behind", "2026-03-31T23:59:57.5Z", false, "from a clock that is behind"},
		{"23:59:59.000 ! oh", "2026-03-31T23:59:59Z", true, "oh"},
		{"no time", "2026-03-31T23:59:59Z", false, "no time"},
		{"00:00:01.000   the next day", "2026-04-01T00:00:01Z", false, "the next day"},
		{"22:00:00.000   ", "2026-04-01T22:00:00Z", false, ""},
		{"21:59:59.000   the clock was set back", "2026-04-01T21:59:59Z", false, "the clock was set back"},
		{"12:00:00.000   ten hours earlier is the day after", "2026-04-02T12:00:00Z", false, "ten hours earlier is the day after"},
		{"99:00:00.000   no time", "2026-04-02T12:00:00Z", false, "99:00:00.000   no time"},
	} {
		l := a.parse(x.line, last)
		if last = l.Time; !last.Equal(at(x.time)) || l.Stderr != x.stderr || l.Text != x.text || l.Node != "web1" || l.Attempt != 2 {
			t.Errorf("%q is %+v", x.line, l)
		}
	}
	if a.finish(at("2026-04-01T07:00:00Z")); !a.parse("what the state keeps", time.Time{}).Time.Equal(a.end) {
		l := a.parse("what the state keeps", time.Time{})
		t.Errorf("a line whose agent was lost has the time %v", l.Time)
	}
}

// TestLogsAreShownWhileTheyAreRead reads the logs of attempts that came one after the other. Early lines are shown before late logs are
// read, so that not all lines are in memory at the same time.
func TestLogsAreShownWhileTheyAreRead(t *testing.T) {
	const attempts = 10 * readers
	var read atomic.Int64
	c, err := client.New(client.Config{Patience: -1, Transport: answers(func(path string) (int, any) {
		switch {
		case strings.HasSuffix(path, "/log"):
			read.Add(1)
			return http.StatusOK, "a line"
		case strings.HasSuffix(path, "/tasks"):
			tasks := make([]model.Task, attempts)
			for i := range tasks {
				leased := time.Duration(i) * time.Minute
				tasks[i] = model.Task{ID: fmt.Sprint("one/", i), Attempt: 1, Status: model.TaskSucceeded,
					Attempts: []model.TaskAttempt{{Number: 1, Leased: leased.Milliseconds(), Ended: leased.Milliseconds()}}}
			}
			return http.StatusOK, tasks
		case strings.HasSuffix(path, "/operations"):
			return http.StatusOK, []api.OperationDetails{{Operation: model.Operation{ID: "one"}}}
		}
		return http.StatusOK, api.ClusterDetails{}
	})})
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	l := &taskLogs{client: c, cluster: "web", tail: -1, attempts: map[attemptKey]*attemptLog{}, ended: map[string]bool{}}
	l.show = func(line logLine) error {
		if want := fmt.Sprint("one/", lines); line.Task != want {
			t.Errorf("line %d is of %s", lines, line.Task)
		}
		lines++
		if held := int(read.Load()) - lines; held > 2*readers {
			t.Errorf("%d lines wait", held)
		}
		return nil
	}
	if err := l.present(t.Context()); err != nil || lines != attempts {
		t.Errorf("%d lines, %v", lines, err)
	}
}
