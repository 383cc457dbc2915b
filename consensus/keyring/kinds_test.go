package keyring

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// credentialDir returns a folder with the credential of a unit.
func credentialDir(t *testing.T, size int) string {
	t.Helper()
	dir, secret := t.TempDir(), make([]byte, size)
	rand.Read(secret)
	if err := os.WriteFile(filepath.Join(dir, Credential), secret, 0o400); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSystemdCreds(t *testing.T) {
	dir, creds := filepath.Join(t.TempDir(), "keyring"), credentialDir(t, 32)
	r := ring(t, Of(KindSystemd, dir, Outside{Credentials: creds}), 1, 2)
	if again := ring(t, Of(KindSystemd, dir, Outside{Credentials: creds})); !reflect.DeepEqual(again.Set(), r.Set()) {
		t.Error("another set after reopening")
	}
	path := filepath.Join(dir, fileName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(encode(r.Set()), []byte("\n")) {
		if len(line) > 10 && bytes.Contains(data, line) {
			t.Errorf("the file has %q", line)
		}
	}
	for name, x := range map[string]struct {
		store Store
		want  error
	}{
		"no credentials":    {Of(KindSystemd, dir, Outside{Credentials: ""}), ErrLocked},
		"no credential":     {Of(KindSystemd, dir, Outside{Credentials: t.TempDir()}), ErrLocked},
		"another":           {Of(KindSystemd, dir, Outside{Credentials: credentialDir(t, 32)}), ErrLocked},
		"a short one":       {Of(KindSystemd, dir, Outside{Credentials: credentialDir(t, 31)}), ErrLocked},
		"before it is made": {Of(KindSystemd, filepath.Join(t.TempDir(), "none"), Outside{Credentials: ""}), ErrLocked},
		"read as a file":    {InDir(dir), ErrKind},
		"empty":             {Of(KindSystemd, filepath.Join(t.TempDir(), "none"), Outside{Credentials: creds}), nil},
	} {
		if _, err := Open(x.store); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Of(KindSystemd, dir, Outside{Credentials: creds})); err == nil {
			t.Errorf("byte %d was changed", i)
		}
	}
}

// TestConvert converts a keyring to each kind and back. The keys are the same.
func TestConvert(t *testing.T) {
	dir, outside := filepath.Join(t.TempDir(), "keyring"), Outside{Credentials: credentialDir(t, 64), Wrapper: &wrapper{}}
	if _, err := KindOf(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("without a keyring:", err)
	}
	r := ring(t, InDir(dir), 1, 2)
	if err := Convert(InDir(dir), Of(KindSystemd, dir, Outside{})); !errors.Is(err, ErrLocked) {
		t.Error("without the credential:", err)
	}
	if err := Convert(InDir(dir), WithPassphrase(dir)); !errors.Is(err, ErrNoPassphrase) {
		t.Error("without a passphrase:", err)
	}
	store := func(kind string) Store {
		if kind == KindPassphrase {
			return unlocked(t, cheap(dir), "correct horse battery")
		}
		return Of(kind, dir, outside)
	}
	from := KindFile
	for _, to := range []string{KindSystemd, KindSystemd, KindPassphrase, KindFile, KindTransit, KindPassphrase, KindTransit, KindProgram, KindFile} {
		into := store(to)
		if p, ok := into.(*Passphrase); ok {
			if err := p.Change([]byte("correct horse battery")); err != nil {
				t.Fatal(err)
			}
		}
		if err := Convert(store(from), into); err != nil {
			t.Fatal(from, to, err)
		}
		if got, err := KindOf(dir); got != to || err != nil {
			t.Error(got, err)
		}
		if again := ring(t, store(to)); !reflect.DeepEqual(again.Set(), r.Set()) {
			t.Error("another set after converting to", to)
		}
		from = to
	}
}
