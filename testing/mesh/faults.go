package mesh

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/coopr/coopr/testing/doubles/fabric"
)

// fault is a fault of a mesh: begin starts it and returns a function that ends it.
type fault struct {
	name  string
	begin func(m *Mesh, rng *rand.Rand) (end func())
}

// someone chooses an agent that is up, or nil.
func someone(m *Mesh, rng *rand.Rand) *Agent {
	if up := m.Up(); len(up) > 0 {
		return up[rng.IntN(len(up))]
	}
	return nil
}

func leaderOr(m *Mesh, rng *rand.Rand) *Agent {
	if l := m.Leader(); l != nil {
		return l
	}
	return someone(m, rng)
}

func follower(m *Mesh, rng *rand.Rand) *Agent {
	l := m.Leader()
	up := slices.DeleteFunc(m.Up(), func(a *Agent) bool { return a == l })
	if len(up) == 0 {
		return nil
	}
	return up[rng.IntN(len(up))]
}

func busy(m *Mesh, rng *rand.Rand) *Agent {
	up := slices.DeleteFunc(m.Up(), func(a *Agent) bool { return a.Busy() == 0 })
	if len(up) == 0 {
		return someone(m, rng)
	}
	return up[rng.IntN(len(up))]
}

func kill(who func(*Mesh, *rand.Rand) *Agent) func(*Mesh, *rand.Rand) func() {
	return func(m *Mesh, rng *rand.Rand) func() {
		a := who(m, rng)
		if a == nil {
			return nil
		}
		a.Crash()
		return a.Start
	}
}

func freeze(who func(*Mesh, *rand.Rand) *Agent) func(*Mesh, *rand.Rand) func() {
	return func(m *Mesh, rng *rand.Rand) func() {
		a := who(m, rng)
		if a == nil {
			return nil
		}
		a.Freeze()
		return a.Thaw
	}
}

// aDiskLies lets an agent's disk lose or change what it has acknowledged. For a while just enough agents for a majority,
// with this one, are cut off from the others. Then all of them are killed, and only this one is back soon. It is always
// the same agent, as a majority of the disks has to be honest.
func aDiskLies(m *Mesh, rng *rand.Rand) func() {
	others := slices.Clone(m.agents)
	i := int(m.opts.Seed % uint64(len(others)))
	liar := others[i]
	others = slices.Delete(others, i, i+1)
	rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	witnesses, rest := others[:len(m.agents)/2], others[len(m.agents)/2:]
	name := fmt.Sprint("ignorant ", rng.Uint32())
	m.Cut(name, append([]*Agent{liar}, witnesses...), rest)
	time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
	liar.Crash()
	for _, a := range witnesses {
		a.Crash()
	}
	m.Heal(name)
	time.Sleep(time.Second) // until the dead write no more
	m.Tracef("%s: %s", liar.Name, liar.content.Lie(rng))
	liar.Start()
	return func() {
		for _, a := range witnesses {
			a.Start()
		}
	}
}

// faults holds all faults.
var faults = []fault{
	{"the leader is killed", kill(leaderOr)},
	{"a follower is killed", kill(follower)},
	{"an agent at work is killed", kill(busy)},
	{"all are killed", func(m *Mesh, rng *rand.Rand) func() {
		down := m.Up()
		for _, a := range down {
			a.Crash()
		}
		return func() {
			for _, i := range rng.Perm(len(down)) {
				down[i].Start()
			}
		}
	}},
	{"the leader freezes", freeze(leaderOr)},
	{"an agent at work freezes", freeze(busy)},
	{"an agent stops in order", func(m *Mesh, rng *rand.Rand) func() {
		a := someone(m, rng)
		if a == nil {
			return nil
		}
		a.Stop()
		return a.Start
	}},
	{"a disk is full", func(m *Mesh, rng *rand.Rand) func() {
		a := someone(m, rng)
		if a == nil {
			return nil
		}
		a.FillDisk()
		return a.FreeDisk
	}},
	{"a disk lies", aDiskLies},
	{"one is cut off", func(m *Mesh, rng *rand.Rand) func() {
		a := leaderOr(m, rng)
		if rng.IntN(2) == 0 {
			a = someone(m, rng)
		}
		if a == nil {
			return nil
		}
		m.Tracef("%s is cut off", a.Name)
		m.Cut("off "+a.Name, []*Agent{a})
		return func() { m.Heal("off " + a.Name) }
	}},
	{"the mesh is parted", func(m *Mesh, rng *rand.Rand) func() {
		all := slices.Clone(m.agents)
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		n := 1 + rng.IntN(len(all)-1)
		name := fmt.Sprint("parted ", rng.Uint32())
		for _, a := range all[:n] {
			m.Tracef("%s is on one side", a.Name)
		}
		m.Cut(name, all[:n], all[n:])
		return func() { m.Heal(name) }
	}},
	{"one is deaf for another", func(m *Mesh, rng *rand.Rand) func() {
		p := rng.Perm(len(m.agents))
		name := fmt.Sprint("deaf ", rng.Uint32())
		m.Tracef("%s cannot be heard by %s", m.agents[p[0]].Name, m.agents[p[1]].Name)
		m.CutOneWay(name, m.agents[p[0]], m.agents[p[1]])
		return func() { m.Heal(name) }
	}},
	{"the network is bad", func(m *Mesh, rng *rand.Rand) func() {
		m.Fabric.SetQuality(fabric.Quality{Delay: 20 * time.Millisecond, Jitter: 100 * time.Millisecond, Loss: 0.1 + 0.2*rng.Float64()})
		return func() {
			m.Tracef("the network is good again")
			m.Fabric.SetQuality(fabric.Quality{Delay: time.Millisecond, Jitter: time.Millisecond})
		}
	}},
	{"the leadership is handed over", func(m *Mesh, rng *rand.Rand) func() {
		if l := m.Leader(); l != nil {
			l.Call("POST", "/v1/operator/raft/transfer", nil, "")
		}
		return nil
	}},
}

// Havoc lets n faults happen within about the given time, each for a while,
// and returns when all have ended.
func (m *Mesh) Havoc(rng *rand.Rand, n int, within time.Duration) {
	type ending struct {
		at  time.Time
		end func()
	}
	var ends []ending
	finish := func(until time.Time) {
		for {
			i := -1
			for j := range ends {
				if i < 0 || ends[j].at.Before(ends[i].at) {
					i = j
				}
			}
			if i < 0 || ends[i].at.After(until) {
				time.Sleep(time.Until(until))
				return
			}
			e := ends[i]
			ends = slices.Delete(ends, i, i+1)
			time.Sleep(time.Until(e.at))
			e.end()
		}
	}
	for range n {
		finish(time.Now().Add(time.Duration(rng.Int64N(int64(within) / int64(n)))))
		f := faults[rng.IntN(len(faults))]
		m.Tracef("FAULT: %s", f.name)
		m.faults.Add(1)
		if end := f.begin(m, rng); end != nil {
			lasts := time.Duration(rng.Int64N(int64(12 * time.Second)))
			if rng.IntN(3) == 0 {
				lasts /= 10
			}
			ends = append(ends, ending{time.Now().Add(lasts), end})
		}
	}
	if len(ends) > 0 {
		last := ends[0].at
		for _, e := range ends {
			if e.at.After(last) {
				last = e.at
			}
		}
		finish(last)
	}
	m.Tracef("the faults are over")
}
