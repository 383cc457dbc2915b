package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// TestRestore saves a snapshot, loses every agent, and restores the state into a new mesh, which
// continues with the existing cluster.
func TestRestore(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", 5)
	m.succeeds(op.ID)
	var token string
	m.await("a token", func() error {
		// Whose answer is lost with a leader makes another: it is shown only once.
		s := m.coopr("token", "create", "alice", "--role", "admin")
		if token = s.out; s.code != 0 {
			return errors.New(s.err)
		}
		return nil
	})
	file := filepath.Join(m.dir, "state.snap")
	m.must("operator", "snapshot", "save", file)
	before := m.must("export")
	m.begin(model.CreateCluster{Name: "later", ClusterTemplate: "ledger", NumMachines: 1})
	for _, a := range m.agents {
		a.kill()
	}
	m.wipe(m.agents...)
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	if s := m.coopr("cluster", "get", "c"); s.code != 3 {
		t.Errorf("a new mesh knows the old cluster: %s%s", s.out, s.err)
	}
	if err := os.WriteFile(file+".bad", []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := m.coopr("operator", "snapshot", "restore", file+".bad", "--yes"); s.code == 0 {
		t.Errorf("nonsense was restored: %s", s.out)
	}
	m.must("operator", "snapshot", "restore", file, "--yes")
	m.ready()
	if s := m.coopr("status"); s.code != 6 || !strings.Contains(s.out, "restored from state.snap") {
		t.Errorf("the status of a mesh that was restored: %d\n%s%s", s.code, s.out, s.err)
	}
	m.must("operator", "resume")
	// The agents are the current ones, not those of the snapshot.
	if list, _, err := m.api().Agents(m.context(), client.Read{}); err != nil || len(list) != len(m.agents) {
		t.Errorf("agents after the restore: %v %+v", err, list)
	}
	for _, a := range m.agents {
		m.await("agent "+a.name+" to know the agents of now only", func() error {
			members, err := m.api(a).Members(m.context())
			if err == nil && len(members) != len(m.agents) {
				err = fmt.Errorf("%+v", members)
			}
			return err
		})
	}
	if after := m.must("export"); after != before {
		t.Errorf("definitions:\n%s\nwere\n%s", after, before)
	}
	if s := m.coopr("cluster", "get", "later"); s.code != 3 {
		t.Errorf("what was made after the snapshot is known: %s%s", s.out, s.err)
	}
	if out := m.must("token", "list"); !strings.Contains(out, "alice") || token == "" {
		t.Errorf("the token is not known:\n%s", out)
	}
	m.must("cluster", "restart", "c")
	if again, _, err := m.api().Operations(m.context(), "c", nil, client.Page{}, client.Read{}); err != nil || len(again) != 2 {
		t.Errorf("operations of the cluster: %v %v", again, err)
	} else {
		// Fences continue from those of the restored state, not from those of the new mesh.
		old, young := m.tasks(op.ID), m.tasks(again[0].ID)
		for _, task := range young {
			if task.Fence <= old[len(old)-1].Fence {
				t.Errorf("%s has fence %d, and one of %d was given before", name(&task), task.Fence, old[len(old)-1].Fence)
			}
		}
	}
	m.remove("c")
	// Machines that were made after the snapshot belong to no cluster, as docs/operations.md says.
	if err := os.RemoveAll(m.nodes()); err != nil {
		t.Fatal(err)
	}
	m.stop()
}

// wipe takes the disks of killed agents away. Their plugins' sockets, which
// agents with their data remove themselves, go with them.
func (m *mesh) wipe(lost ...*agent) {
	m.t.Helper()
	for _, a := range lost {
		sockets, err := os.ReadFile(filepath.Join(a.data, "plugins", "run", "sockets"))
		if err == nil {
			err = os.RemoveAll(string(sockets))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it was killed before it had any
			m.t.Fatal(err)
		}
		if err := os.RemoveAll(a.data); err != nil {
			m.t.Fatal(err)
		}
	}
}

// TestLostQuorum loses two of three agents with their disks, and follows docs/operations.md.
func TestLostQuorum(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", 4)
	m.succeeds(op.ID)
	survivor := m.agents[0]
	lost := m.agents[1:]
	for _, a := range lost {
		a.kill()
	}
	m.wipe(lost...)
	m.await("the leader to be gone", func() error {
		s, err := survivor.status()
		if err == nil && s.Leader != "" {
			err = errNotYet
		}
		return err
	})
	survivor.stop()
	id, err := os.ReadFile(filepath.Join(survivor.data, "agent-id"))
	if err != nil {
		t.Fatal(err)
	}
	if s := m.daemon("recover", "--yes", "--data-dir", survivor.data, strings.TrimSpace(string(id))+"="+survivor.addr(peerPort)); s.code != 0 {
		t.Fatalf("coopr-agent recover: exit code %d\n%s%s", s.code, s.out, s.err)
	}
	survivor.start()
	m.ready()
	if log := survivor.tail(1000); !strings.Contains(log, "the Raft group was given a new set of members by the operator") {
		t.Error("the log does not tell of it")
	}
	list, _, err := m.api(survivor).Agents(m.context(), client.Read{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.ID == strings.TrimSpace(string(id)) {
			continue
		}
		m.await("agent "+r.Name+" to be forgotten", func() error {
			if s := m.coopr("leave", r.ID, "--yes"); s.code != 0 {
				return fmt.Errorf("exit code %d: %s%s", s.code, s.out, s.err)
			}
			return nil
		})
	}
	for _, r := range list {
		if strings.Contains(survivor.tail(1000), "change=add member="+r.ID) {
			t.Errorf("agent %s, long dead, was taken into the Raft group", r.Name)
		}
	}
	// New agents in the place of the lost ones.
	m.expect = 0
	for _, a := range lost {
		a.start()
	}
	m.ready()
	m.await("three voters", func() error {
		peers, err := m.api(survivor).RaftPeers(m.context())
		n := 0
		for _, p := range peers {
			if p.Voter {
				n++
			}
		}
		if err == nil && n != 3 {
			err = fmt.Errorf("%d voters: %+v", n, peers)
		}
		return err
	})
	survivor.kill() // the new group does not need it any more
	m.leader()
	m.must("cluster", "restart", "c")
	survivor.start()
	m.ready()
	m.remove("c")
	m.stop()
}

// TestMove restarts every agent, one after the other, at another address. They stay the same
// agents, and work continues.
func TestMove(t *testing.T) {
	t.Parallel()
	m := ledgerMesh(t)
	op := m.create("c", nodes)
	m.half(op.ID, .1)
	ids := map[string]string{}
	for _, a := range m.agents {
		s, err := a.status()
		if err != nil {
			t.Fatal(err)
		}
		ids[a.name] = s.ID
	}
	for _, a := range m.agents {
		a.stop() // SIGTERM: it hands over and gives back
		a.ip = freeIP(t)
		m.client.Close()
		m.client = nil
		a.start()
		m.ready()
		m.await("agent "+a.name+" to vote at its new address", func() error {
			s, err := a.status()
			if err == nil && (!s.Voter || s.Leader == "" || s.ID != ids[a.name]) {
				err = fmt.Errorf("%w: %+v", errNotYet, s)
			}
			return err
		})
	}
	members, err := m.api().Members(m.context())
	if err != nil || len(members) != 3 {
		t.Errorf("members: %v %v", members, err)
	}
	m.survives(op)
}
