package janitor_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/janitor"
	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// TestAuditRetention checks that records beyond the limits are removed, though not in every
// round, and that the rest is still a chain.
func TestAuditRetention(t *testing.T) {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_750_000_000_000)
	index, prunes := uint64(0), 0
	apply := func(cs ...*pb.Command) {
		t.Helper()
		index++
		b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: now.UnixMilli(),
			Commands: cs})
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(&raft.Log{Type: raft.LogCommand, Index: index, Data: b})
	}
	write := func(n int) {
		t.Helper()
		for range n {
			apply(&pb.Command{Actor: "root", Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: fmt.Sprint("t",
				index)}}}})
		}
	}
	j := janitor.New(janitor.Config{
		Machine: m, Logger: slog.New(slog.DiscardHandler),
		Retention: janitor.Retention{Audit: 100 * time.Hour, AuditRecords: 50, AuditMemory: 1 << 20},
		Propose: func(_ context.Context, cs ...*pb.Command) ([]state.Answer, error) {
			prunes++
			apply(cs...)
			return make([]state.Answer, len(cs)), nil
		},
	})
	sweep := func(wantPrunes int, wantRecords uint64) {
		t.Helper()
		if err := j.Sweep(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		log := m.View().Audit()
		if s := log.Stats(); prunes != wantPrunes || s.Records != wantRecords {
			t.Errorf("%d prunes, not %d; %d records, not %d", prunes, wantPrunes, s.Records, wantRecords)
		}
		if rep := log.Verify(); !rep.OK {
			t.Errorf("%+v", rep.Bad)
		}
	}
	write(20)
	sweep(0, 20)
	now = now.Add(90 * time.Hour)
	write(30)
	now = now.Add(10*time.Hour + 30*time.Minute) // too old by less than is worth a record
	sweep(0, 50)
	now = now.Add(time.Hour)
	sweep(1, 31) // and the record of the removal
	write(24)
	sweep(1, 55)
	write(1)
	sweep(2, 51)
	now = now.Add(1000 * time.Hour)
	sweep(3, 1)
	sweep(3, 1)
	now = now.Add(1000 * time.Hour)
	sweep(4, 1) // without new records, all records of the log become too old
}
