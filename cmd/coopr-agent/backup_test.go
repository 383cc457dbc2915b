package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

// TestKeyringBackup exports a keyring and imports it at other agents.
func TestKeyringBackup(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) string {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	me, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	agent := func(name string, keys ...keyring.Key) string {
		t.Helper()
		if len(keys) > 0 {
			set := keyring.Set{Active: keys[len(keys)-1].Number, Keys: keys}
			if err := keyring.InDir(at(name) + "-keyring").Save(set); err != nil {
				t.Fatal(err)
			}
		}
		return at(name)
	}
	one, two := keyring.NewKey(1), keyring.NewKey(2)
	voter, busy := agent("voter", one, two), agent("busy")
	if err := os.MkdirAll(busy, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := identity.LockDir(busy)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	key, stranger := write("key", "# mine\n"+me.String()+"\n"), write("stranger", other.String()+"\n")
	phrase, wrong, long := write("phrase", "correct horse\n"), write("wrong", "battery staple\n"), write("long", "two\nlines\n")
	age1 := me.Recipient().String()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"an export to nowhere", []string{"export", "--data-dir", voter, "--recipient", age1}, 2, "--to"},
		{"an export for nobody", []string{"export", "--data-dir", voter, "--to", at("a.age")}, 2, "--recipient"},
		{"an export for both", []string{"export", "--data-dir", voter, "--to", at("a.age"), "--recipient", age1, "--passphrase-file", phrase}, 2,
			"not both"},
		{"an export for a word", []string{"export", "--data-dir", voter, "--to", at("a.age"), "--recipient", "ann"}, 2, "age1"},
		{"an export for an identity", []string{"export", "--data-dir", voter, "--to", at("a.age"), "--recipient", me.String()}, 2, "age1"},
		{"an export of nothing", []string{"export", "--data-dir", at("none"), "--to", at("a.age"), "--recipient", age1}, 1, "no keys"},
		{"an export for a long passphrase", []string{"export", "--data-dir", voter, "--to", at("a.age"), "--passphrase-file", long}, 1, "one line"},
		{"an export", []string{"export", "--data-dir", voter, "--to", at("a.age"), "--recipient", age1}, 0, "key 2"},
		{"an export over another", []string{"export", "--data-dir", voter, "--to", at("a.age"), "--recipient", age1}, 1, "there already"},
		{"an export below a file", []string{"export", "--data-dir", voter, "--to", at("a.age/b"), "--recipient", age1}, 1, "not a directory"},
		{"an export for a passphrase", []string{"export", "--data-dir", voter, "--to", at("b.age"), "--passphrase-file", phrase}, 0, "key 2"},

		{"an import of nothing", []string{"import", "--data-dir", at("new"), "--identity", key}, 2, "FILE"},
		{"an import by nobody", []string{"import", at("a.age"), "--data-dir", at("new")}, 2, "--identity"},
		{"an import of what is not there", []string{"import", at("c.age"), "--data-dir", at("new"), "--identity", key}, 1, "c.age"},
		{"an import by a stranger", []string{"import", at("a.age"), "--data-dir", at("new"), "--identity", stranger}, 1, "cannot be decrypted"},
		{"an import with a wrong passphrase", []string{"import", at("b.age"), "--data-dir", at("new"), "--passphrase-file", wrong}, 1,
			"cannot be decrypted"},
		{"an import by no identity", []string{"import", at("a.age"), "--data-dir", at("new"), "--identity", phrase}, 1, "AGE-SECRET-KEY-"},
		{"an import of another file", []string{"import", phrase, "--data-dir", at("new"), "--identity", key}, 1, "no whole backup"},
		{"an import to an agent that runs", []string{"import", at("a.age"), "--data-dir", busy, "--identity", key}, 1, "in use"},
		{"an import over other keys", []string{"import", at("a.age"), "--data-dir", agent("foreign", keyring.NewKey(1)), "--identity", key}, 1,
			"--force"},
		{"an import before a newer key", []string{"import", at("a.age"), "--data-dir", agent("newer", one, two, keyring.NewKey(3)), "--identity", key},
			0, "key 3"},
		{"an import", []string{"import", at("a.age"), "--data-dir", at("new"), "--identity", key}, 0, "key 2"},
		{"an import again", []string{"import", at("a.age"), "--data-dir", at("new"), "--identity", key}, 0, "key 2"},
		{"an import over some of the keys", []string{"import", at("b.age"), "--data-dir", agent("some", one), "--passphrase-file", phrase}, 0, "key 2"},
		{"a forced import", []string{"import", at("a.age"), "--data-dir", at("foreign"), "--identity", key, "--force"}, 0, "key 2"},
	} {
		code, out, errs := run(append([]string{"keyring"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: %d\n%s%s", c.name, code, out, errs)
		}
		if c.code != 0 && c.name != "an export over another" && strings.Contains(errs, "is there already") {
			t.Errorf("%s: %s", c.name, errs)
		}
		if strings.Contains(out+errs, "AGE-SECRET-KEY-1") || strings.Contains(out+errs, "correct horse") || strings.Contains(out+errs, "battery") {
			t.Errorf("%s shows a secret:\n%s%s", c.name, out, errs)
		}
	}
	for name, want := range map[string]bool{"new": true, "some": true, "foreign": true, "none": false, "busy": false} {
		set, err := keyring.InDir(at(name) + "-keyring").Load()
		if is := len(set.Keys) == 2 && set.Contains(keyring.Set{Active: 2, Keys: []keyring.Key{one, two}}); err != nil || is != want {
			t.Errorf("agent %s has %v, %v", name, set.Keys, err)
		}
	}
	if set, err := keyring.InDir(at("newer") + "-keyring").Load(); err != nil || len(set.Keys) != 3 || set.Active != 3 {
		t.Errorf("an agent with a newer key has %v, %v", set.Keys, err)
	}
	if e, err := keyring.InDir(voter + "-keyring").Exported(); err != nil || e.Number != 2 || string(e.Print) != string(two.Print()) {
		t.Errorf("on record is %+v, %v", e, err)
	}
}

// TestLockedKeyringBackup exports a keyring with a passphrase, and imports it into others. What they lock is read with their own passphrases
// only, and stays locked.
func TestLockedKeyringBackup(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) string {
		t.Helper()
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	// agent returns the configuration of an agent whose keyring has a passphrase, or none if phrase is "".
	agent := func(name, phrase string, keys ...keyring.Key) string {
		t.Helper()
		if err := os.MkdirAll(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if phrase != "" {
			p := keyring.WithPassphrase(at(name) + "-keyring")
			err := p.Change([]byte(phrase))
			if err == nil {
				err = p.Save(keyring.Set{Active: uint32(len(keys)), Keys: keys})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return write(name+".yaml", "data_dir: "+at(name)+"\nkeyring: {kind: passphrase}\n")
	}
	me, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	key, age1, backup := write("key", me.String()+"\n"), me.Recipient().String(), at("a.age")
	one, two := keyring.NewKey(1), keyring.NewKey(2)
	voter, other := agent("voter", "correct horse battery", one, two), agent("other", "another good staple", one)
	empty, none := agent("empty", "an empty keyring"), agent("none", "")
	horse, staple := write("horse", "correct horse battery\n"), write("staple", "another good staple")
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"an export without the passphrase", []string{"export", "--config", voter, "--to", backup, "--recipient", age1}, 1, "passphrase is empty"},
		{"an export with another passphrase", []string{"export", "--config", voter, "--to", backup, "--recipient", age1,
			"--keyring-passphrase-file", staple}, 1, "passphrase is wrong"},
		{"an export", []string{"export", "--config", voter, "--to", backup, "--recipient", age1, "--keyring-passphrase-file", horse}, 0, "key 2"},
		{"an import with another passphrase", []string{"import", backup, "--config", other, "--identity", key,
			"--keyring-passphrase-file", horse}, 1, "passphrase is wrong"},
		{"an import", []string{"import", backup, "--config", other, "--identity", key, "--keyring-passphrase-file", staple}, 0, "key 2"},
		{"an import where no passphrase is set", []string{"import", backup, "--config", none, "--identity", key}, 1, "coopr-agent keyring passphrase"},
		{"an import into an empty keyring", []string{"import", backup, "--config", empty, "--identity", key, "--keyring-passphrase-file",
			write("phrase", "an empty keyring")}, 0, "key 2"},
	} {
		code, out, errs := run(append([]string{"keyring"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.says) {
			t.Errorf("%s: %d\n%s%s", c.name, code, out, errs)
		}
		if strings.Contains(out+errs, "horse b") || strings.Contains(out+errs, "good st") || strings.Contains(out+errs, "AGE-SECRET-KEY-1") {
			t.Errorf("%s shows a secret:\n%s%s", c.name, out, errs)
		}
	}
	for name, phrase := range map[string]string{"other": "another good staple", "empty": "an empty keyring"} {
		p := keyring.WithPassphrase(at(name) + "-keyring")
		if _, err := p.Load(); !errors.Is(err, keyring.ErrSealed) {
			t.Errorf("the keyring of agent %s is open: %v", name, err)
		}
		if err := p.Unlock([]byte(phrase)); err != nil {
			t.Error(err)
		}
		if set, err := p.Load(); err != nil || set.Active != 2 || !set.Contains(keyring.Set{Active: 2, Keys: []keyring.Key{one, two}}) {
			t.Errorf("agent %s has %v, %v", name, set.Keys, err)
		}
	}
	if e, err := keyring.InDir(at("voter") + "-keyring").Exported(); err != nil || e.Number != 2 {
		t.Errorf("on record is %+v, %v", e, err)
	}
}

// TestKeyringOfAnotherUser runs the commands of the keyring as another user than the agent's. Root could write files that the agent cannot read.
func TestKeyringOfAnotherUser(t *testing.T) {
	data := "/" // which belongs to root
	if os.Geteuid() == 0 {
		data = filepath.Join(t.TempDir(), "data")
		if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
	}
	me, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, backup, phrase := filepath.Join(dir, "key"), filepath.Join(dir, "a.age"), filepath.Join(dir, "phrase")
	var out bytes.Buffer
	err = errors.Join(keyring.Export(&out, keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}, me.Recipient()),
		os.WriteFile(key, []byte(me.String()), 0o600), os.WriteFile(backup, out.Bytes(), 0o600),
		os.WriteFile(phrase, []byte("correct horse battery"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"passphrase", "--new-passphrase-file", phrase},
		{"convert", "--to", "passphrase", "--passphrase-file", phrase},
		{"export", "--to", filepath.Join(dir, "b.age"), "--recipient", me.Recipient().String()},
		{"import", backup, "--identity", key},
	} {
		code, out, errs := run(append(append([]string{"keyring"}, args...), "--data-dir", data)...)
		if code != 1 || !strings.Contains(errs, "runuser -u") {
			t.Errorf("%s: %d\n%s%s", args[0], code, out, errs)
		}
	}
	if list, err := os.ReadDir(data); os.Geteuid() == 0 && (err != nil || len(list) > 0) {
		t.Error("something was written:", list, err)
	}
}
