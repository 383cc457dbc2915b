package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// nodes is the size of the clusters in tests of faults.
const nodes = 12

// ledgerMesh is a mesh whose agents have the provider "ledger".
func ledgerMesh(t *testing.T, flags ...string) *mesh {
	t.Helper()
	return startMesh(t, append([]string{"--plugin-dir", testdata(t, "ledger/plugins")}, flags...)...)
}

// survives checks the end of a cluster's creation after a fault, deletes the cluster and stops the
// mesh, and checks that nothing is left.
func (m *mesh) survives(op model.Operation) {
	m.t.Helper()
	m.succeeds(op.ID)
	m.audit(op.ID, nodes)
	m.remove(op.Cluster)
	m.stop()
}

// TestNoFault is the same without a fault.
func TestNoFault(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	m.survives(m.create("c", nodes))
}

// TestKillLeader: kill -9 of the leader in the middle of the work.
func TestKillLeader(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .3)
	leader := m.leader()
	leader.kill()
	m.succeeds(op.ID)
	leader.start()
	m.ready()
	m.survives(op)
}

// TestKillFollower: kill -9 of an agent that does not lead, while it has work.
func TestKillFollower(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .2)
	follower := m.follower()
	follower.busy()
	follower.kill()
	m.succeeds(op.ID)
	follower.start()
	m.ready()
	m.survives(op)
}

// TestRestartWorker: kill -9 of an agent with running tasks, which restarts at once. Its journal
// has its tasks, so that the mesh does not wait for its leases to end.
func TestRestartWorker(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .2)
	worker := m.follower()
	worker.busy()
	worker.kill()
	worker.start()
	m.ready()
	m.survives(op)
}

// busy waits until the agent has tasks at work.
func (a *agent) busy() {
	a.mesh.t.Helper()
	a.mesh.await("agent "+a.name+" to have running tasks", func() error {
		s, err := a.status()
		if err == nil && s.Busy == 0 {
			err = errNotYet
		}
		return err
	})
}

// TestKillAll: kill -9 of all three agents, which leave no process behind and continue when they
// are started again.
func TestKillAll(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .3)
	for _, a := range m.agents {
		a.signal(syscall.SIGKILL)
	}
	for _, a := range m.agents {
		<-a.ended
	}
	m.await("the plugins and their scripts to be gone with their agents", func() error {
		list, err := processes(m.dir)
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("still there: %v", list)
		}
		return err
	})
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	m.survives(op)
}

// asleepFor is the least time for which a leader is stopped.
const asleepFor = 20 * time.Second

// TestStopLeader: SIGSTOP of the leader until the others have revoked its leases and finished its
// work; then it continues.
func TestStopLeader(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .3)
	asleep := m.leader()
	asleep.signal(syscall.SIGSTOP)
	long := time.After(asleepFor)
	var others []*agent
	for _, a := range m.agents {
		if a != asleep {
			others = append(others, a)
		}
	}
	m.succeeds(op.ID, others...)
	m.await("the sleeping agent's session to have ended", func() error {
		list, _, err := m.api(others...).Agents(m.context(), client.Read{})
		for _, r := range list {
			if r.Name == asleep.name && r.Alive {
				return errNotYet
			}
		}
		return err
	})
	<-long
	asleep.signal(syscall.SIGCONT)
	m.await("the agent that slept to follow", func() error {
		s, err := asleep.status()
		if err == nil && (s.IsLeader || s.Leader == "" || s.Session == "") {
			err = errNotYet
		}
		return err
	})
	m.ready()
	m.survives(op)
}

// TestFullDisk: the leader's disk is full for a while in the middle of the work.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c")
	m.flags = []string{"--plugin-dir", testdata(t, "ledger/plugins")}
	small := m.agents[1]
	mount(t, small.data)
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	m.await("the agent with the small disk to lead", func() error {
		if s, err := small.status(); err != nil || s.IsLeader && s.LeaderReady {
			return err
		}
		s := m.coopr("operator", "raft", "transfer", small.name)
		return fmt.Errorf("%w: the transfer ended with exit code %d, %s", errNotYet, s.code, s.err)
	})
	op := m.create("c", nodes)
	m.half(op.ID, .2)
	fill := filepath.Join(small.data, "fill")
	if err := os.WriteFile(fill, make([]byte, diskSize), 0o600); err == nil {
		t.Fatal("the small disk is not small")
	}
	m.succeeds(op.ID)
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	m.ready()
	m.survives(op)
}

const diskSize = 64 << 20

// mount makes a small disk.
func mount(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize)); err != nil {
		t.Skipf("a full disk needs a small one, and that needs root to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// plugins lists the plugin processes of this name, of one agent or with nil of all.
func (m *mesh) plugins(name string, of *agent) []int {
	m.t.Helper()
	list, err := processes(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	var out []int
	for _, p := range list {
		program, _, _ := strings.Cut(p.what, " ")
		if filepath.Base(program) != name || of != nil && parent(p.pid) != of.cmd.Process.Pid {
			continue
		}
		out = append(out, p.pid)
	}
	return out
}

// parent returns a process's parent, 0 where it has none any more.
func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// "pid (name) state ppid …": the name may have anything in it.
	var state string
	var ppid int
	if _, err := fmt.Sscan(string(b[strings.LastIndexByte(string(b), ')')+1:]), &state, &ppid); err != nil {
		return 0
	}
	return ppid
}
