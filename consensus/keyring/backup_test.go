package keyring

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

// fast returns the recipient and the identity of a passphrase that cost little.
func fast(t testing.TB, passphrase string) (age.Recipient, age.Identity) {
	t.Helper()
	r, err1 := age.NewScryptRecipient(passphrase)
	i, err2 := age.NewScryptIdentity(passphrase)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	r.SetWorkFactor(4)
	return r, i
}

func newIdentity(t testing.TB) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// encrypted returns any content, encrypted as a backup is, but for the armor.
func encrypted(t testing.TB, content string, to age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to)
	if err == nil {
		_, err = io.WriteString(w, content)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestBackup exports a keyring and reads it as each of its recipients, as others, and after it was damaged.
func TestBackup(t *testing.T) {
	s := Set{Active: 3, Keys: []Key{NewKey(2), NewKey(3)}}
	one, two, other := newIdentity(t), newIdentity(t), newIdentity(t)
	phrase, says := fast(t, "correct horse")
	_, wrong := fast(t, "battery staple")
	export := func(s Set, to ...age.Recipient) []byte {
		t.Helper()
		var out bytes.Buffer
		if err := Export(&out, s, to...); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	both, secret := export(s, one.Recipient(), two.Recipient()), export(s, phrase)
	for _, k := range s.Keys {
		if bytes.Contains(both, k.Secret[:]) {
			t.Error("the backup has a key in the clear")
		}
	}
	altered := bytes.Clone(both)
	altered[len(altered)-60] ^= 1
	for _, c := range []struct {
		name string
		data []byte
		who  age.Identity
		want error
	}{
		{"the first recipient", both, one, nil},
		{"the second recipient", both, two, nil},
		{"another recipient", both, other, ErrNotForUs},
		{"a passphrase for a recipient's", both, says, ErrNotForUs},
		{"the passphrase", secret, says, nil},
		{"a wrong passphrase", secret, wrong, ErrNotForUs},
		{"an identity for a passphrase's", secret, one, ErrNotForUs},
		{"without armor", encrypted(t, string(encode(s)), one.Recipient()), one, nil},
		{"cut in its end", both[:len(both)-20], one, ErrNoBackup},
		{"cut in its middle", both[:len(both)/2], one, ErrNoBackup},
		{"cut in its header", both[:60], one, ErrNoBackup},
		{"altered", altered, one, ErrNoBackup},
		{"with more behind it", append(bytes.Clone(both), "more"...), one, ErrNoBackup},
		{"empty", nil, one, ErrNoBackup},
		{"a keyring's file", encode(s), one, ErrNoBackup},
		{"something else", encrypted(t, "something else", one.Recipient()), one, ErrNoBackup},
		{"an empty keyring", export(Set{}, one.Recipient()), one, ErrNoBackup},
		{"too much", encrypted(t, strings.Repeat("x", maxFile+1), one.Recipient()), one, ErrNoBackup},
	} {
		got, err := Import(bytes.NewReader(c.data), c.who)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || !reflect.DeepEqual(got, s)) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// The note of an export outlives the process, and is one of the folder's keyring.
func TestExported(t *testing.T) {
	for _, credential := range []string{"", strings.Repeat("c", minCredential)} {
		dir, kind, creds := filepath.Join(t.TempDir(), "keyring"), KindFile, ""
		if credential != "" {
			kind, creds = KindSystemd, t.TempDir()
			if err := os.WriteFile(filepath.Join(creds, Credential), []byte(credential), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := ring(t, Of(kind, dir, Outside{Credentials: creds}), 1)
		if e, err := r.Exported(); err != nil || e.Number != 0 {
			t.Errorf("%+v %v", e, err)
		}
		k, _ := r.Set().ActiveKey()
		want := Exported{Number: 1, Print: k.Print(), At: time.UnixMilli(1_700_000_000_000)}
		if err := NoteExport(dir, want); err != nil {
			t.Fatal(err)
		}
		if e, err := ring(t, Of(kind, dir, Outside{Credentials: creds})).Exported(); err != nil || !reflect.DeepEqual(e, want) {
			t.Errorf("%+v %v", e, err)
		}
		for _, damage := range []string{"", "1", "1 zz 7\n", "x ab 7\n"} {
			if err := os.WriteFile(filepath.Join(dir, exportFile), []byte(damage), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Exported(); err == nil {
				t.Errorf("%q was read", damage)
			}
		}
	}
}

// Sets with the same keys are joined, and those of different meshes are not.
func TestJoin(t *testing.T) {
	a, b, c, other := NewKey(1), NewKey(2), NewKey(3), NewKey(1)
	for name, x := range map[string]struct {
		have, add []Key
		active    uint32
		want      []Key
	}{
		"into nothing":    {nil, []Key{a, b}, 2, []Key{a, b}},
		"the same":        {[]Key{a, b}, []Key{a, b}, 2, []Key{a, b}},
		"newer keys":      {[]Key{a}, []Key{a, b}, 2, []Key{a, b}},
		"older keys":      {[]Key{b, c}, []Key{a, b}, 3, []Key{a, b, c}},
		"of another mesh": {[]Key{a, b}, []Key{other, b}, 0, nil},
	} {
		set := func(keys []Key) (s Set) {
			if s.Keys = keys; len(keys) > 0 {
				s.Active = keys[len(keys)-1].Number
			}
			return s
		}
		got, ok := set(x.have).Join(set(x.add))
		if ok != (x.want != nil) || got.Active != x.active || !reflect.DeepEqual(got.Keys, x.want) {
			t.Errorf("%s: %v %v, active %d", name, ok, got.Keys, got.Active)
		}
		if ok && (!got.Contains(set(x.have)) || !got.Contains(set(x.add)) || got.Contains(set([]Key{other}))) {
			t.Errorf("%s: %v does not contain both", name, got.Keys)
		}
	}
}

func FuzzImport(f *testing.F) {
	me := newIdentity(f)
	var out bytes.Buffer
	if err := Export(&out, Set{Active: 1, Keys: []Key{NewKey(1)}}, me.Recipient()); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add(out.Bytes()[:out.Len()/2])
	f.Add(encrypted(f, "x", me.Recipient()))
	f.Add(encode(Set{}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Import(bytes.NewReader(data), me); err != nil && !errors.Is(err, ErrNotForUs) && !errors.Is(err, ErrNoBackup) {
			t.Error(err)
		}
	})
}
