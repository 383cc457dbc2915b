package runs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDead = errors.New("this leader is no more")

// lab is a replicated state, a cloud, and one leader after the other.
type lab struct {
	t     *testing.T
	m     *state.Machine
	cloud *cloud
	jobs  *jobs

	mu      sync.Mutex
	index   uint64
	entries int
	// kill is the entry at which the leader ends, from 1; lost: it never hears what became
	// of that. dead is closed then.
	kill   int
	lost   bool
	dead   bool
	end    context.CancelFunc
	ended  chan struct{}
	gone   atomic.Bool // no agent offers the provisioner
	random uint32
}

func newLab(t *testing.T) *lab {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, m: m, cloud: newCloud(), jobs: &jobs{begun: map[string]time.Time{}, ended: map[string]time.Time{}, takes: time.Second,
		result: profile.Completed}}
	l.apply(&pb.Command{Actor: "x", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "t"}}}},
		&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{Hash: []byte("mine"), Actor: "me", Tenant: "t", Role: "user", Id: "mine"}}})
	return l
}

// apply commits and applies commands, without a leader.
func (l *lab) apply(commands ...*pb.Command) []state.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applyLocked(commands)
}

func (l *lab) applyLocked(commands []*pb.Command) []state.Answer {
	l.index++
	e := &pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: time.Now().UnixMilli(),
		Commands: commands, Groups: []uint32{uint32(len(commands))}}
	data, err := proto.Marshal(e)
	if err != nil {
		l.t.Fatal(err)
	}
	out, ok := l.m.Apply(&raft.Log{Type: raft.LogCommand, Index: l.index, Data: data}).([][]state.Answer)
	if !ok {
		l.t.Fatal("an entry was not applied")
	}
	return out[0]
}

// propose is the leader's way to the log.
func (l *lab) propose(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || ctx.Err() != nil {
		return nil, errDead
	}
	out := l.applyLocked(commands)
	if l.entries++; l.entries == l.kill {
		l.dead = true
		l.end()
		if l.lost {
			return nil, errDead
		}
	}
	return out, nil
}

// lead begins a leader.
func (l *lab) lead() {
	ctx, cancel := context.WithCancel(context.Background())
	l.mu.Lock()
	l.dead, l.end, l.ended = false, cancel, make(chan struct{})
	l.mu.Unlock()
	d := New(Config{
		Machine: l.m, Propose: l.propose, Programs: l.jobs, Logger: slog.New(slog.DiscardHandler),
		Random: func() uint32 { l.random++; return l.random },
		Provisioner: func(*state.View, *profile.Run) (Provisioner, profile.Spec, bool) {
			return l.cloud, profile.Spec{Name: "cloud"}, !l.gone.Load()
		},
	})
	if err := d.Restore(ctx); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		_ = d.Run(ctx)
	}()
}

// stop ends the leader and waits for it.
func (l *lab) stop() {
	l.end()
	<-l.ended
}

// start stores p as the profile "p", starts a run with it and returns the run's id.
func (l *lab) start(p profile.Profile) string {
	p.Name, p.Provisioner.Name = "p", "cloud"
	l.put("profile", "p", p)
	a := l.tryStart()
	if a.Err != nil {
		l.t.Fatal(a.Err)
	}
	return a.Subject
}

// tryStart begins a run with the profile that is there.
func (l *lab) tryStart() state.Answer {
	who := model.Caller{Tenant: "t", Actor: "me"}
	l.random++
	x, err := Prepare(l.m.View(), who, Start{Inline: &profile.Program{Name: "job", Steps: []profile.Step{{Script: "true\n"}}}, Profile: "p"},
		time.Now(), l.random)
	if err != nil {
		l.t.Fatal(err)
	}
	c, err := x.Command(who, nil, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.apply(c)[0]
}

func setting(s *pb.PutSetting) *pb.Command_ChangeRuns {
	return &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{Change: &pb.ChangeRuns_Put{Put: s}}}
}

func (l *lab) order(id string, e profile.Event) error {
	change, err := logformat.RunEvent(id, 0, e)
	if err != nil {
		return err
	}
	return l.apply(&pb.Command{Tenant: "t", Actor: "me", Change: change})[0].Err
}

func (l *lab) run(id string) *profile.Run {
	r, ok := l.m.View().Run("t", id)
	if !ok {
		l.t.Fatalf("run %s is gone", id)
	}
	return r
}

// until waits for a run, and begins another leader whenever one has died.
func (l *lab) until(id string, done func(*profile.Run) bool) *profile.Run {
	l.t.Helper()
	for range 200_000 {
		if r := l.run(id); done(r) {
			return r
		}
		l.mu.Lock()
		dead := l.dead
		l.mu.Unlock()
		if dead {
			<-l.ended
			l.lead()
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
	}
	l.t.Fatalf("run %s goes on for ever: %+v", id, l.run(id))
	return nil
}

func over(r *profile.Run) bool { return r.Over() }

// jobs are programs that take a time.
type jobs struct {
	mu     sync.Mutex
	begun  map[string]time.Time
	times  int
	ended  map[string]time.Time
	takes  time.Duration
	result profile.Status
	// stops is how long a job continues after the order to end.
	stops time.Duration
}

func (j *jobs) Begin(_ context.Context, r *profile.Run) (string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.begun[r.ID]; !ok {
		j.begun[r.ID] = time.Now()
		j.times++
	}
	return "job " + r.ID, nil
}

func (j *jobs) Status(_ *state.View, r *profile.Run) (profile.Status, string, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	told, stopped := j.ended[r.ID]
	switch at, ok := j.begun[r.ID]; {
	case !ok:
		return "", "", false
	case stopped && time.Since(told) >= j.stops:
		return profile.Killed, "aborted", true
	case time.Since(at) >= j.takes:
		return j.result, "it is over", true
	}
	return profile.Running, "", true
}

func (j *jobs) Abort(_ context.Context, r *profile.Run) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, told := j.ended[r.ID]; !told {
		j.ended[r.ID] = time.Now()
	}
	return nil
}
