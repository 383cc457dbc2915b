package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
)

// meeting is a history in which a configuration, an upgrade and a recovery meet.
type meeting struct {
	first, second model.OperationType
	onFailure     string
	node          int    // on which something breaks
	before        int    // the number of the task before which it breaks
	what          string // "machine", "late" (a machine whose death is noticed only when all is quiet), or "service"
	off           bool   // no recovery by itself
}

// TestMeetings lets a configuration, an upgrade and a recovery meet in every order on every node. In
// the end every service has the configuration and the version that were asked for.
func TestMeetings(t *testing.T) {
	step := 12 // 1: something breaks before each task
	if os.Getenv("COOPR_MEET") == "all" {
		step = 1
	}
	seeded(t, "1")
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, step-1).Draw(t, "from")
		for _, order := range [][2]model.OperationType{{model.OpConfigure, model.OpUpgrade}, {model.OpUpgrade, model.OpConfigure}} {
			for _, what := range []string{"machine", "late", "service"} {
				for node := range 4 {
					for before := from; ; before += step {
						m := meeting{order[0], order[1], []string{"", "leave"}[before/step%2], node, before, what, what != "service" && before/step%3 == 0}
						if !meet(t, m) {
							break
						}
					}
				}
			}
		}
	})
}

// meet plays a meeting. It reports false if nothing broke, as there are fewer tasks.
func meet(t *rapid.T, m meeting) (broke bool) {
	l := newLab(t)
	if m.off {
		l.policy = &model.RecoveryPolicy{Off: true}
	}
	l.define(1, "hello")
	ctx := context.Background()
	p, _, err := l.o.Create(ctx, who, model.CreateCluster{Name: "shop", ClusterTemplate: "shop", NumMachines: 4}, false)
	if err != nil {
		t.Fatal(err)
	}
	id := p.Cluster.ID
	l.run(p.Operation.ID, never, never)
	l.define(2, "hello")
	requests := map[model.OperationType]operation.Request{
		model.OpConfigure: {Type: model.OpConfigure, Config: map[string]any{"greeting": "bye"}, Restart: true, OnFailure: m.onFailure},
		model.OpUpgrade:   {Type: model.OpUpgrade, OnFailure: m.onFailure},
	}
	n := l.m.View().Nodes("t", id)[m.node]
	tasks, service := 0, n.Services[0]
	l.meantime = func() {
		if tasks++; tasks != m.before+1 {
			return
		}
		broke = true
		switch m.what {
		case "machine":
			l.raze(n.ID)
			l.notice(n.ID)
		case "late":
			l.raze(n.ID)
		case "service":
			p, _, err := l.o.StartConcurrent(ctx, who, id, model.OpRecover, []operation.Unit{{Node: n.ID, Services: []string{service}}})
			if errors.Is(err, problem.Conflict) {
				return // the operation is at work there, and starts the service itself
			}
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			l.run(p.Operation.ID, never, never)
		}
	}
	for _, typ := range []model.OperationType{m.first, m.second} {
		if cl, _ := l.last(id); cl.Status == model.ClusterFailed {
			l.person(id, requests[m.first], false) // its rollback met the machine that nobody knew to be gone
		}
		l.do(id, requests[typ])
		l.follows(id, never)
	}
	l.noticeAll()
	l.follows(id, never)
	for _, typ := range []model.OperationType{m.first, m.second} { // of which one may have failed
		l.person(id, requests[typ], false)
		l.run(l.do(id, requests[typ]), never, never)
	}
	l.check(id, fmt.Sprintf("%+v", m))
	for id, is := range l.machines {
		for name, r := range is.services {
			want := 1
			if name == "web" {
				want = 2
			}
			if r.version != want || !r.runs {
				t.Fatalf("%+v: %s on %s is of version %d and runs: %v", m, name, id, r.version, r.runs)
			}
		}
	}
	cl, _ := l.last(id)
	if cl.Status != model.ClusterActive || cl.Config["greeting"] != "bye" || len(l.machines) != 4 {
		t.Fatalf("%+v: the cluster is %s with %v on %d machines", m, cl.Status, cl.Config, len(l.machines))
	}
	return broke
}
