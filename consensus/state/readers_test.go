package state_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// The state of a plan that a reader has does not change while the plan continues. The race detector checks
// this: no package of the engine starts a goroutine, so the test is here, where readers get the states.
func TestReadersDuringEdits(t *testing.T) {
	nodes := make([]string, 50)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("00000001-%d", 1000+i)
	}
	b := plan.NewBuilder(nodes, []string{"s"})
	for n := range nodes {
		last := b.Task(model.Create, n, plan.None)
		for _, a := range []model.Action{model.Confirm, model.Bootstrap, model.Install, model.Configure, model.Initialize, model.Start} {
			service := plan.None
			if !a.PerNode() {
				service = 0
			}
			v := b.Task(a, n, service)
			b.Edge(last, v)
			last = v
		}
	}
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	s := plan.NewState(g)
	var readers sync.WaitGroup
	for range 40 {
		had := s
		readers.Go(func() {
			if b := had.Encode(); !bytes.Equal(b, had.Encode()) {
				t.Error("a published state has changed")
			}
		})
		e := s.Edit()
		for i, v := range s.Leasable() {
			if err := e.Lease(v, 1, plan.Holder{Session: fmt.Sprint(i % 20)}, 1); err != nil {
				t.Fatal(err)
			}
			if err := e.Succeed(v, 1, plan.End{Adopted: i%3 == 0}, 2); err != nil {
				t.Fatal(err)
			}
		}
		if len(e.Ready()) == 0 {
			if err := e.Stop(plan.Whole(), plan.Order{}); err != nil {
				t.Fatal(err)
			}
			if err := e.Release(plan.Whole(), plan.GateInterrupt); err != nil {
				t.Fatal(err)
			}
		}
		s = e.Done()
	}
	readers.Wait()
}
