package dispatch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestPhaseHeldBackWhileUpgrading holds phases back while older voters keep the feature level down. They lease no task of such a phase, also
// of a step that has begun. So the leader must not ask for leases again and again.
func TestPhaseHeldBackWhileUpgrading(t *testing.T) {
	waited := 0
	for seed := range 20 {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := drawPlay(t, uint64(seed))
				p.must(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{
					RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.OrdersLevel - 1}}})
				p.begin(model.Operation{Type: model.OpCreate, OnFailure: "pause"}, p.graph, p.tree)
				p.leader()
				leave := p.enter(2, 0)
				phases := func(order pb.PlanOrder) {
					for i := range p.tree.Phases {
						p.give(&pb.Command{Tenant: "one", Actor: "alice", Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{
							Operation: p.op, Order: order, Phase: p.tree.Phases[i].Name}}})
					}
				}
				time.Sleep(time.Duration(2+seed) * time.Second)
				phases(pb.PlanOrder_PLAN_ORDER_INTERRUPT)
				time.Sleep(time.Minute) // what runs ends
				entries := func() int {
					p.mu.Lock()
					defer p.mu.Unlock()
					return len(p.entries)
				}
				s := p.plan()
				for v := range uint32(s.Graph.Len()) {
					if s.Leaseable(v) && s.Halted(v) {
						waited++
					}
				}
				was := entries()
				time.Sleep(10 * time.Minute)
				if n := entries() - was; n > 0 {
					t.Errorf("%d entries in ten minutes in which nothing may begin", n)
				}
				p.finish()
				leave()
			})
		})
	}
	if waited == 0 {
		t.Error("no step had begun")
	}
}
