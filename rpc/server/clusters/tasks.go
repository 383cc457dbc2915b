package clusters

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByTask names a task in the path.
type ByTask struct {
	ID string `path:"task" doc:"The task's id; write a slash in it as %2F"`
}

func taskRoutes(s *rest.Server) {
	const tag, one = "tasks", "/v1/tasks/{task}"

	rest.Read(s, rest.Route{ID: "getTask", Path: one, Tag: tag, Summary: "Get a task with all its attempts"},
		func(_ context.Context, c *rest.Call, v rest.View, in *ByTask) (model.Task, error) {
			return c.Task(v, in.ID)
		})
	rest.Stream(
		s,
		rest.Route{
			ID:      "getTaskLog",
			Method:  http.MethodGet,
			Path:    one + "/log",
			Tag:     tag,
			Bare:    true,
			Summary: "Get the log of a task from the agent that has it",
		},
		"text/plain; charset=utf-8",
		"The log; with follow it goes on until the task ends",
		func(ctx context.Context, c *rest.Call, in *struct {
			ByTask
			Attempt int  `query:"attempt" minimum:"0" doc:"The attempt, from 1; 0 or absent: the latest"`
			Follow  bool `query:"follow" doc:"Continue until the task ends"`
		}, w http.ResponseWriter, r *http.Request) error {
			v, err := s.View(r.Context(), c)
			if err != nil {
				return err
			}
			if _, err := c.Task(v, in.ID); err != nil {
				return err
			}
			out := &sharedWriter{ResponseWriter: w}
			if in.Follow {
				// A follower of a silent task must know that the task was found.
				timer := time.AfterFunc(time.Second, out.flush)
				defer timer.Stop()
				defer out.end()
			}
			if err := s.Operations.TaskLog(r.Context(), c.Who, in.ID, in.Attempt, in.Follow, out); err != nil {
				if r.Context().Err() != nil {
					return rest.Ended(r.Context()) // or the reader is gone
				}
				var missing *api.LogMissing
				if !errors.As(err, &missing) || !out.head(api.HeaderLogMissing, missing.Why) {
					return err
				}
				if _, err = io.WriteString(out, missing.Tail); err != nil {
					return err
				}
			}
			out.flush()
			return nil
		},
	)
}

// sharedWriter lets a timer send the headers while the log is written.
type sharedWriter struct {
	http.ResponseWriter
	mu    sync.Mutex
	begun bool // the headers were sent
	ended bool
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	return s.ResponseWriter.Write(p)
}

// head sets a header and sends the headers. It returns false if they were sent before.
func (s *sharedWriter) head(name, value string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		return false
	}
	s.Header().Set(name, value)
	s.begun = true
	s.WriteHeader(http.StatusOK)
	return true
}

func (s *sharedWriter) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.ResponseWriter.(http.Flusher); ok && !s.ended {
		s.begun = true
		f.Flush()
	}
}

// end stops further flushes: the timer may fire after the handler has returned, when the handler no
// longer owns the writer.
func (s *sharedWriter) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}
