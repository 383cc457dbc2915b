package mesh_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/signing"
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
		signer := old.AwaitLeader().View().SigningKeys()[0]
		for _, a := range old.Agents() {
			a.Crash()
		}

		refused := func(m *mesh.Mesh, what string, snapshot []byte, query, why string) {
			t.Helper()
			code, body := m.AwaitLeader().Call("POST", "/v1/operator/snapshot"+query, snapshot, "")
			if code != http.StatusUnprocessableEntity || !strings.Contains(string(body), why) {
				t.Errorf("%s: %d %s", what, code, body)
			}
		}
		other := founded(t, 22, keyring.Set{})
		refused(other, "a mesh with other keys", saved, "", "whose keyring this mesh does not have: begin a new mesh on a host that has the "+
			"keyring with key 1 (fingerprint")
		if code := other.Ask("GET", "/v1/programs/job", nil, nil); code != http.StatusNotFound {
			t.Errorf("the refused snapshot has left something: %d", code)
		}
		for _, a := range other.Agents() {
			a.Crash()
		}

		m := founded(t, 23, keys)
		own := m.AwaitLeader().View().MeshIdentity().Mesh
		refused(m, "a snapshot that was cut", saved[:len(saved)-100], "", "damaged")
		refused(m, "an altered snapshot", altered(t, saved, func(s *archive.Signature) {}), "", "altered after it was signed")
		refused(m, "an unsigned snapshot", altered(t, saved, nil), "", "not signed")
		refused(m, "a snapshot that a stranger has signed", altered(t, saved, strangers), "", "whose keyring this mesh does not have")
		if code := m.Ask("GET", "/v1/programs/job", nil, nil); code != http.StatusNotFound {
			t.Errorf("the refused snapshots have left something: %d", code)
		}
		// The public keys of a mesh are in all its snapshots, and so a stranger can name them.
		before := m.SaveState()
		known := m.AwaitLeader().View().SigningKeys()[0]
		refused(m, "a stranger's key before that of the mesh", altered(t, before, func(s *archive.Signature) {
			strangers(s)
			s.Keys[0].Number, s.Key = 2, 2
			next, err := signing.PublicKey{Number: 3, Key: known.Key}.SignNext(make([]byte, 32))
			if err != nil {
				t.Fatal(err)
			}
			s.Keys = append(s.Keys, next)
		}), "", "whose keyring this mesh does not have")
		refused(m, "a stranger's key with the number 0 before that of the mesh", altered(t, before, func(s *archive.Signature) {
			strangers(s)
			next, err := known.SignNext(make([]byte, 32))
			if err != nil {
				t.Fatal(err)
			}
			s.Keys[0].Number, s.Key = 0, 0
			s.Keys = append(s.Keys, next)
		}), "", "numbered from 1")
		m.RestoreState(saved, "?file=old.snap")
		m.Until("three voters with keys", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		if got := m.AwaitLeader().View().MeshIdentity().Mesh; got != own {
			t.Errorf("the mesh is %s, and was %s", got, own)
		}
		if !m.AwaitLeader().View().SigningKeys().Has(signer) {
			t.Error("the mesh has lost the key that has signed its audit log")
		}
		v := m.AwaitLeader().View()
		if rep := v.Audit().Verify(v.SigningKeys()); !rep.OK || rep.Heads == 0 {
			t.Errorf("the audit log: %+v", rep)
		}
		if h := v.Hold(); h == nil || h.File != "old.snap" {
			t.Errorf("the mesh is held for %+v", h)
		}
		m.Must("POST", "/v1/operator/resume", nil, nil)
		if !runWith(m, canary) {
			t.Error("the program did not get the secret")
		}
	})
}

// altered returns a snapshot with another time in its description, with the signature that sign changes, or without one if sign is nil.
func altered(t *testing.T, saved []byte, sign func(*archive.Signature)) []byte {
	var data, out bytes.Buffer
	meta, sig, err := archive.ReadSigned(bytes.NewReader(saved), &data, 0)
	if err != nil || sig == nil {
		t.Fatal(sig, err)
	}
	meta.TakenAt = meta.TakenAt.Add(time.Hour)
	if sign == nil {
		err = archive.Write(&out, meta, &data)
	} else {
		err = archive.WriteSigned(&out, meta, &data, func(sums []byte) (*archive.Signature, error) {
			sign(sig)
			if len(sig.Signature) > 0 {
				return sig, nil
			}
			content, err := sig.Content(sums)
			if err == nil {
				sig.Signature, err = signing.Sign(signing.Snapshot, make([]byte, 32), content)
			}
			return sig, err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// strangers makes a signature that of somebody without the mesh's keys. Its proof is of the true snapshot.
func strangers(s *archive.Signature) {
	s.Keys, s.Key, s.Signature = signing.Chain{signing.Public(1, make([]byte, 32))}, 1, nil
}
