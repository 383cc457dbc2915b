package mesh_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestRecoveryOutlivesLeaders breaks services and removes machines while leaders are killed, frozen
// and cut off. In the end everything runs again, nothing was done to a removed machine, no machine
// was made twice, and there were no more recoveries than needed, apart from those that a fault
// disturbed.
func TestRecoveryOutlivesLeaders(t *testing.T) {
	for seed := range uint64(min(3, max(1, *seeds/50))) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { recoverAll(t, 100+seed) })
		})
	}
}

func recoverAll(t *testing.T, seed uint64) {
	m := mesh.New(t, mesh.Options{Agents: 4, Seed: seed, Verbose: testing.Verbose()})
	m.DefineWatched()
	rng := rand.New(rand.NewPCG(seed, 7))
	cluster, op := m.Create("one", 12, "")
	if st := m.AwaitEnd(op); st != model.OpSucceeded {
		t.Fatalf("the create ended %s", st)
	}
	m.Until("all to be healthy", func() bool { return m.Well(cluster) == "" })
	broken, rounds, rest := 0, 6, time.Hour
	if testing.Short() {
		rounds, rest = 1, 6*time.Minute
	}
	for range rounds {
		nodes := m.Nodes(cluster)
		for _, i := range rng.Perm(len(nodes))[:1+rng.IntN(3)] {
			n := nodes[i]
			if rng.IntN(3) == 0 {
				m.World.Raze(n.ID)
			} else {
				m.World.Break(n.ID, n.Services[0])
			}
			broken++
		}
		time.Sleep(time.Duration(rng.IntN(120)) * time.Second)
		if l := m.Leader(); l != nil {
			switch rng.IntN(3) {
			case 0:
				l.Crash()
				time.Sleep(time.Duration(1+rng.IntN(20)) * time.Second)
				l.Start()
			case 1:
				l.Freeze()
				time.Sleep(time.Duration(1+rng.IntN(20)) * time.Second)
				l.Thaw()
			}
		}
		last := ""
		m.Until("all to be healthy again", func() bool {
			if now := m.Well(cluster); now != last {
				last = now
				m.Tracef("ill: %s", now)
			}
			return last == ""
		})
	}
	if wrong := m.World.Violations(); len(wrong) > 0 {
		t.Errorf("%v", wrong)
	}
	if n := m.World.Machines(); n != 12 {
		t.Errorf("%d machines", n)
	}
	if n := len(m.Operations(cluster)) - 1; n < 1 || n > 4*broken {
		t.Errorf("%d recoveries of %d breaks", n, broken)
	}
	// While all is well, nothing more is done, and checks cause no log entries.
	ops, index, checks := len(m.Operations(cluster)), m.Index(), m.World.Checks()
	time.Sleep(rest)
	if now := len(m.Operations(cluster)); now != ops {
		t.Errorf("%d operations of a cluster that is well", now-ops)
	}
	if now := m.Index(); now-index > 20 {
		t.Errorf("%d log entries in %s in which nothing happened", now-index, rest)
	}
	if now := float64(m.World.Checks()-checks) / rest.Hours(); now < 12*100 || now > 12*150 {
		t.Errorf("%.0f checks of 12 services an hour", now)
	}
}
