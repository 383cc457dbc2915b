// Package uses has the leader's controller that records when tokens were last used.
package uses

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Recorder. All fields but Gather are required.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Logger  *slog.Logger
	// Gather is how long uses are gathered before one entry records them; 0 means a minute.
	Gather time.Duration
}

// most is how many tokens one command has.
const most = 1000

// Recorder gathers the uses of tokens and records them. It is made for one term. What it has gathered is lost with the term, and
// noted again when the token is next used.
type Recorder struct {
	cfg   Config
	queue *loop.Queue[struct{}]

	mu    sync.Mutex
	noted map[string]int64 // the hours of uses that are not recorded yet, in Unix milliseconds, by the token's id
}

// New returns the recorder of one term.
func New(cfg Config) *Recorder {
	r := &Recorder{cfg: cfg, noted: map[string]int64{}}
	r.queue = loop.New(loop.Config[struct{}]{
		Gather: cmp.Or(cfg.Gather, time.Minute),
		Reconcile: func(ctx context.Context, _ struct{}) (time.Time, error) {
			if err := r.Flush(ctx); err != nil && ctx.Err() == nil {
				cfg.Logger.Info("the last uses of tokens could not be recorded", "error", err)
			}
			return time.Time{}, nil
		},
	})
	return r
}

// Name returns the name of the duty.
func (r *Recorder) Name() string { return "uses" }

// Restore does nothing, because the state has all that was recorded.
func (r *Recorder) Restore(context.Context) error { return nil }

// Run records uses until ctx ends.
func (r *Recorder) Run(ctx context.Context) error { return r.queue.Run(ctx) }

// Note notes that tokens were used in an hour, in Unix milliseconds. Ids of no token are left out. Any goroutine may call it.
func (r *Recorder) Note(hour int64, tokens ...string) {
	v := r.cfg.Machine.View()
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.noted)
	for _, id := range tokens {
		if r.noted[id] >= hour {
			continue
		}
		if t, ok := v.Token(id); ok && t.Used < hour {
			r.noted[id] = hour
		}
	}
	if before == 0 && len(r.noted) > 0 {
		r.queue.Add(struct{}{})
	}
}

// Flush records the uses that were noted. It writes nothing if the state has them already, or if their tokens have ended.
func (r *Recorder) Flush(ctx context.Context) error {
	r.mu.Lock()
	noted := r.noted
	r.noted = map[string]int64{}
	r.mu.Unlock()
	v := r.cfg.Machine.View()
	var commands []*pb.Command
	last := map[int64]*pb.TouchTokens{} // of each hour
	for _, id := range slices.Sorted(maps.Keys(noted)) {
		hour := noted[id]
		if t, ok := v.Token(id); !ok || t.Used >= hour {
			continue
		}
		if last[hour] == nil || len(last[hour].Ids) == most {
			last[hour] = &pb.TouchTokens{HourMs: hour}
			commands = append(commands, &pb.Command{Change: &pb.Command_TouchTokens{TouchTokens: last[hour]}})
		}
		last[hour].Ids = append(last[hour].Ids, id)
	}
	if len(commands) == 0 {
		return nil
	}
	_, err := r.cfg.Propose(ctx, commands...)
	return err
}
