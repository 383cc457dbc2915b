package mesh_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/identity"
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

// TestIdentitiesAreSealed follows the identities of voters through a rotation of the keys that encrypt them, with a leader that dies. At each
// start, the keyring of an agent opens its identity.
func TestIdentitiesAreSealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := founded(t, 43, keyring.Set{})
		sealed := func() bool {
			return !slices.ContainsFunc(m.Voters(), func(a *mesh.Agent) bool { return !a.Sealed() })
		}
		m.Until("the voters' identities to be encrypted", sealed)
		for _, a := range m.Agents() {
			if !slices.Contains(m.Voters(), a) && a.Sealed() {
				t.Errorf("%s does not vote, and its identity is encrypted", a.Name)
			}
		}
		m.Must("POST", "/v1/operator/rotations", api.NewRotation{Kind: roster.KindKeyring, Full: true}, nil)
		m.Within(time.Minute, time.Millisecond, "the old key to be erased", func() bool { return phase(m) == roster.RotationRetire })
		dead := m.AwaitLeader()
		dead.Crash()
		m.AwaitLeader()
		dead.Start()
		m.Until("the end of the rotation", func() bool { return phase(m) == roster.RotationDone })
		voters := m.Voters()
		for _, a := range voters {
			if n := len(a.Keys().Keys); n != 1 || !a.Sealed() || a.Membership().Key == nil {
				t.Errorf("%s has %d keys", a.Name, n)
			}
			a.Stop()
			a.Start()
		}
		m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })

		// A voter without its keyring is nobody. The keys of another one open its identity.
		poor := voters[0]
		poor.Stop()
		keys := poor.Keys()
		poor.PutKeys(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}})
		if err := poor.Opens(); !errors.Is(err, identity.ErrSealed) {
			t.Error("with another keyring:", err)
		}
		poor.PutKeys(keys)
		poor.Start()
		m.Until("it to be back", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 })
	})
}
