package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDamagedLog overwrites the log of one of three voters. The agent puts it aside by itself and gets
// the state again, and then its vote is good for the loss of another agent.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.must("token", "create", "before", "--role", "admin")
	hurt := m.follower()
	hurt.kill()
	path := filepath.Join(hurt.data, "raft", "raft.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("garbage "), 16<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	hurt.start()
	m.await("the agent to hold the state and to vote again", func() error {
		if !strings.Contains(hurt.tail(1000), "this member has received the entries that its log had lost, and votes again") {
			return errNotYet
		}
		return nil
	})
	if kept, err := os.ReadFile(filepath.Join(onlyIn(t, filepath.Join(hurt.data, "quarantine")), "raft.db")); err != nil ||
		!bytes.HasPrefix(kept, []byte("garbage ")) {
		t.Errorf("the damaged log was not kept: %v", err)
	}
	m.ready()
	leader := m.leader()
	if leader == hurt {
		leader = m.follower()
	}
	leader.kill()
	m.leader()
	m.must("token", "create", "after", "--role", "admin")
	if out := m.must("token", "list"); !strings.Contains(out, "before") || !strings.Contains(out, "after") {
		t.Errorf("tokens:\n%s", out)
	}
	leader.start()
	// The others may take it for alive still, so it is asked itself whether it is back.
	m.await("the killed agent to know a leader again", func() error {
		s, err := leader.status()
		if err == nil && s.Leader == "" {
			err = errNotYet
		}
		return err
	})
	m.ready()
	m.stop()
}

// onlyIn returns the path of the only entry of a directory.
func onlyIn(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s holds %v, %v", dir, list, err)
	}
	return filepath.Join(dir, list[0].Name())
}
