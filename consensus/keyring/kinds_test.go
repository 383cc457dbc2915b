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

// credential returns a folder with the credential of a unit.
func credential(t *testing.T, size int) string {
	t.Helper()
	dir, secret := t.TempDir(), make([]byte, size)
	rand.Read(secret)
	if err := os.WriteFile(filepath.Join(dir, Credential), secret, 0o400); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSystemdCreds(t *testing.T) {
	dir, creds := filepath.Join(t.TempDir(), "keyring"), credential(t, 32)
	r := ring(t, Of(KindSystemd, dir, creds), 1, 2)
	if again := ring(t, Of(KindSystemd, dir, creds)); !reflect.DeepEqual(again.Set(), r.Set()) {
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
		"no credentials":    {Of(KindSystemd, dir, ""), ErrLocked},
		"no credential":     {Of(KindSystemd, dir, t.TempDir()), ErrLocked},
		"another":           {Of(KindSystemd, dir, credential(t, 32)), ErrLocked},
		"a short one":       {Of(KindSystemd, dir, credential(t, 31)), ErrLocked},
		"before it is made": {Of(KindSystemd, filepath.Join(t.TempDir(), "none"), ""), ErrLocked},
		"read as a file":    {InDir(dir), ErrKind},
		"empty":             {Of(KindSystemd, filepath.Join(t.TempDir(), "none"), creds), nil},
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
		if _, err := Open(Of(KindSystemd, dir, creds)); err == nil {
			t.Errorf("byte %d was changed", i)
		}
	}
}

func TestConvert(t *testing.T) {
	dir, creds := filepath.Join(t.TempDir(), "keyring"), credential(t, 64)
	if err := Convert(dir, KindSystemd, creds); !errors.Is(err, fs.ErrNotExist) {
		t.Error("without a keyring:", err)
	}
	r := ring(t, InDir(dir), 1, 2)
	if err := Convert(dir, KindSystemd, ""); !errors.Is(err, ErrLocked) {
		t.Error("without the credential:", err)
	}
	for _, kind := range []string{KindSystemd, KindSystemd, KindFile} {
		if err := Convert(dir, kind, creds); err != nil {
			t.Fatal(err)
		}
		if got, err := KindOf(dir); got != kind || err != nil {
			t.Error(got, err)
		}
		if again := ring(t, Of(kind, dir, creds)); !reflect.DeepEqual(again.Set(), r.Set()) {
			t.Error("another set after converting to", kind)
		}
	}
}
