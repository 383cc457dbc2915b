package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/testing/doubles/fabric"
	"github.com/coopr/coopr/testing/doubles/faultystore"
	"github.com/coopr/coopr/testing/doubles/memjournal"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// Agent is a simulated agent with its host and the data that outlives it.
type Agent struct {
	Name string
	ID   string
	Disk *faultystore.Disk

	m         *Mesh
	ip        string
	host      *fabric.Host
	content   *faultystore.Lying
	journal   *memjournal.Journal
	keys      *memkeys.Store
	dir       string // of its identity
	recovered atomic.Int32
	copies    atomic.Int32 // damaged, on its disk
	ahead     atomic.Int64 // of the clock that it reports and signs by, in nanoseconds

	life   *life
	agent  *agent.Agent
	gossip *fabric.Gossip
	cancel context.CancelFunc
	lives  []chan struct{} // each closed when that life's goroutines ended
}

func (m *Mesh) newAgent(i int) *Agent {
	ip := fmt.Sprintf("10.0.%d.%d", i/200, i%200+1)
	return &Agent{
		Name: fmt.Sprintf("agent-%02d", i), ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Disk: &faultystore.Disk{},
		m: m, ip: ip, host: m.Fabric.Host(ip), content: faultystore.NewLying(), journal: memjournal.New(), keys: &memkeys.Store{},
	}
}

const (
	peerPort   = ":55055"
	gossipPort = 55056
)

// Start starts the agent with the data of its earlier lives.
func (a *Agent) Start() {
	a.m.T.Helper()
	if a.Running() {
		return
	}
	a.host.Start()
	g, err := a.host.Gossip(gossipPort)
	if err != nil {
		a.m.T.Fatalf("%s: %v", a.Name, err)
	}
	l := newLife()
	level := slog.LevelInfo
	if a.m.opts.Verbose {
		level = slog.LevelDebug
	}
	cfg := agent.Config{
		Config: config.Config{
			Name: a.Name, Dev: true, BootstrapExpect: a.m.opts.Expect, Eligible: true,
			Peer: config.Peer{Addr: a.ip + peerPort}, Worker: config.Worker{Slots: a.m.opts.Slots}, Retention: a.m.opts.Retention,
			Audit: a.m.opts.Audit, Issuer: a.m.opts.Issuer,
		},
		Build: "simulation", Logger: slog.New(tracer{m: a.m, life: l, name: a.Name, level: level}), ID: a.ID,
		Credentials: admission.Credentials{Root: Token},
		Network:     network{a.host, l}, Gossip: gossip{g, l}, Journal: journal{a.journal, l},
		Executor: &executor{world: a.m.World, life: l, name: a.Name},
		Stores: member.Stores{PutAside: a.putAside, MakeRoom: a.makeRoom, Open: func() (*logstore.Stores, error) {
			wrap := func(ls raft.LogStore, ss raft.StableStore) (raft.LogStore, raft.StableStore) {
				return a.Disk.Wrap(logs{ls, l}, stable{ss, l})
			}
			return logstore.FromParts(a.content, a.content, snapshots{a.content.Snapshots(), l},
				logstore.Options{Wrap: wrap, Watermark: mark{a.content, l}})
		}},
		KeyStore: a.keys, Checkpoint: a.m.opts.Checkpoint,
		NoHTTP: true, Timing: a.m.opts.Timing, TTL: a.m.opts.TTL, Machine: a.Name, Drain: 5 * time.Second,
		Clock: func() time.Time { return time.Now().Add(time.Duration(a.ahead.Load())) },
	}
	if a.m.opts.Expect == 1 && a != a.m.agents[0] {
		cfg.BootstrapExpect = 0 // one begins, the others join it
	}
	for i := range min(3, len(a.m.agents)) {
		if other := a.m.agents[i]; other != a {
			cfg.Join = append(cfg.Join, fmt.Sprintf("%s:%d", other.ip, gossipPort))
		}
	}
	a.m.Tracef("%s starts", a.Name)
	a.m.starts.Add(1)
	if a.m.opts.Identity {
		if err := a.identify(&cfg); err != nil {
			a.m.T.Fatalf("%s: %v", a.Name, err)
		}
	}
	ag, err := agent.New(cfg)
	if err != nil {
		a.m.T.Fatalf("%s: %v", a.Name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	a.life, a.agent, a.gossip, a.cancel = l, ag, g, cancel
	a.lives = append(a.lives, done)
	go func() {
		defer close(done)
		if err := ag.Run(ctx); err != nil && !l.isDead() && !errors.Is(err, context.Canceled) {
			a.m.Tracef("%s ended: %v", a.Name, err)
		}
	}()
}

// Running reports whether the agent is up; a frozen one is.
func (a *Agent) Running() bool { return a.life != nil && !a.life.isDead() }

// Crash kills the agent (kill -9). From then on it has no effect on network, disk or world.
func (a *Agent) Crash() {
	if !a.Running() {
		return
	}
	a.m.Tracef("%s is killed", a.Name)
	a.kill()
}

func (a *Agent) kill() {
	close(a.life.dead)
	a.life.thaw()
	a.host.Crash()
	_ = a.gossip.Shutdown()
	a.cancel()
}

// SetClock sets the clock that the agent reports, and by which it signs certificates, ahead of the others; before it starts or later.
func (a *Agent) SetClock(ahead time.Duration) { a.ahead.Store(int64(ahead)) }

// Stop ends the agent in order (SIGTERM) and waits for it.
func (a *Agent) Stop() {
	if !a.Running() {
		return
	}
	a.m.Tracef("%s is told to stop", a.Name)
	a.cancel()
	<-a.lives[len(a.lives)-1]
	a.kill()
}

// Freeze stops the agent like SIGSTOP: no byte comes in or goes out, and its plugins do nothing.
// Its goroutines cannot be stopped, but have no effect outside.
func (a *Agent) Freeze() {
	a.m.Tracef("%s is frozen", a.Name)
	a.life.freeze()
	a.m.Cut("frozen "+a.Name, []*Agent{a})
}

// Thaw ends Freeze.
func (a *Agent) Thaw() {
	a.m.Tracef("%s thaws", a.Name)
	a.m.Heal("frozen " + a.Name)
	a.life.thaw()
}

// FillDisk makes every write of log and journal fail, until FreeDisk.
func (a *Agent) FillDisk() {
	a.m.Tracef("%s: its disk is full", a.Name)
	a.Disk.Fail(faultystore.ErrDiskFull)
	a.journal.SetFull(faultystore.ErrDiskFull)
}

// FreeDisk ends FillDisk.
func (a *Agent) FreeDisk() {
	a.m.Tracef("%s: its disk has room again", a.Name)
	a.Disk.Heal()
	a.journal.SetFull(nil)
}

// putAside replaces the stores of the agent by empty ones. The watermark stays, as it does on a disk.
func (a *Agent) putAside(reason error) (string, error) {
	a.m.Tracef("%s puts its stores aside: %v", a.Name, reason)
	a.content.Empty()
	a.recovered.Add(1)
	return "memory", nil
}

// makeRoom removes a damaged copy of the agent's log from its disk, which has room again then.
func (a *Agent) makeRoom(keep int) (string, error) {
	if int(a.copies.Load()) <= keep {
		return "", nil
	}
	a.m.Tracef("%s removes a damaged copy", a.Name)
	a.copies.Add(-1)
	a.FreeDisk()
	return "memory", nil
}

// PutCopies sets how many damaged copies of its log the agent has on its disk.
func (a *Agent) PutCopies(n int) { a.copies.Store(int32(n)) }

// Copies returns how many damaged copies of its log the agent has on its disk.
func (a *Agent) Copies() int { return int(a.copies.Load()) }

// Recovered returns how often the agent has put its state aside.
func (a *Agent) Recovered() int { return int(a.recovered.Load()) }

// Recover makes the stopped agent the only member of its Raft group, as an operator does after a
// majority is lost.
func (a *Agent) Recover() {
	a.m.T.Helper()
	a.m.Tracef("%s recovers alone", a.Name)
	machine, err := state.New(state.Config{})
	if err != nil {
		a.m.T.Fatal(err)
	}
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = raft.ServerID(a.ID), hclog.NewNullLogger()
	_, transport := raft.NewInmemTransport("")
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(a.ID), Address: raft.ServerAddress(a.ip + peerPort)}}}
	if err := raft.RecoverCluster(conf, machine, a.content, a.content, a.content.Snapshots(), transport, alone); err != nil {
		a.m.T.Fatalf("%s: %v", a.Name, err)
	}
}

// Records returns the ids of the agents in its state.
func (a *Agent) Records() map[string]bool {
	out := map[string]bool{}
	if a.Running() {
		if r := a.agent.Replica(); r != nil {
			for _, x := range r.Machine.View().Agents() {
				out[x.ID] = true
			}
		}
	}
	return out
}

// Keys returns what is in its keyring.
func (a *Agent) Keys() keyring.Set {
	s, _ := a.keys.Load() // it never fails
	return s
}

// PutKeys replaces what is in the keyring of the stopped agent.
func (a *Agent) PutKeys(s keyring.Set) {
	_ = a.keys.Save(s) // it never fails
}

// Busy counts the tasks at work on it.
func (a *Agent) Busy() int {
	if !a.Running() {
		return 0
	}
	n := 0
	for _, at := range a.m.World.Attempts() {
		if at.life == a.life && at.Ended == 0 {
			n++
		}
	}
	return n
}

func (a *Agent) wait() {
	for _, done := range a.lives {
		<-done
	}
}

// Sees counts the agents that it has alive in its own view of the mesh.
func (a *Agent) Sees() int {
	code, body := a.Call("GET", "/v1/members", nil, "")
	var members []struct{ Status string }
	if code != http.StatusOK || json.Unmarshal(body, &members) != nil {
		return 0
	}
	n := 0
	for _, m := range members {
		if m.Status == "alive" {
			n++
		}
	}
	return n
}
