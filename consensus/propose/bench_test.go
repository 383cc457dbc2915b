package propose_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/propose"
	"github.com/coopr/coopr/consensus/raftgroup"
)

// Benchmarks over real sockets on loopback and real files. With -benchtime 3s:
//
//	go test -run '^$' -bench . -benchtime 3s ./consensus/propose
//
// All members of a group share this machine's cores and disk, so only ratios
// between lines of one run are meaningful.

// counter is a state machine that only answers one number for each command in an
// entry.
type counter struct{ n uint64 }

func (c *counter) Apply(l *raft.Log) any {
	count := len(l.Data) / commandSize
	out := make([]int, count)
	for i := range out {
		c.n++
		out[i] = int(c.n)
	}
	return out
}

func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return emptySnapshot{}, nil }
func (c *counter) Restore(io.ReadCloser) error         { return nil }

type emptySnapshot struct{}

func (emptySnapshot) Persist(s raft.SnapshotSink) error { return s.Close() }
func (emptySnapshot) Release()                          {}

// commandSize is the size of a command in bytes, as in B3 of the measurements of the peers.
const commandSize = 256

type realMember struct {
	group  *raftgroup.Group
	stores *logstore.Stores
}

// realGroup starts n members on loopback TCP with stores of that kind.
func realGroup(tb testing.TB, n int, kind logstore.Kind, timing raftgroup.Timing) []*realMember {
	tb.Helper()
	var servers []raftgroup.Server
	var members []*realMember
	base := tb.TempDir()
	for i := range n {
		trans, err := raft.NewTCPTransportWithConfig("127.0.0.1:0", nil, &raft.NetworkTransportConfig{
			MaxPool: 3, Timeout: 5 * time.Second, Logger: hclog.NewNullLogger(), MsgpackUseNewTimeFormat: true})
		if err != nil {
			tb.Fatal(err)
		}
		dir := filepath.Join(base, fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
		stores, err := logstore.Open(dir, kind, logstore.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		id := fmt.Sprint("m", i)
		g, err := raftgroup.New(raftgroup.Config{ID: id, FSM: &counter{}, Transport: trans, Stores: stores, Timing: timing})
		if err != nil {
			tb.Fatal(err)
		}
		members = append(members, &realMember{g, stores})
		servers = append(servers, raftgroup.Server{ID: id, Addr: string(trans.LocalAddr()), Voter: true})
	}
	for _, m := range members {
		if err := m.group.Bootstrap(context.Background(), servers); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(func() {
		var all sync.WaitGroup
		for _, m := range members {
			all.Go(m.stop)
		}
		all.Wait()
	})
	return members
}

func (m *realMember) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = m.group.Shutdown(ctx)
	_ = m.stores.Close()
}

func leaderOf(tb testing.TB, members []*realMember) *realMember {
	tb.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		for _, m := range members {
			if m.group.IsLeader() && m.group.Barrier(context.Background()) == nil {
				return m
			}
		}
	}
	tb.Fatal("no leader")
	return nil
}

var kinds = []logstore.Kind{logstore.BoltDB, logstore.WAL, logstore.Memory}

// patient has long time-outs, so that no election on a busy machine spoils a run.
var patient = raftgroup.Timing{Multiplier: 8}

// callers runs b.N operations on n callers and reports the latencies' quantiles.
func callers(b *testing.B, n int, op func() error) {
	b.Helper()
	var next atomic.Int64
	took := make([][]time.Duration, n)
	var all sync.WaitGroup
	cpu := cpuTime()
	b.ResetTimer()
	for c := range n {
		all.Go(func() {
			for next.Add(1) <= int64(b.N) {
				begun := time.Now()
				if err := op(); err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], time.Since(begun))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	// This is the processor time of the whole process: all members and callers. It varies less
	// than elapsed time on a machine that has other work.
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/1000/float64(b.N), "cpu-µs/op")
	flat := slices.Concat(took...)
	slices.Sort(flat)
	if len(flat) > 0 {
		b.ReportMetric(float64(len(flat))/b.Elapsed().Seconds(), "ops/s")
		b.ReportMetric(float64(flat[len(flat)/2].Microseconds()), "p50-µs")
		b.ReportMetric(float64(flat[len(flat)*99/100].Microseconds()), "p99-µs")
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func pack(cmds [][]byte) ([]byte, error) {
	out := make([]byte, 0, len(cmds)*commandSize)
	for _, c := range cmds {
		out = append(out, c...)
	}
	return out, nil
}

// BenchmarkWrite compares one entry for each command, written by the library alone and
// by a Group, with the proposer's packing.
func BenchmarkWrite(b *testing.B) {
	cmd := make([]byte, commandSize)
	for _, kind := range kinds {
		for _, n := range []int{1, 16, 256} {
			var members []*realMember
			var lead *realMember
			start := func(b *testing.B) {
				members = realGroup(b, 3, kind, patient)
				lead = leaderOf(b, members)
			}
			name := func(how string) string { return fmt.Sprintf("%s/callers=%d/%s", kind, n, how) }
			b.Run(name("raft"), func(b *testing.B) {
				start(b)
				callers(b, n, func() error { return lead.group.Library().Apply(cmd, 0).Error() })
			})
			b.Run(name("group"), func(b *testing.B) {
				start(b)
				callers(b, n, func() error { return lead.group.Apply(cmd).Err() })
			})
			b.Run(name("proposer"), func(b *testing.B) {
				start(b)
				p, err := propose.New(propose.Config[[]byte, int]{Encode: pack, Apply: lead.group.Apply, Size: func(c []byte) int { return len(c) }})
				if err != nil {
					b.Fatal(err)
				}
				callers(b, n, func() error { _, err := p.Propose(context.Background(), cmd); return err })
				s := p.Stats()
				b.ReportMetric(float64(s.Commands)/float64(s.Entries), "cmds/entry")
			})
		}
	}
}

// BenchmarkOverhead has one caller write in turns by the library alone, by a
// Group and by the proposer, all on one group, so that other load on the machine
// affects all three equally. It reports medians as ratios to the library's.
func BenchmarkOverhead(b *testing.B) {
	cmd := make([]byte, commandSize)
	for _, kind := range kinds {
		b.Run(string(kind), func(b *testing.B) {
			lead := leaderOf(b, realGroup(b, 3, kind, patient))
			p, err := propose.New(propose.Config[[]byte, int]{Encode: pack, Apply: lead.group.Apply, Size: func(c []byte) int { return len(c) }})
			if err != nil {
				b.Fatal(err)
			}
			ways := []func() error{
				func() error { return lead.group.Library().Apply(cmd, 0).Error() },
				func() error { return lead.group.Apply(cmd).Err() },
				func() error { _, err := p.Propose(context.Background(), cmd); return err },
			}
			took := make([][]time.Duration, len(ways))
			for b.Loop() {
				for i, way := range ways {
					begun := time.Now()
					if err := way(); err != nil {
						b.Fatal(err)
					}
					took[i] = append(took[i], time.Since(begun))
				}
			}
			median := func(i int) float64 {
				slices.Sort(took[i])
				return float64(took[i][len(took[i])/2].Nanoseconds())
			}
			raw := median(0)
			b.ReportMetric(raw/1000, "raft-p50-µs")
			b.ReportMetric(median(1)/raw, "group/raft")
			b.ReportMetric(median(2)/raw, "proposer/raft")
		})
	}
}

// BenchmarkInFlight compares numbers of entries under way.
func BenchmarkInFlight(b *testing.B) {
	cmd := make([]byte, commandSize)
	for _, kind := range kinds {
		for _, flights := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("%s/callers=256/inflight=%d", kind, flights), func(b *testing.B) {
				lead := leaderOf(b, realGroup(b, 3, kind, patient))
				p, err := propose.New(propose.Config[[]byte, int]{Encode: pack, Apply: lead.group.Apply, Size: func(c []byte) int { return len(c) },
					MaxInFlight: flights})
				if err != nil {
					b.Fatal(err)
				}
				callers(b, 256, func() error { _, err := p.Propose(context.Background(), cmd); return err })
				s := p.Stats()
				b.ReportMetric(float64(s.Commands)/float64(s.Entries), "cmds/entry")
			})
		}
	}
}

// BenchmarkTransitions writes commands that carry many small transitions each, like
// leases and reports: 64 of 24 bytes.
func BenchmarkTransitions(b *testing.B) {
	const each, size = 64, 24
	cmd := make([]byte, 6*commandSize) // the counter answers six numbers, of which sixth takes one
	if len(cmd) != each*size {
		b.Fatal("sizes do not fit")
	}
	for _, kind := range kinds {
		for _, n := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", kind, n), func(b *testing.B) {
				lead := leaderOf(b, realGroup(b, 3, kind, patient))
				p, err := propose.New(propose.Config[[]byte, int]{Encode: pack, Apply: func(data []byte) raftgroup.Future {
					return sixth{lead.group.Apply(data)}
				}, Size: func(c []byte) int { return len(c) }})
				if err != nil {
					b.Fatal(err)
				}
				callers(b, n, func() error { _, err := p.Propose(context.Background(), cmd); return err })
				b.ReportMetric(float64(b.N)*each/b.Elapsed().Seconds(), "transitions/s")
			})
		}
	}
}

// sixth takes one answer in six.
type sixth struct{ raftgroup.Future }

func (s sixth) Response() any {
	all := s.Future.Response().([]int)
	out := make([]int, 0, len(all)/6)
	for i := 0; i < len(all); i += 6 {
		out = append(out, all[i])
	}
	return out
}

// BenchmarkReadIndex measures linearizable reads.
func BenchmarkReadIndex(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			lead := leaderOf(b, realGroup(b, 3, logstore.Memory, patient))
			callers(b, n, func() error { _, err := lead.group.ReadIndex(context.Background()); return err })
		})
	}
}

// BenchmarkFailover measures the time from the leader's end to the first entry that its
// successor has committed, with the default timing. BenchmarkTransfer does the
// same for a planned transfer.
func BenchmarkFailover(b *testing.B) {
	for _, kind := range kinds {
		b.Run(string(kind), func(b *testing.B) {
			var took []time.Duration
			for range b.N {
				b.StopTimer()
				members := realGroup(b, 3, kind, raftgroup.Timing{})
				lead := leaderOf(b, members)
				rest := slices.DeleteFunc(slices.Clone(members), func(m *realMember) bool { return m == lead })
				cmd := make([]byte, commandSize)
				for range 10 {
					if err := lead.group.Apply(cmd).Err(); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				begun := time.Now()
				go lead.stop()
				if err := firstWrite(rest, cmd); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
				b.StopTimer()
				for _, m := range members {
					m.stop()
				}
				b.StartTimer()
			}
			report(b, took)
		})
	}
}

// BenchmarkTransfer: see BenchmarkFailover.
func BenchmarkTransfer(b *testing.B) {
	for _, kind := range kinds {
		b.Run(string(kind), func(b *testing.B) {
			members := realGroup(b, 3, kind, raftgroup.Timing{})
			cmd := make([]byte, commandSize)
			var took []time.Duration
			b.ResetTimer()
			for range b.N {
				lead := leaderOf(b, members)
				begun := time.Now()
				if err := lead.group.Transfer(context.Background(), ""); err != nil {
					b.Log(err)
					continue
				}
				if err := firstWrite(members, cmd); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(begun))
			}
			report(b, took)
		})
	}
}

func firstWrite(members []*realMember, cmd []byte) error {
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Microsecond) {
		for _, m := range members {
			if m.group.IsLeader() && m.group.Apply(cmd).Err() == nil {
				return nil
			}
		}
	}
	return context.DeadlineExceeded
}

func report(b *testing.B, took []time.Duration) {
	b.Helper()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}
