package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/memjournal"
)

// returning is an executor whose tasks return an output at once.
type returning struct{ output, message string }

func (returning) Types() []host.Type { return nil }

func (r returning) Execute(_ context.Context, t *pb.Task, _ host.Sink) *pb.Result {
	return &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Output: []byte(r.output), Message: r.message}
}

// TestSecretResults has tasks that return secrets. The leader gets them, and the journal never has one; a result without secrets is in
// the journal.
func TestSecretResults(t *testing.T) {
	for name, x := range map[string]struct {
		output, message string
		task            *pb.Task
		kept            bool
		want, wantText  string
	}{
		"by its name":          {`{"result":{"password":"canary-in-a-mine"}}`, "it is canary-in-a-mine", &pb.Task{}, false, "canary-in-a-mine", "it is [redacted]"},
		"within":               {`{"result":{"auth":[{"private_key":"canary-in-a-mine"}]}}`, "", &pb.Task{}, false, "canary-in-a-mine", ""},
		"by its mark":          {`{"result":{"pin":"canary-in-a-mine"}}`, "", &pb.Task{Sensitive: []string{"pin"}}, false, "canary-in-a-mine", ""},
		"no secret":            {`{"result":{"pin":"canary-in-a-mine"}}`, "", &pb.Task{}, true, "canary-in-a-mine", ""},
		"of the input":         {`{"result":{"note":"canary-in-a-mine","secret":"canary-in-a-mine"}}`, "", &pb.Task{Automator: true, Encrypts: true, Secrets: []string{"canary-in-a-mine"}}, false, `"note":"[redacted]","secret":"canary-in-a-mine"`, ""},
		"of the input, within": {`{"result":{"all":[{"db":{"password":"canary-in-a-mine","note":"canary-in-a-mine"}}],"note":"canary-in-a-mine"}}`, "", &pb.Task{Automator: true, Encrypts: true, Secrets: []string{"canary-in-a-mine"}}, false, `{"all":[{"db":{"note":"[redacted]","password":"canary-in-a-mine"}}],"note":"[redacted]"}`, ""},
		"of the input, for a leader that encrypts nothing": {`{"result":{"note":"canary-in-a-mine","secret":"canary-in-a-mine"}}`, "", &pb.Task{Automator: true, Secrets: []string{"canary-in-a-mine"}}, false, `"note":"[redacted]","secret":"[redacted]"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, sessions := memjournal.New(), make(chan *leader)
				w, err := worker.New(worker.Config{
					Hello: func() *pb.Hello { return &pb.Hello{Agent: "a", Slots: 4} },
					Connect: func(ctx context.Context) (worker.Stream, error) {
						l := &leader{up: make(chan *pb.WorkerMessage), down: make(chan *pb.LeaderMessage), cut: make(chan struct{}), ctx: ctx,
							deaf: make(chan struct{}), late: make(chan *pb.LeaderMessage)}
						sessions <- l
						return l, nil
					},
					Executor: returning{x.output, x.message}, Journal: j, Logs: worker.NewLogs(worker.LogsConfig{}),
					Logger: slog.New(slog.DiscardHandler), Drain: time.Millisecond,
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.Run(ctx) }()
				l := <-sessions
				l.welcome()
				x.task.Id, x.task.Fence, x.task.Action = "op/1", 7, "INSTALL"
				l.down <- &pb.LeaderMessage{Tasks: []*pb.Task{x.task}}
				var got *pb.Result
				l.until(true, func(m *pb.WorkerMessage) bool {
					if len(m.Results) > 0 {
						got = m.Results[0]
					}
					return got != nil
				})
				if !strings.Contains(string(got.Output), x.want) || got.Message != x.wantText {
					t.Errorf("the leader gets %s, %q", got.Output, got.Message)
				}
				held, err := j.Load()
				if err != nil || len(held) != 1 {
					t.Fatal(held, err)
				}
				if kept := strings.Contains(prototext.Format(held[0]), "canary"); kept != x.kept {
					t.Errorf("the journal has %v", held[0])
				}
				l.down <- &pb.LeaderMessage{Confirmed: []*pb.Verdict{{Task: "op/1", Fence: 7}}}
				go l.until(true, func(m *pb.WorkerMessage) bool { return false })
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				close(l.up)
			})
		})
	}
}
