package mesh_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/testing/mesh"
)

// founded returns a mesh whose agents have certificates, once three of them vote and have the keys. Its first agent begins with a
// keyring, which may be empty.
func founded(t *testing.T, seed uint64, keys keyring.Set) *mesh.Mesh {
	m := mesh.New(t, mesh.Options{Identity: true, Seed: seed, Keys: keys, Verbose: testing.Verbose()})
	m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
	return m
}

// When no mesh is left, a new one that begins with the copy of the old keyring restores a snapshot and uses its secrets. Its agents and
// its CA are its own, and agents join still. A new mesh with keys of its own refuses the snapshot, and stays as it is.
func TestDrill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := founded(t, 21, keyring.Set{})
		old.DefineRuns(profile.Profile{})
		old.Must("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{
			{Name: "map", Command: []string{"true"}, Env: map[string]string{"KEY": "${secure(key)}"}},
		}}, nil)
		old.Must("PUT", "/v1/secrets/key", map[string]any{"value": canary, "usableBy": []string{"*"}}, nil)
		saved, keys := old.SaveState(), old.AwaitLeader().Keys()
		for _, a := range old.Agents() {
			a.Crash()
		}

		other := founded(t, 22, keyring.Set{})
		if code, body := other.AwaitLeader().Call("POST", "/v1/operator/snapshot", saved, ""); code != http.StatusUnprocessableEntity {
			t.Errorf("a mesh with other keys restores the snapshot: %d %s", code, body)
		}
		if code := other.Ask("GET", "/v1/programs/job", nil, nil); code != http.StatusNotFound {
			t.Errorf("the refused snapshot has left something: %d", code)
		}
		for _, a := range other.Agents() {
			a.Crash()
		}

		m := founded(t, 23, keys)
		own := m.AwaitLeader().View().MeshIdentity().Mesh
		m.RestoreState(saved)
		m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		if got := m.AwaitLeader().View().MeshIdentity().Mesh; got != own {
			t.Errorf("the mesh is %s, and was %s", got, own)
		}
		if !runWith(m, canary) {
			t.Error("the program did not get the secret")
		}
	})
}
