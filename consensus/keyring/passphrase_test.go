package keyring

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const horse = "correct horse battery"

// cheap returns the store of a passphrase whose check takes no time.
func cheap(dir string) *Passphrase {
	p := WithPassphrase(dir)
	p.cost = cost{passes: 1, memory: 8, lanes: 1}
	return p
}

// unlocked unlocks a keyring, if it is locked.
func unlocked(t *testing.T, p *Passphrase, phrase string) *Passphrase {
	t.Helper()
	if _, err := p.Load(); errors.Is(err, ErrSealed) {
		if err := p.Unlock([]byte(phrase)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// phrased returns a keyring with keys and a passphrase.
func phrased(t *testing.T) (*Ring, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keyring")
	p := cheap(dir)
	if err := p.Change([]byte(horse)); err != nil {
		t.Fatal(err)
	}
	return ring(t, p, 1, 2), dir
}

func TestPassphrase(t *testing.T) {
	r, dir := phrased(t)
	data, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Set().Keys {
		if bytes.Contains(data, k.Secret[:]) || bytes.Contains(data, []byte(base64.StdEncoding.EncodeToString(k.Secret[:]))) {
			t.Error("the file has a key in the clear")
		}
	}
	p := WithPassphrase(dir)
	if _, err := Open(p); !errors.Is(err, ErrSealed) || !errors.Is(err, ErrLocked) {
		t.Error("while it is locked:", err)
	}
	for _, wrong := range []string{"", "correct horse", horse + " ", strings.Repeat("x", MaxPassphrase+1)} {
		if err := p.Unlock([]byte(wrong)); !errors.Is(err, ErrPassphrase) {
			t.Errorf("with %q: %v", wrong, err)
		}
		if _, err := p.Load(); !errors.Is(err, ErrSealed) {
			t.Error("after a wrong passphrase:", err)
		}
	}
	if err := p.Unlock([]byte(horse)); err != nil {
		t.Fatal(err)
	}
	again := ring(t, p)
	if !reflect.DeepEqual(again.Set(), r.Set()) {
		t.Error("another set after unlocking")
	}
	if err := again.Put(Set{Active: 3, Keys: []Key{NewKey(3)}}); err != nil {
		t.Fatal(err)
	}
	if got := ring(t, unlocked(t, WithPassphrase(dir), horse)).Set(); !reflect.DeepEqual(got, again.Set()) {
		t.Error("another set after a further key")
	}
	if err := p.Change([]byte("too short")); err == nil {
		t.Error("a short passphrase was taken")
	}
}

// TestPublicHalf saves keys in a keyring that has got its passphrase from another agent: nobody types it there.
func TestPublicHalf(t *testing.T) {
	leader, _ := phrased(t)
	dir := filepath.Join(t.TempDir(), "keyring")
	r := ring(t, WithPassphrase(dir))
	if err := r.Put(leader.Set()); !errors.Is(err, ErrNoPassphrase) {
		t.Error("without a passphrase:", err)
	}
	if err := r.Adopt("argon2id 1 8 1 AAAA AAAA"); err == nil {
		t.Error("half a half was adopted")
	}
	if err := r.Adopt(leader.PublicHalf()); err != nil {
		t.Fatal(err)
	}
	if err := r.Put(leader.Set()); err != nil {
		t.Fatal(err)
	}
	if err := r.Adopt(""); err != nil || r.PublicHalf() != leader.PublicHalf() {
		t.Error("another half:", err)
	}
	other, _ := phrased(t)
	if err := r.Adopt(other.PublicHalf()); err != nil || r.PublicHalf() != leader.PublicHalf() {
		t.Error("a keyring has another passphrase than the one that it was given first:", err)
	}
	if got := ring(t, unlocked(t, WithPassphrase(dir), horse)).Set(); !reflect.DeepEqual(got, leader.Set()) {
		t.Error("another set")
	}
	file := ring(t, empty(t))
	if err := file.Adopt(leader.PublicHalf()); err != nil || file.PublicHalf() != "" {
		t.Error("a keyring of the kind file has a passphrase:", err)
	}
}

// TestPassphraseWithoutKeys sets the passphrase of a keyring before it has keys. It is not locked then.
func TestPassphraseWithoutKeys(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keyring")
	p := cheap(dir)
	if err := errors.Join(p.Change([]byte(horse)), p.Save(Set{})); err != nil {
		t.Fatal(err)
	}
	r := ring(t, WithPassphrase(dir), 1)
	if _, err := WithPassphrase(dir).Load(); !errors.Is(err, ErrSealed) {
		t.Error(err)
	}
	if got := ring(t, unlocked(t, WithPassphrase(dir), horse)).Set(); !reflect.DeepEqual(got, r.Set()) {
		t.Error("another set")
	}
	if err := WithPassphrase(filepath.Join(dir, "none")).Unlock([]byte(horse)); !errors.Is(err, ErrNoPassphrase) {
		t.Error("without a file:", err)
	}
}

// TestDamagedPassphrase changes each byte of the file. No change stays unnoticed.
func TestDamagedPassphrase(t *testing.T) {
	_, dir := phrased(t)
	path := filepath.Join(dir, fileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(content []byte) error {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		p := WithPassphrase(dir)
		if err := p.Unlock([]byte(horse)); err != nil {
			return err
		}
		_, err := p.Load()
		return err
	}
	if err := try(data); err != nil {
		t.Fatal("as it was:", err)
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if try(bad) == nil {
			t.Errorf("byte %d was changed", i)
		}
	}
	for _, n := range []int{0, 10, 40, len(data) / 2, len(data) - 1} {
		if try(data[:n]) == nil {
			t.Errorf("cut after %d bytes", n)
		}
	}
}

func FuzzPublicHalf(f *testing.F) {
	h, _, err := newHead([]byte(horse), cost{passes: 1, memory: 8, lanes: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(h.text())
	f.Add("argon2id 4294967295 4294967295 300 AAAAAAAAAAAAAAAAAAAAAA== AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if h, err := parseHead(text); err == nil && (h.text() != text || !h.possible()) {
			t.Errorf("%q is read as %q", text, h.text())
		}
	})
}
