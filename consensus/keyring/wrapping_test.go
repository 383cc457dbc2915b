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

// wrapper is a service that encrypts by reversing, and may have a fault.
type wrapper struct {
	wrap, unwrap error
	answer       string // of Wrap, in place of the right one
	secret       []byte // of Unwrap, in place of the right one
	calls        int
}

func (w *wrapper) Wrap(secret []byte) (string, error) {
	w.calls++
	if w.answer != "" {
		return w.answer, w.wrap
	}
	return "test:v1:" + base64.StdEncoding.EncodeToString(reversed(secret)), w.wrap
}

func (w *wrapper) Unwrap(wrapped string) ([]byte, error) {
	w.calls++
	if w.secret != nil {
		return w.secret, w.unwrap
	}
	text, ok := strings.CutPrefix(wrapped, "test:v1:")
	secret, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil, errors.New("not a word of this service")
	}
	return reversed(secret), w.unwrap
}

func reversed(b []byte) []byte {
	out := make([]byte, len(b))
	for i := range b {
		out[len(b)-1-i] = b[i]
	}
	return out
}

func TestWrapping(t *testing.T) {
	for _, kind := range []string{KindTransit, KindProgram} {
		t.Run(kind, func(t *testing.T) { wraps(t, kind) })
	}
}

func wraps(t *testing.T, kind string) {
	dir, service := filepath.Join(t.TempDir(), "keyring"), &wrapper{}
	at := func(w Wrapper) Store { return Of(kind, dir, Outside{Wrapper: w}) }
	r := ring(t, at(service), 1, 2)
	calls := service.calls
	if err := r.Put(Set{Active: 3, Keys: []Key{NewKey(3)}}); err != nil || service.calls != calls {
		t.Error("a keyring in use needs the service:", err)
	}
	if again := ring(t, at(service)); !reflect.DeepEqual(again.Set(), r.Set()) {
		t.Error("another set after reopening")
	}
	data, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Set().Keys {
		if bytes.Contains(data, []byte(base64.StdEncoding.EncodeToString(k.Secret[:]))) {
			t.Error("the file has a key in the clear")
		}
	}
	for name, x := range map[string]struct {
		service Wrapper
		want    error
	}{
		"away":        {&wrapper{unwrap: ErrAway}, ErrAway},
		"another key": {&wrapper{secret: make([]byte, Size)}, ErrLocked},
		"half a key":  {&wrapper{secret: make([]byte, Size/2)}, ErrLocked},
		"refused":     {&wrapper{unwrap: errors.New("no")}, ErrLocked},
	} {
		if _, err := Open(at(x.service)); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(at(nil)); err == nil || !strings.Contains(err.Error(), "keyring."+kind) {
		t.Error("without settings:", err)
	}
	other := map[string]string{KindTransit: KindProgram, KindProgram: KindTransit}[kind]
	if _, err := Open(Of(other, dir, Outside{Wrapper: service})); !errors.Is(err, ErrKind) {
		t.Error("as the other kind:", err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileName), bytes.Replace(data, []byte(kind), []byte(other), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Of(other, dir, Outside{Wrapper: service})); err == nil || errors.Is(err, ErrKind) {
		t.Error("with the name of the other kind:", err)
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1
		if err := os.WriteFile(filepath.Join(dir, fileName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(at(service)); err == nil {
			t.Errorf("byte %d was changed", i)
		}
	}
}

// TestWrappingBeforeKeys opens a keyring that has no keys yet. It must have what it needs to store them.
func TestWrappingBeforeKeys(t *testing.T) {
	for name, service := range map[string]*wrapper{
		"may not encrypt": {wrap: ErrAway}, "may not decrypt": {unwrap: ErrAway}, "another key": {secret: make([]byte, Size)},
		"two words": {answer: "two words"}, "two lines": {answer: "a\nb"}, "too long": {answer: strings.Repeat("x", maxWrapped+1)},
	} {
		dir := filepath.Join(t.TempDir(), "keyring")
		if _, err := Open(Of(KindTransit, dir, Outside{Wrapper: service})); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
}
