package janitor_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// log is a state with an audit log, and its janitor.
type log struct {
	t      *testing.T
	m      *state.Machine
	j      *janitor.Janitor
	now    time.Time
	index  uint64
	prunes int
	latest *pb.Command // of the janitor
}

func newLog(t *testing.T, r janitor.Retention) *log {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := &log{t: t, m: m, now: time.UnixMilli(1_750_000_000_000)}
	l.j = janitor.New(janitor.Config{
		Machine: m, Logger: slog.New(slog.DiscardHandler), Retention: r,
		Propose: func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			l.prunes, l.latest = l.prunes+1, cs[0]
			l.apply(cs...)
			return make([]state.Answer, len(cs)), nil
		},
	})
	return l
}

func (l *log) apply(cs ...*pb.Command) {
	l.t.Helper()
	l.index++
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: l.now.UnixMilli(),
		Commands: cs})
	if err != nil {
		l.t.Fatal(err)
	}
	if _, failed := l.m.Apply(&raft.Log{Type: raft.LogCommand, Index: l.index, Data: b}).(error); failed {
		l.t.Fatal("the entry was not applied")
	}
}

// write writes records of a tenant, or each of a tenant of its own.
func (l *log) write(n int, tenant string) {
	l.t.Helper()
	for range n {
		name := cmp.Or(tenant, fmt.Sprint("t", l.index))
		l.apply(&pb.Command{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: name,
			Description: fmt.Sprint(l.index)}}}})
	}
}

// sweep returns what is in the log after a sweep of the janitor.
func (l *log) sweep(wantPrunes int, wantRecords uint64) {
	l.t.Helper()
	if err := l.j.Sweep(l.t.Context(), l.now); err != nil {
		l.t.Fatal(err)
	}
	trail := l.m.View().Audit()
	if s := trail.Stats(); l.prunes != wantPrunes || s.Records != wantRecords {
		l.t.Errorf("%d prunes, not %d; %d records, not %d", l.prunes, wantPrunes, s.Records, wantRecords)
	}
	if rep := trail.Verify(nil); !rep.OK {
		l.t.Errorf("%+v", rep.Bad)
	}
}

// last returns the newest record.
func (l *log) last() (out audit.Record) {
	_ = l.m.View().Audit().Each(&audit.Filter{}, true, audit.Cursor{}, func(r audit.Record) bool { out = r; return false })
	return out
}

// TestAuditRetention checks that records beyond the limits are removed, though not in every
// round, and that the rest is still a chain.
func TestAuditRetention(t *testing.T) {
	l := newLog(t, janitor.Retention{Audit: 100 * time.Hour, AuditRecords: 50, AuditMemory: 1 << 20})
	l.write(20, "")
	l.sweep(0, 20)
	l.now = l.now.Add(90 * time.Hour)
	l.write(30, "")
	l.now = l.now.Add(10*time.Hour + 30*time.Minute) // too old by less than is worth a record
	l.sweep(0, 50)
	l.now = l.now.Add(time.Hour)
	l.sweep(1, 31) // and the record of the removal
	l.write(24, "")
	l.sweep(1, 55)
	l.write(1, "")
	l.sweep(2, 51)
	l.now = l.now.Add(1000 * time.Hour)
	l.sweep(3, 1)
	l.sweep(3, 1)
	l.now = l.now.Add(1000 * time.Hour)
	l.sweep(4, 1) // without new records, all records of the log become too old
}

// TestAuditShares checks that a tenant with many records loses its own.
func TestAuditShares(t *testing.T) {
	l := newLog(t, janitor.Retention{AuditRecords: 100, AuditMemory: 1 << 20})
	l.write(30, "quiet")
	l.write(500, "loud")
	l.sweep(1, 101) // and the record of the removal
	for _, u := range l.m.View().Audit().Usage() {
		if u.Tenant == "quiet" && u.Records != 30 || u.Tenant == "loud" && u.Records != 70 {
			t.Errorf("%+v", u)
		}
	}
	l.write(9, "loud")
	l.sweep(1, 110)
}

// TestAuditWaits checks that records wait for a sink, up to a bound, and that what a sink loses is on record.
func TestAuditWaits(t *testing.T) {
	l := newLog(t, janitor.Retention{Audit: 100 * time.Hour, AuditRecords: 50, AuditMemory: 1 << 20, Sinks: []string{"siem", "file"}, AuditWait: 100})
	move := func(sink string, number uint64) {
		l.apply(&pb.Command{Change: &pb.Command_MoveCursors{MoveCursors: &pb.MoveCursors{Cursors: []*pb.SinkCursor{{Sink: sink, Number: number}}}}})
	}
	move("siem", 1000)
	l.write(100, "a")
	l.sweep(0, 100)
	move("file", 30)
	l.sweep(1, 71)
	if r := l.last(); r.Type != "audit.pruned" || bytes.Contains(r.After, []byte("lost")) {
		t.Errorf("%s %s", r.Type, r.After)
	}
	l.write(39, "a")
	l.sweep(1, 110) // the sink still waits for record 31
	l.write(1, "a")
	l.sweep(2, 101)
	if r := l.last(); r.Type != "audit.pruned" || !bytes.Contains(r.After, []byte(`"lost":{"file":11}`)) || !strings.Contains(r.Message, "file") {
		t.Errorf("%s %s %s", r.Type, r.After, r.Message)
	}
	l.now = l.now.Add(150 * time.Hour)
	l.sweep(2, 101)
	l.now = l.now.Add(55 * time.Hour)
	l.sweep(3, 1)
}

// TestAuditOldVoters checks that records are removed as voters of an older build understand it, as long as the mesh has some.
func TestAuditOldVoters(t *testing.T) {
	l := newLog(t, janitor.Retention{AuditRecords: 50, AuditMemory: 1 << 20})
	l.apply(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 1, Mesh: "m"}}})
	l.write(80, "a")
	l.sweep(1, 51)
	if l.latest.GetPrune() == nil {
		t.Errorf("%v", l.latest)
	}
	l.apply(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 2}}})
	l.write(80, "a")
	l.sweep(2, 51)
	if l.latest.GetPruneAudit() == nil {
		t.Errorf("%v", l.latest)
	}
}
