package admission_test

import (
	"log/slog"
	"testing"

	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// TestProtectedIdentity starts a voter of a mesh that is upgraded, with keys. Its file stays as the older build reads it until the ring
// begins. After that it is encrypted, and stays so over starts, at which the agent does not know the level of the mesh yet.
func TestProtectedIdentity(t *testing.T) {
	const id = "00000000-0000-4000-8000-000000000001"
	dir, keys := t.TempDir(), &memkeys.Store{}
	founded, _, err := identity.Found()
	if err != nil {
		t.Fatal(err)
	}
	m := founded
	start := func() *keyring.Ring {
		t.Helper()
		ring, err := keyring.Open(keys)
		if err == nil {
			err = m.Unseal(ring)
		}
		if err == nil {
			_, err = admission.Open(&config.Config{DataDir: dir}, &admission.Credentials{Membership: m}, ring, id, slog.New(slog.DiscardHandler))
		}
		if err != nil {
			t.Fatal(err)
		}
		return ring
	}
	encrypted := func() bool {
		t.Helper()
		if m, err = identity.LoadMembership(dir); err != nil {
			t.Fatal(err)
		}
		return len(m.Sealed) > 0
	}
	ring := start()
	for _, key := range []keyring.Key{keyring.NewKey(1), keyring.NewKey(1)} {
		if err := ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{key}}); err != nil || encrypted() {
			t.Error("the older build cannot read it:", err)
		}
	}
	if ring = start(); encrypted() || ring.Begun() {
		t.Error("the older build cannot read it after a start")
	}
	if err := ring.Begin(); err != nil || !encrypted() {
		t.Error("it is in the clear at the new level:", err)
	}
	if ring = start(); !encrypted() || !ring.Begun() {
		t.Error("after a start at the new level")
	}
	if err := ring.Put(keyring.Set{Active: 2, Keys: []keyring.Key{keyring.NewKey(2)}}); err != nil || !encrypted() {
		t.Error("after a rotation:", err)
	}
	if err := ring.Drop(2, 1); err != nil || !encrypted() || len(m.Sealed) != 1 {
		t.Error("without the old key:", err)
	}
	start()
}
