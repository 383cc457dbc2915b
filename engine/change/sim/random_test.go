package sim

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/coopr/coopr/engine/change/compile"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/testing/doubles/sitegen"
)

// seeds returns the range of seeds that a property is tested with: n of them, from CHANGE_FROM
// on, and CHANGE_SEEDS times as many if that is set.
func seeds(t testing.TB, n uint64) (from, to uint64) {
	env := func(name string, fallback uint64) uint64 {
		v := os.Getenv(name)
		if v == "" {
			return fallback
		}
		u, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return u
	}
	from = env("CHANGE_FROM", 0)
	return from, from + n*env("CHANGE_SEEDS", 1)
}

func built(t testing.TB, d *site.Document, last *object.Site) *object.Site {
	t.Helper()
	s, err := compile.Site(d, compile.Options{Last: last})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

// S1 to S4, and the bound of S6 under faults: no transition runs without its locks or under
// locks of others, no object acts twice at a time, and once the faults stop every object
// reaches its state.
func TestSafetyUnderFaults(t *testing.T) {
	from, to := seeds(t, 400)
	for seed := from; seed < to; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		agents := 2 + rng.IntN(3)
		doc := sitegen.Random(rng, 3+rng.IntN(10), agents, false)
		first := built(t, doc, nil)
		cfg := Config{
			Site:       first,
			Seed:       seed,
			Agents:     agents,
			Delay:      1,
			Jitter:     int64(rng.IntN(60)),
			CheckTime:  2,
			MoveTime:   10,
			MoveJitter: int64(rng.IntN(100)),
			Faulty:     30_000,
		}
		if rng.IntN(3) > 0 {
			cfg.Loss, cfg.Double = rng.Float64()*0.3, rng.Float64()*0.3
		}
		if rng.IntN(3) == 0 {
			cfg.Fails = rng.Float64() * 0.4
		}
		if rng.IntN(2) == 0 {
			cfg = up(cfg)
		}
		s := New(cfg)
		s.Run(rng.Int64N(400))
		links := neighbours(first)
		for v := range 2 {
			doc = sitegen.Mutate(rng, doc, agents, v+2, rng.IntN(2) == 0)
			next := built(t, doc, s.site)
			links = max(links, neighbours(next))
			s.Apply(next)
			for range rng.IntN(4) {
				s.Run(s.Now() + rng.Int64N(300))
				if a := rng.IntN(agents); rng.IntN(2) == 0 {
					s.Crash(a, rng.IntN(2) == 0)
				} else {
					s.Cut(a, rng.IntN(2) == 0)
				}
			}
			for s.next != nil && s.Step() {
				if s.Now() > 7_200_000 {
					t.Fatalf("seed %d: generation %d does not come into force: %s", seed, s.site.Generation+1, s.report())
				}
			}
		}
		s.Run(max(s.Now(), 31_000))
		mustRest(t, s)
		by, _, _ := s.Sent()
		sent, lives := 0, 0
		for _, n := range by {
			sent += n
		}
		for i := range s.incs {
			lives += int(s.incs[i])
		}
		// An object that begins a new life exchanges two messages with each neighbour.
		if sent > 8*s.Asked+2*links*lives {
			t.Fatalf("seed %d: %v for %d locks asked for, %d lives", seed, by, s.Asked, lives)
		}
		for i := range s.site.Defs {
			if d := &s.site.Defs[i]; d.Name != "" && s.World(d.ID) != d.Preferred {
				t.Fatalf("seed %d: %s is not where it should be", seed, d.Name)
			}
		}
	}
}

// neighbours returns the highest number of neighbours of an object in the site.
func neighbours(s *object.Site) int {
	most := 0
	for i := range s.Defs {
		most = max(most, len(s.Defs[i].Out)+len(s.Defs[i].In))
	}
	return most
}

// S5: in a run without faults, in which every check is answered before the first transition
// begins, there are no more transitions than the changed contents imply.
func TestNoMoreTransitionsThanImplied(t *testing.T) {
	from, to := seeds(t, 150)
	for seed := from; seed < to; seed++ {
		rng := rand.New(rand.NewPCG(seed, 3))
		agents := 1 + rng.IntN(3)
		doc := sitegen.Random(rng, 3+rng.IntN(12), agents, true)
		first := built(t, doc, nil)
		cfg := up(Config{Site: first, Seed: seed, Agents: agents, Delay: 1, Jitter: 5, CheckTime: 1, MoveTime: 50, MoveJitter: 20})
		s := New(cfg)
		mustRest(t, s)
		next := built(t, sitegen.Mutate(rng, doc, agents, 2, false), first)
		want := implied(next, compile.NewPlan(first, next).Changed)
		clear(s.Ran)
		s.Apply(next)
		mustRest(t, s)
		for i, n := range want {
			if int(s.Ran[i]) != n {
				t.Fatalf("seed %d: %s made %d transitions, want %d", seed, next.Defs[i].Name, s.Ran[i], n)
			}
		}
	}
}

// implied returns how many transitions each object must make. An outdated object restarts. An
// object that others need down goes down and up again.
func implied(s *object.Site, outdated []object.ID) []int {
	want := make([]int, len(s.Defs))
	down := make([]bool, len(s.Defs))
	var stop func(id object.ID, from string)
	stop = func(id object.ID, from string) {
		d := &s.Defs[id]
		if from == "up" && slices.Contains(outdated, id) {
			return // from outdated to down, which needs no lock
		}
		at, _ := d.Type.State(from)
		to, _ := d.Type.State("up")
		if from == "up" {
			to, _ = d.Type.State("down")
		}
		d.Moving(at, to, func(p object.ID, in object.State) {
			if name := s.Defs[p].Type.States[in]; name == "down" && !down[p] {
				down[p] = true
				stop(p, "up")
			}
		})
	}
	for _, id := range outdated { // objects that stop others come before them
		if !down[id] {
			want[id] = 1
			stop(id, "outdated")
		}
	}
	for i := range down {
		if down[i] {
			want[i] = 2
		}
	}
	return want
}

// S6: in a run without faults, messages pass only between neighbours, and bringing everything
// up takes three messages for each dependency between hosts.
func TestThreeMessagesADependency(t *testing.T) {
	from, to := seeds(t, 100)
	for seed := from; seed < to; seed++ {
		rng := rand.New(rand.NewPCG(seed, 4))
		agents := 2 + rng.IntN(5)
		doc := sitegen.Random(rng, 5+rng.IntN(30), agents, true)
		first := built(t, doc, nil)
		s := New(Config{Site: first, Seed: seed, Agents: agents, Delay: 1, Jitter: 5, CheckTime: 1, MoveTime: 50})
		mustRest(t, s)
		s.Run(s.Now() + 5_000)
		by, _, _ := s.Sent()
		links := 0
		for i := range first.Defs {
			d := &first.Defs[i]
			for _, p := range d.Out {
				up := false
				for _, n := range d.Needs {
					up = up || d.Out[n.Slot] == p && first.Defs[p].Type.States[n.State] == "up"
				}
				if up && s.owner[p] != s.owner[i] {
					links++
				}
			}
		}
		total := 0
		for _, n := range by {
			total += n
		}
		if total > 3*links || by[object.Grant] > links || by[object.Resync]+by[object.Recall] > 0 {
			t.Fatalf("seed %d: %v for %d dependencies between agents", seed, by, links)
		}
	}
}
