package mesh_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/mesh"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run only this seed of TestSeeds")
	seeds   = flag.Int("seeds", seedsFromEnv(), "how many seeds TestSeeds runs (environment: MESH_SEEDS)")
	first   = flag.Uint64("first", 1, "the first seed of TestSeeds")
)

func seedsFromEnv() int {
	if n, err := strconv.Atoi(os.Getenv("MESH_SEEDS")); err == nil {
		return n
	}
	return 12
}

// TestSeeds causes random faults of agents, disks, plugins and network while a cluster is created
// and deleted. The guarantees hold, and the result is the same as without faults.
func TestSeeds(t *testing.T) {
	from, n := *first, *seeds
	if *oneSeed != 0 {
		from, n = *oneSeed, 1
	} else if testing.Short() {
		n = min(n, 4)
	}
	for seed := from; seed < from+uint64(n); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { live(t, seed) })
		})
	}
}

// live is one life of a mesh.
func live(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	o := mesh.Options{Agents: 3 + 2*rng.IntN(2), Seed: seed, Slots: 1 + rng.IntN(6), Verbose: *oneSeed != 0 && testing.Verbose()}
	if rng.IntN(3) == 0 {
		o.Timing = raftgroup.Timing{SnapshotThreshold: 8, SnapshotInterval: 300 * time.Millisecond, TrailingLogs: 4}
	}
	m := mesh.New(t, o)
	defer func() { t.Log(mesh.Tally(m)) }()
	// One create in eight is doomed, one is aborted by its user, one is paused
	// for a while.
	kind := rng.IntN(8)
	m.World.Trouble = troubles(seed, kind == 0)
	m.Define()

	cluster, op := m.Create("one", 3+rng.IntN(3), "")
	switch kind {
	case 1:
		m.Havoc(rng, 1, 4*time.Second)
		m.Ask("POST", "/v1/operations/"+op+"/abort", nil, nil)
	case 2:
		time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
		m.Ask("POST", "/v1/operations/"+op+"/pause", nil, nil)
		m.Havoc(rng, 1, 4*time.Second)
		m.Ask("POST", "/v1/operations/"+op+"/resume", nil, nil)
	}
	m.Havoc(rng, 1+rng.IntN(3), 10*time.Second)
	st := m.AwaitEnd(op)
	m.CheckAll()
	switch {
	case st == model.OpSucceeded && kind != 0:
	case kind == 0 || kind == 1:
		// The created machines are removed automatically.
		next := cluster + "-002"
		if st := m.AwaitEnd(next); st != model.OpSucceeded {
			t.Fatalf("seed %d: the delete that follows the failed create ended %s", seed, st)
		}
		m.CheckAll()
		nothingLeft(t, m, cluster)
		return
	default:
		t.Fatalf("seed %d: the create ended %s: %s", seed, st, m.Operation(op).Message)
	}

	op = m.Delete(cluster)
	m.Havoc(rng, 1+rng.IntN(2), 3*time.Second)
	if st := m.AwaitEnd(op); st != model.OpSucceeded {
		t.Fatalf("seed %d: the delete ended %s: %s", seed, st, m.Operation(op).Message)
	}
	m.CheckAll()
	nothingLeft(t, m, cluster)
}

func nothingLeft(t *testing.T, m *mesh.Mesh, cluster string) {
	t.Helper()
	if n := m.World.Machines(); n != 0 {
		t.Errorf("%d machines are left", n)
	}
	var c model.Cluster
	m.Ask("GET", "/v1/clusters/"+cluster, nil, &c)
	if c.Status != model.ClusterTerminated {
		t.Errorf("the cluster is %s", c.Status)
	}
}

// troubles lets some first attempts of a create's tasks fail, and with doomed one task finally.
func troubles(seed uint64, doomed bool) func(*pb.Task, int) mesh.Trouble {
	return func(t *pb.Task, attempt int) mesh.Trouble {
		h := fnv.New64a()
		fmt.Fprint(h, seed, t.Id, attempt)
		rng := rand.New(rand.NewPCG(h.Sum64(), seed))
		if doomed && t.Action == "START" && t.Service == "app" && t.Operation[len(t.Operation)-3:] == "001" {
			return mesh.Dooms
		}
		if attempt > 1 || rng.IntN(6) > 0 {
			return mesh.Well
		}
		return []mesh.Trouble{mesh.DiesBefore, mesh.DiesAfter, mesh.Garbage, mesh.Hangs, mesh.Slow, mesh.Fails, mesh.NothingDone}[rng.IntN(7)]
	}
}
