package objects

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/change/object"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/sitegen"
)

// Random ordered sites over real runtimes in simulated time: runtimes die, lose touch
// with the leader and find it again, hosts of nodes move, streams break, acts fail
// or are torn, generations come and go. No object moves while a provider is not in
// the state that it needs, or while a dependent relies on it, and in the end every
// object is in its preferred state. OBJECTS_SEEDS is the number of sites, OBJECTS_FROM
// the first seed.
func TestRandomSites(t *testing.T) {
	number := func(name string, fallback uint64) uint64 {
		if n, err := strconv.ParseUint(os.Getenv(name), 10, 32); err == nil {
			return n
		}
		return fallback
	}
	from := number("OBJECTS_FROM", 0)
	for seed := from; seed < from+number("OBJECTS_SEEDS", 60) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { random(t, seed) }) })
	}
}

func random(t *testing.T, seed uint64) {
	var mu sync.Mutex
	rng, chance := rand.New(rand.NewPCG(seed, 8)), rand.New(rand.NewPCG(seed, 9))
	n := func(n int) int { mu.Lock(); defer mu.Unlock(); return chance.IntN(n) }
	agents := []string{"a0", "a1", "a2"}
	w := newWard(t, agents...)
	w.patient, w.action = 3*time.Hour, time.Duration(1+n(100))*time.Millisecond
	oracle(w)
	faulty, loss, failing, late := true, n(2)*n(30), n(2)*n(40), 1+n(60)
	w.delay = func() time.Duration { return time.Duration(n(late)) * time.Millisecond }
	w.lose = func() bool { return faulty && n(100) < loss }
	w.fails = func() bool { return faulty && n(100) < failing }
	w.torn = func() bool { return n(2) == 0 }
	pause := func() { time.Sleep(time.Duration(n(1000)) * time.Millisecond) }

	doc := sitegen.Random(rng, 3+n(8), 4, false)
	doc.Name = "s"
	for i := range doc.Objects {
		if o := &doc.Objects[i]; o.Host == "agent:a3" {
			o.Host = fmt.Sprint("node:c/", n(2))
		}
	}
	for v := range 3 {
		if v > 0 {
			doc = sitegen.Mutate(rng, doc, 3, v+1, n(2) == 0)
		}
		w.apply(doc)
		for range n(4) {
			pause()
			a := agents[n(3)]
			switch n(4) {
			case 0, 1: // killed, and restarted at once or after other agents have taken its hosts
				w.kill(a)
				if n(2) == 0 {
					w.tell()
					pause()
				}
				w.start(a)
			case 2: // out of touch for a while
				w.touch(a, false)
				pause()
				w.touch(a, true)
			case 3: // another leader
				w.session(a, fmt.Sprint(a, "-", n(1_000_000)))
			}
		}
		w.await(fmt.Sprint("generation ", v+1), func() bool { return w.record.Next == 0 })
	}
	w.mu.Lock()
	faulty = false
	w.mu.Unlock()
	w.converge()
	// A site that is deleted leaves nothing behind.
	w.mu.Lock()
	for _, h := range w.runtimes {
		h.Orders(h.session, []*pb.SiteOrders{{Tenant: "t", Site: "s", Epoch: w.record.Epoch, Gone: true}})
	}
	w.mu.Unlock()
	time.Sleep(3 * linger)
	synctest.Wait()
	for a, h := range w.runtimes {
		h.mu.Lock()
		if len(h.runners) > 0 {
			t.Errorf("%s keeps the runner of a site that is gone", a)
		}
		h.mu.Unlock()
	}
	for _, a := range agents {
		w.kill(a)
	}
}

func (w *ward) touch(agent string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runtimes[agent].touch = yes
}

// session begins a session of an agent with another leader.
func (w *ward) session(agent, name string) {
	w.mu.Lock()
	w.runtimes[agent].session, w.runtimes[agent].told = name, map[uint64]string{}
	w.mu.Unlock()
	w.tell()
}

// await waits until something is so.
func (w *ward) await(what string, so func() bool) {
	w.t.Helper()
	for over := time.Now().Add(w.patient); ; {
		w.mu.Lock()
		is := so()
		w.mu.Unlock()
		if is {
			return
		}
		if time.Now().After(over) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.t.Fatalf("%s: never: %+v; %v; did %v", what, w.record, w.reports, w.log)
		}
		time.Sleep(50 * time.Millisecond)
		w.tell()
	}
}

// oracle checks S1 and S2 by the real states of objects and the acts that run, not by the
// data of the runtimes. While two generations that share an object are being applied, the
// object's needs may be those of either.
func oracle(w *ward) {
	relied := map[string]int{}
	moves := map[string][2]string{"start": {"down", "up"}, "stop": {"up", "down"}, "restart": {"outdated", "up"},
		"cleanup": {"outdated", "down"}}
	w.began = func(j *Job, action string) func() {
		name := j.Object.Name
		if relied[name] > 0 {
			w.t.Errorf("S2: %s goes %s while others rely on it", name, action)
		}
		var needs [][]string // of each generation that it may follow
		for _, g := range []uint64{w.record.Generation, w.record.Next} {
			s := w.sites[g]
			if s == nil {
				continue
			}
			id, ok := s.Find(name)
			if !ok || s.Defs[id].Content != j.Content {
				continue
			}
			d := &s.Defs[id]
			from, _ := d.Type.State(moves[action][0])
			if action == "stop" && w.world[name] != version(j.Object) {
				from, _ = d.Type.State("outdated") // so a service's cleanup is called
			}
			to, _ := d.Type.State(moves[action][1])
			list := []string{}
			d.Moving(from, to, func(p object.ID, in object.State) {
				list = append(list, s.Defs[p].Name+" "+s.Defs[p].Type.States[in])
			})
			needs = append(needs, list)
		}
		if len(needs) == 0 {
			return func() {} // of a generation before
		}
		var trust []string
		for _, need := range needs[0] {
			if !slices.ContainsFunc(needs, func(list []string) bool { return !slices.Contains(list, need) }) {
				p, state, _ := strings.Cut(need, " ")
				if w.busy[p] || (w.world[p] != 0) != (state == "up") {
					w.t.Errorf("S1: %s goes %s, but %s is not %s", name, action, p, state)
				}
				trust = append(trust, p)
			}
		}
		for _, p := range trust {
			relied[p]++
		}
		return func() {
			for _, p := range trust {
				relied[p]--
			}
		}
	}
}
