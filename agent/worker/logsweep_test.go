package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// logFolder has logs of attempts at the tasks of operations.
type logFolder struct {
	t    *testing.T
	dir  string
	logs *Logs
}

func newFolder(t *testing.T) *logFolder {
	dir := t.TempDir()
	return &logFolder{t, dir, NewLogs(LogsConfig{Dir: dir, Logger: slog.New(slog.DiscardHandler)})}
}

func task(operation int, vertex uint32) string {
	return string(model.NewClusterID(operation).Operation(1).Task(vertex))
}

// begin writes the first bytes of the log of an attempt, at a time.
func (s *logFolder) begin(operation int, vertex uint32, bytes int, at time.Time) *attemptLog {
	s.t.Helper()
	a := &attemptLog{logs: s.logs, key: Key{task(operation, vertex), 7}}
	a.Log(&pb.LogLine{Text: strings.Repeat("x", bytes)})
	if a.err != nil {
		s.t.Fatal(a.err)
	}
	if err := os.Chtimes(a.f.Name(), at, at); err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *logFolder) write(operation int, vertex uint32, bytes int, at time.Time) {
	s.begin(operation, vertex, bytes, at).end()
}

// want expects the logs of these tasks and no others, and no empty folder.
func (s *logFolder) want(tasks ...string) {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "*", "*.log"))
	if err != nil || len(found) != len(tasks) {
		s.t.Errorf("%v %v, expected those of %v", found, err, tasks)
	}
	for _, id := range tasks {
		f, _, err := s.logs.Open(id, 0)
		if err != nil {
			s.t.Error(err)
			continue
		}
		f.Close()
	}
	folders, _ := os.ReadDir(s.dir)
	for _, d := range folders {
		if logs, _ := os.ReadDir(filepath.Join(s.dir, d.Name())); len(logs) == 0 {
			s.t.Errorf("folder %s is empty", d.Name())
		}
	}
}

func (s *logFolder) sweep(now time.Time, age time.Duration, size int64) {
	s.t.Helper()
	s.logs.limits.Age, s.logs.limits.Size = age, size
	if err := s.logs.Sweep(now); err != nil {
		s.t.Error(err)
	}
}

func TestLogsByAge(t *testing.T) {
	s, now := newFolder(t), time.Now()
	s.write(1, 0, 10, now.Add(-3*time.Hour))
	s.write(1, 1, 10, now.Add(-time.Hour))
	s.write(2, 0, 10, now.Add(-3*time.Hour))
	s.sweep(now, 0, 0)
	s.want(task(1, 0), task(1, 1), task(2, 0))
	s.sweep(now, 2*time.Hour, 0)
	s.want(task(1, 1))
	if _, _, err := s.logs.Open(task(2, 0), 0); !errors.Is(err, ErrNoLog) {
		t.Errorf("a log that was removed: %v", err)
	}
	if got, want := s.logs.Last(), (model.LogSweep{At: now.UnixMilli(), Removed: 2, Files: 1, Bytes: block}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}

func TestLogsBySize(t *testing.T) {
	s, now := newFolder(t), time.Now()
	for i := range 6 { // the last one is the oldest, and each takes two blocks
		s.write(1+i%2, uint32(i), block+1, now.Add(-time.Duration(i)*time.Minute))
	}
	s.sweep(now, 0, 6*block)
	s.want(task(1, 0), task(2, 1), task(1, 2))
	s.sweep(now, 0, 1)
	s.want()
	// The folders of running operations are created again.
	s.write(1, 0, 10, now)
	s.want(task(1, 0))
}

// TestLogsOfRunningAttempts checks that the log of a running task is kept, even if the task has written
// nothing for longer than logs are kept.
func TestLogsOfRunningAttempts(t *testing.T) {
	s, now := newFolder(t), time.Now()
	running := s.begin(1, 0, 3*block, now.Add(-time.Hour))
	s.write(1, 1, 10, now)
	s.sweep(now, time.Minute, 2*block)
	s.want(task(1, 0))
	running.Log(&pb.LogLine{Text: "the end"})
	running.end()
	f, _, err := s.logs.Open(task(1, 0), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || !strings.HasSuffix(string(text), "the end\n") {
		t.Errorf("the last line is missing: %v", err)
	}
	s.sweep(now, 0, 1)
	s.want()
}

// TestLogsAreSweptAgain checks that the loop sweeps at once and then at intervals, and that a missing folder
// is not an error.
func TestLogsAreSweptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFolder(t)
		s.write(1, 0, 10, time.Now().Add(-2*time.Hour))
		s.write(2, 0, 10, time.Now().Add(-30*time.Minute))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		s.logs.limits.Age = time.Hour
		go func() { ended <- s.logs.Run(ctx) }()
		synctest.Wait()
		s.want(task(2, 0))
		time.Sleep(time.Hour)
		synctest.Wait()
		s.want()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := NewLogs(LogsConfig{}).Run(t.Context()); err != nil {
		t.Error(err)
	}
	if err := NewLogs(LogsConfig{Dir: filepath.Join(t.TempDir(), "nothing"), Age: 1, Size: 1}).Sweep(time.Now()); err != nil {
		t.Error(err)
	}
}

// TestLogsStayBounded writes far more than is kept.
func TestLogsStayBounded(t *testing.T) {
	s, now := newFolder(t), time.Now()
	for round := range 50 {
		for i := range uint32(10) {
			s.write(round, i, 10, now.Add(time.Duration(round)*time.Minute))
		}
		s.sweep(now.Add(time.Duration(round)*time.Minute), time.Hour, 40*block)
	}
	found, err := filepath.Glob(filepath.Join(s.dir, "*", "*.log"))
	if err != nil || len(found) != 40 {
		t.Errorf("%d logs are kept, %v", len(found), err)
	}
	if last := s.logs.Last(); fmt.Sprint(last.Files, last.Removed, last.Bytes, last.Fault) != fmt.Sprint(40, 10, 40*block, "") {
		t.Errorf("%+v", last)
	}
}
