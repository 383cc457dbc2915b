package state_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	pb "github.com/coopr/coopr/rpc/proto"
)

// BenchmarkEntry applies one entry with 500 results of tasks that returned an output.
func BenchmarkEntry(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		m, l := fiveHundred(b)
		b.ReportMetric(float64(len(l.Data)), "bytes/entry")
		b.StartTimer()
		m.Apply(l)
	}
}

// fiveHundred returns a machine whose plan has 500 tasks leased, and the entry with
// their results.
func fiveHundred(b *testing.B) (*state.Machine, *raft.Log) {
	b.Helper()
	const n, op = 500, "00000001-001"
	m := fresh(b)
	do(b, m, entry(1, 1, tenant("one", 0, 0), session("s", "a")))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("00000001-%d", 1000+i)
	}
	g := plan.NewBuilder(ids, []string{"db"})
	for i := range n {
		g.Task(model.Confirm, i, plan.None)
	}
	graph, err := g.Build()
	if err != nil {
		b.Fatal(err)
	}
	c := start("one", "00000001", "shop", n, "pause", "")
	c.GetStartOperation().Graph = graph.Encode()
	if a := do(b, m, entry(2, 1, c))[0]; a.Err != nil {
		b.Fatal(a.Err)
	}
	tasks := make([]uint32, n)
	for i := range tasks {
		tasks[i] = uint32(i)
	}
	do(b, m, entry(3, 1, lease(op, "s", tasks...)))
	r := &pb.Report{Operation: op, Tasks: tasks, Fences: slices.Repeat([]uint64{3}, n)}
	for i := range tasks {
		out := fmt.Sprintf(`{"ipaddresses":{"access_v4":"10.0.%d.%d"},"result":{"id":"i-%d","flavor":"m1.large"}}`, i/256, i%256, i)
		r.Outputs = append(r.Outputs, &pb.Outputs{At: uint32(i), Outcome: pb.Outcome_OUTCOME_SUCCEEDED, Output: []byte(out)})
	}
	l := entry(4, 1, &pb.Command{Change: &pb.Command_Report{Report: r}})
	return m, l
}

// BenchmarkStart applies the entry that starts an operation on 500 nodes.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		m := fresh(b)
		do(b, m, entry(1, 1, tenant("one", 0, 0)))
		l := entry(2, 1, start("one", "00000001", "shop", 500, "pause", ""))
		b.ReportMetric(float64(len(l.Data)), "bytes/entry")
		b.StartTimer()
		m.Apply(l)
	}
}

// BenchmarkSnapshot writes the state of 500 nodes and reads it again.
func BenchmarkSnapshot(b *testing.B) {
	m, l := fiveHundred(b)
	m.Apply(l)
	for b.Loop() {
		data := dump(b, m)
		b.ReportMetric(float64(len(data)), "bytes/snapshot")
		if err := fresh(b).Restore(io.NopCloser(bytes.NewReader(data))); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSums computes the digests of a state with 3,000 clusters of five nodes, as each voter does
// for a checkpoint. The state is at rest, so that the time is that of one core.
func BenchmarkSums(b *testing.B) {
	m := fresh(b)
	do(b, m, entry(1, 1, tenant("one", 0, 0)))
	for i := range uint64(3000) {
		do(b, m, entry(i+2, 1, start("one", fmt.Sprintf("%08d", i+1), fmt.Sprint("shop", i), 5, "pause", "")))
	}
	b.ReportMetric(float64(len(dump(b, m))), "bytes/snapshot")
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	v, before := m.View(), cpu()
	for b.Loop() {
		if _, err := v.Sums(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu()-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}
