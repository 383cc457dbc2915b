package identity

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// lock is a keyring of one key, which it names in what it encrypts.
type lock byte

func (l lock) Seal(aad, plain []byte) []byte {
	out := append([]byte{byte(l)}, aad...)
	for _, b := range plain {
		out = append(out, b^byte(l))
	}
	return out
}

func (l lock) Open(aad, sealed []byte) ([]byte, error) {
	body, ok := bytes.CutPrefix(sealed, append([]byte{byte(l)}, aad...))
	if !ok {
		return nil, errors.New("another key")
	}
	for i := range body {
		body[i] ^= byte(l)
	}
	return body, nil
}

// hasInClear reports whether a file has a key, in any of the forms in which it may be written.
func hasInClear(t *testing.T, path string, key []byte) bool {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(raw, key) || bytes.Contains(raw, []byte(base64.StdEncoding.EncodeToString(key)))
}

// TestSealedMembership encrypts what is secret of a voter's identity. Its keyring opens it, and no other.
func TestSealedMembership(t *testing.T) {
	f := found(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "identity")
	s := f.admit(dir, twoID, Voter).Store()
	if err := s.SealWith(); err != nil || !hasInClear(t, path, s.Membership().Key) {
		t.Error("a voter without a keyring:", err)
	}
	if err := s.SealWith(lock(1), lock(2)); err != nil {
		t.Fatal(err)
	}
	ring := Ring{Version: 7, Keys: [][]byte{bytes.Repeat([]byte("new"), 12)[:gossipKeySize], bytes.Repeat([]byte("old"), 12)[:gossipKeySize]}}
	if err := s.Change(func(m *Membership) { _ = m.Follow(ring) }); err != nil || !reflect.DeepEqual(s.Membership().GossipRing(), ring) {
		t.Fatal("the keys of a rotation of gossip:", err)
	}
	m := s.Membership()
	for _, key := range [][]byte{m.Key, m.Gossip, ring.Keys[0], ring.Keys[1]} {
		if hasInClear(t, path, key) {
			t.Error("the file has a key in the clear")
		}
	}
	load := func() *Membership {
		t.Helper()
		m, err := LoadMembership(dir)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	sealed := load()
	if sealed.Mesh != m.Mesh || len(sealed.Bundle()) == 0 || sealed.Key != nil || sealed.Certificate == nil {
		t.Error("what is not secret cannot be read, or what is secret can")
	}
	if _, err := Open(dir, twoID, nil, Lifetime, sealed); !errors.Is(err, ErrSealed) {
		t.Error("opened without the keyring:", err)
	}
	if err := sealed.Unseal(lock(3)); !errors.Is(err, ErrSealed) || sealed.Key != nil {
		t.Error("opened with another keyring:", err)
	}
	for _, l := range []lock{1, 2} {
		got := load()
		if err := got.Unseal(l); err != nil {
			t.Fatal(err)
		}
		want := *m
		if want.unsealed = true; !reflect.DeepEqual(got, &want) {
			t.Errorf("%+v instead of %+v", got, want)
		}
		if err := got.Unseal(l); err != nil {
			t.Error("what is open already:", err)
		}
	}
	moved := load()
	moved.Mesh = "another mesh"
	if err := moved.Unseal(lock(1)); !errors.Is(err, ErrSealed) {
		t.Error("opened for another mesh:", err)
	}
	// A renewal has a new key, which is encrypted, too.
	if err := s.SealWith(lock(2)); err != nil {
		t.Fatal(err)
	}
	next := mustRenewal(t, s)
	if hasInClear(t, path, s.Membership().NextKey) {
		t.Error("the file has the next key in the clear")
	}
	if err := s.Renewed(f.sign(twoID, Voter, next.Request)); err != nil {
		t.Fatal(err)
	}
	if hasInClear(t, path, s.Membership().Key) {
		t.Error("the file has the new key in the clear")
	}
	if again := load(); again.Unseal(lock(1)) == nil || again.Unseal(lock(2)) != nil {
		t.Error("the new key is encrypted with another key")
	}
}

// TestWorkersAreNotSealed leaves the identity of a worker as it is: it has no keyring that would open it.
func TestWorkersAreNotSealed(t *testing.T) {
	dir := t.TempDir()
	s := found(t).admit(dir, twoID, Worker).Store()
	if err := s.SealWith(lock(1)); err != nil {
		t.Fatal(err)
	}
	if m, err := LoadMembership(dir); err != nil || !bytes.Equal(m.Key, s.Membership().Key) {
		t.Error("the worker cannot read its identity:", err)
	}
}

// TestFirstAgentIsSealed encrypts the CA's key, which the first agent of a mesh has until the state has it.
func TestFirstAgentIsSealed(t *testing.T) {
	dir := t.TempDir()
	m, _, err := Found()
	if err == nil {
		err = m.Save(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	i, err := Open(dir, oneID, nil, Lifetime, m)
	if err == nil {
		err = i.Store().SealWith(lock(1))
	}
	if err != nil || hasInClear(t, filepath.Join(dir, "identity"), m.Birth.CAKey) {
		t.Fatal("the file has the CA's key in the clear:", err)
	}
	if m, err = LoadMembership(dir); err == nil {
		err = m.Unseal(lock(1))
	}
	if err != nil || m.Birth == nil || len(m.Birth.CAKey) == 0 {
		t.Error("the CA's key is lost:", err)
	}
}
