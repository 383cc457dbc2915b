package mesh_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/mesh"
)

const canary = "canary-in-the-coal-mine"

// hunt returns where the agents of a mesh have a word.
func hunt(m *mesh.Mesh, word string) (found []string) {
	for _, a := range m.Agents() {
		found = append(found, a.Hunt(word)...)
	}
	return found
}

// runWith runs the program with a secret in a variable of its first step. It reports whether the step got the value.
func runWith(m *mesh.Mesh, value string) bool {
	m.T.Helper()
	var got atomic.Bool
	m.World.SetTrouble(func(t *pb.Task, _ int) mesh.Trouble {
		if t.Service == "map" && strings.Contains(string(t.Input), value) {
			got.Store(true)
		}
		return mesh.Well
	})
	id := m.BeginRun()
	m.Until("the end of the run", func() bool { r := m.Run(id); return r != nil && r.Over() })
	if r := m.Run(id); r.Status != profile.Completed {
		m.T.Errorf("the run ended as %s: %s", r.Status, r.Message)
	}
	return got.Load()
}

// TestSecretsAreEncrypted writes secrets, has programs use them under several leaders, and looks for their values in everything
// that agents keep.
func TestSecretsAreEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 11, Verbose: testing.Verbose()})
		m.AwaitLeader()
		m.DefineRuns(profile.Profile{})
		put := func(value string) {
			m.Until("the secret to be written", func() bool {
				return m.Ask("PUT", "/v1/secrets/key", map[string]any{"value": value, "usableBy": []string{"*"}}, nil) == http.StatusOK
			})
		}
		m.Ask("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{
			{Name: "map", Command: []string{"true"}, Env: map[string]string{"KEY": "${secure(key)}"}},
		}}, nil)
		put(canary + "-1")
		if !runWith(m, canary+"-1") {
			t.Error("the program did not get the secret")
		}
		killed := m.AwaitLeader()
		killed.Crash()
		m.Until("another leader", func() bool { l := m.Leader(); return l != nil && l != killed })
		if !runWith(m, canary+"-1") {
			t.Error("the program did not get the secret from another leader")
		}
		put(canary + "-2")
		if !runWith(m, canary+"-2") {
			t.Error("the program did not get the changed secret")
		}
		killed.Start()
		m.Until("all to be back", func() bool { return len(m.Voters()) == 3 })
		if found := hunt(m, canary); len(found) > 0 {
			t.Errorf("the value of a secret is in %v", found)
		}
		if len(hunt(m, "KEY")) == 0 {
			t.Error("the hunt finds nothing at all")
		}
	})
}

// TestClearSecretsAreEncrypted has secrets from a build that kept them in the clear. The leader encrypts them, and no voter has
// their values then.
func TestClearSecretsAreEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 12, Verbose: testing.Verbose()})
		m.AwaitLeader()
		m.DefineRuns(profile.Profile{})
		m.Ask("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{
			{Name: "map", Command: []string{"true"}, Env: map[string]string{"KEY": "${secure(key)}"}},
		}}, nil)
		mesh.PutClearSecret(m, "default", "key", canary)
		if !runWith(m, canary) {
			t.Error("the program did not get a secret that is in the clear")
		}
		if len(hunt(m, canary)) == 0 {
			t.Error("the secret is not in the clear")
		}
		m.Until("no value in the clear", func() bool { return len(hunt(m, canary)) == 0 })
		if !runWith(m, canary) {
			t.Error("the program did not get the secret")
		}
		if n := len(m.Voters()); n != 3 || !slices.Contains(m.Voters(), m.Leader()) {
			t.Error("voters:", n)
		}
	})
}

// TestRestoreNeedsTheKeyring restores the state of a mesh in another one. The secrets are there once one voter has the keys.
func TestRestoreNeedsTheKeyring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := mesh.New(t, mesh.Options{Agents: 3, Seed: 13, Verbose: testing.Verbose()})
		lost.AwaitLeader()
		lost.DefineRuns(profile.Profile{})
		lost.Ask("PUT", "/v1/programs/job", profile.Program{Steps: []profile.Step{
			{Name: "map", Command: []string{"true"}, Env: map[string]string{"KEY": "${secure(key)}"}},
		}}, nil)
		lost.Ask("PUT", "/v1/secrets/key", map[string]any{"value": canary, "usableBy": []string{"*"}}, nil)
		saved, keys := lost.SaveState(), lost.Leader().Keys()
		for _, a := range lost.Agents() {
			a.Crash()
		}

		m := mesh.New(t, mesh.Options{Agents: 3, Seed: 14, Verbose: testing.Verbose()})
		m.AwaitLeader()
		m.Until("its own keys", func() bool { return len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		m.Until("the state to be restored", func() bool {
			code, _ := m.AwaitLeader().Call("POST", "/v1/operator/snapshot?unsigned=true&resume=true", saved, "")
			return code < 300
		})
		if code, body := m.AwaitLeader().Call("PUT", "/v1/secrets/other", []byte(`{"value": "x"}`), ""); code != http.StatusConflict {
			t.Errorf("a secret was encrypted with a key of another mesh: %d %s", code, body)
		}
		for _, a := range m.Agents() {
			a.Stop()
			a.PutKeys(keyring.Set{})
		}
		m.Agents()[0].PutKeys(keys)
		for _, a := range m.Agents() {
			a.Start()
		}
		m.Until("all to have the keys", func() bool { return len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		if !runWith(m, canary) {
			t.Error("the program did not get the secret")
		}
	})
}
