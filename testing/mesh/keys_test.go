package mesh_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/testing/mesh"
)

// keyed reports whether agents have the keys of a mesh, and the leader's state names them.
func keyed(m *mesh.Mesh, agents ...*mesh.Agent) bool {
	l := m.Leader()
	if l == nil {
		return false
	}
	named := l.View().MeshKeys()
	for _, a := range agents {
		set := a.Keys()
		if len(named) == 0 || len(set.Keys) != len(named) {
			return false
		}
		for _, k := range set.Keys {
			if !slices.Equal(named[k.Number], k.Print()) {
				return false
			}
		}
	}
	return true
}

// TestVotersHaveTheKeys follows the keys of a mesh: from its first leader to all voters, to an agent that replaces a dead
// voter, and to one that lost its keyring. Leaders that lost it hand over.
func TestVotersHaveTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Seed: 7, Verbose: testing.Verbose()})
		m.AwaitLeader()
		m.Until("the voters to have the keys", func() bool { return len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		for _, a := range m.Agents() {
			if !slices.Contains(m.Voters(), a) && len(a.Keys().Keys) > 0 {
				t.Errorf("%s does not vote and has keys", a.Name)
			}
		}

		dead := m.AwaitLeader()
		dead.Crash()
		m.Until("another voter in place of the dead one", func() bool {
			l := m.Leader()
			return l != nil && len(m.Voters()) == 3 && !slices.Contains(m.Voters(), dead)
		})
		if !keyed(m, m.Voters()...) {
			t.Error("the new voter has no keys")
		}

		poor := m.AwaitLeader()
		poor.Stop()
		poor.PutKeys(keyring.Set{})
		poor.Start()
		m.Until("the voter to have its keys again", func() bool { return keyed(m, poor) })

		// It leads before it has them.
		poor.Stop()
		poor.PutKeys(keyring.Set{})
		poor.Start()
		m.Until("its lead", func() bool {
			return m.Ask("POST", "/v1/operator/raft/transfer", map[string]any{"to": poor.ID}, nil) == http.StatusOK
		})
		// Only another leader can send them.
		m.Until("it to have its keys again", func() bool { return len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
	})
}

// TestForeignKeysAreRefused starts an agent with the keyring of another mesh. Its keys are replaced, and never those of the others.
func TestForeignKeysAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 8, Verbose: testing.Verbose()})
		m.AwaitLeader()
		m.Until("the voters to have the keys", func() bool { return len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		want := m.Leader().Keys()
		for _, a := range m.Voters() {
			a.Stop()
			a.PutKeys(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}})
			a.Start()
			m.Until("the keys of the mesh in the place of foreign ones", func() bool { return keyed(m, m.Voters()...) })
			time.Sleep(time.Second)
		}
		for _, a := range m.Voters() {
			if !slices.EqualFunc(a.Keys().Keys, want.Keys, keyring.Key.Same) {
				t.Errorf("%s has %v", a.Name, a.Keys().Keys)
			}
		}
	})
}
