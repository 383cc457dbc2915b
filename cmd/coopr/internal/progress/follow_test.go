package progress

import (
	"bytes"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

func TestFailure(t *testing.T) {
	task := func(s model.TaskStatus, attempt int, message string) model.Task {
		return model.Task{Action: model.Install, Service: "nginx", Hostname: "shop1-1000.local", Status: s, Attempt: attempt, Message: message}
	}
	for _, tt := range []struct {
		task model.Task
		want string
	}{
		{task(model.TaskSucceeded, 1, ""), ""},
		{task(model.TaskReady, 0, "waits"), ""},
		{task(model.TaskFailed, 3, "exit status 1"), "INSTALL nginx on shop1-1000.local failed: exit status 1"},
		{task(model.TaskReady, 1, "exit status 1"), "INSTALL nginx on shop1-1000.local failed (attempt 1) and will be retried: exit status 1"},
		{task(model.TaskUncertain, 1, ""), "INSTALL nginx on shop1-1000.local has an uncertain outcome, which is being checked"},
	} {
		got, ok := failure(tt.task)
		if line, _, _ := strings.Cut(got, "\n"); ok != (tt.want != "") || line != tt.want {
			t.Errorf("%s: %q, %v", tt.task.Status, got, ok)
		}
	}
}

// TestLines checks that each action is reported once it is complete, and again only if it grows.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	v := &lines{w: &out}
	s := snapshot{all: true}
	s.op = api.OperationDetails{}
	s.op.ID, s.op.Type, s.op.Status, s.op.Progress.Total = "00000001-001", model.OpGrow, model.OpRunning, 2
	add := func(a model.Action, status model.TaskStatus) {
		s.tasks = append(s.tasks, model.Task{Action: a, Status: status})
	}
	add(model.Create, model.TaskSucceeded)
	add(model.Install, model.TaskRunning)
	v.draw(s)
	v.draw(s)
	s.tasks[1].Status = model.TaskSucceeded
	v.draw(s)
	add(model.Create, model.TaskSucceeded)
	v.draw(s)
	want := "grow 00000001-001: running, 2 tasks\nCREATE     1/1\nINSTALL    1/1\nCREATE     2/2\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
}
