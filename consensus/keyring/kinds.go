package keyring

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The kinds of a keyring. They differ in the local key that encrypts the keyring's file.
const (
	// KindFile has no local key: whoever reads the file has the keys.
	KindFile = "file"
	// KindSystemd has a local key in a credential that systemd decrypts for the agent's unit.
	KindSystemd = "systemd-creds"
	// KindPassphrase has a local key that is derived from a passphrase, which somebody gives after each start.
	KindPassphrase = "passphrase"
	// KindTransit has a local key that a service decrypts at each start.
	KindTransit = "transit"
	// KindProgram has a local key that a program decrypts at each start.
	KindProgram = "program"
)

// Kinds returns the kinds of a keyring.
func Kinds() []string {
	return []string{KindFile, KindSystemd, KindPassphrase, KindTransit, KindProgram}
}

// Credential is the name of the credential with the local key of the kind systemd-creds.
const Credential = "coopr-keyring"

// minCredential is the least size of the credential, in bytes. It is to be random.
const minCredential = 32

// ErrLocked means that the local key of a keyring is missing, or is another one than that of the file.
var ErrLocked = errors.New("the keyring cannot be decrypted")

// ErrKind means that a keyring's file is of another kind than the configuration says.
var ErrKind = errors.New("the keyring is of another kind")

// Outside has what kinds of keyrings need from outside of their files.
type Outside struct {
	Credentials string  // the folder of the unit's credentials, or ""; for systemd-creds
	Wrapper     Wrapper // for transit and program
}

// Of returns the store of a kind in a folder; see InDir. Load fails with ErrLocked if the local key is not there, and with ErrKind for a
// file of another kind. That of the kind passphrase is a *Passphrase.
func Of(kind, dir string, o Outside) Store {
	switch kind {
	case "", KindFile:
		return InDir(dir)
	case KindSystemd:
		return dirStore{dir: dir, kind: kind, guard: credential{o.Credentials}}
	case KindPassphrase:
		return WithPassphrase(dir)
	case KindTransit, KindProgram:
		return dirStore{dir: dir, kind: kind, guard: &wrapping{kind: kind, wrapper: o.Wrapper}}
	}
	return dirStore{dir: dir, kind: kind, guard: unknown{kind}}
}

// KindOf returns the kind of the keyring in a folder. Without one it fails with fs.ErrNotExist.
func KindOf(dir string) (string, error) {
	path := filepath.Join(dir, fileName)
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	switch kind, encrypted := strings.CutPrefix(string(line), firstEncrypted); {
	case encrypted:
		return kind, nil
	case string(line) == first:
		return KindFile, nil
	}
	return "", fmt.Errorf("%s: %w: its first line is unknown", path, ErrDamaged)
}

// fromCredential returns the local key of the kind systemd-creds.
func fromCredential(dir string) (Key, error) {
	const how = "make it with systemd-creds encrypt, and name it in the agent's unit with " +
		"LoadCredentialEncrypted=" + Credential + ":FILE (docs/operations.md, \"The keyring\")"
	if dir == "" {
		return Key{}, fmt.Errorf("%w: the agent was started without credentials, and needs %s: %s", ErrLocked, Credential, how)
	}
	path := filepath.Join(dir, Credential)
	secret, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("%w: there is no credential %s: %s", ErrLocked, path, how)
	}
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	if len(secret) < minCredential {
		return Key{}, fmt.Errorf("%w: the credential %s has %d bytes, and needs %d random ones", ErrLocked, path, len(secret), minCredential)
	}
	return localKey(secret, KindSystemd)
}

// localKey derives the local key of a kind.
func localKey(secret []byte, kind string) (Key, error) {
	derived, err := hkdf.Key(sha256.New, secret, nil, "coopr local key "+kind, Size)
	if err != nil {
		return Key{}, err
	}
	return Key{Number: 1, Secret: [Size]byte(derived)}, nil
}

// firstEncrypted begins the first line of an encrypted file. The kind follows. The last line has the encrypted content of a file of the
// kind file, in base64; what lies between depends on the kind.
const firstEncrypted = "coopr-keyring 2 "

// fits returns ErrKind if the content of a file is of another kind.
func fits(kind string, data []byte) error {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	have, encrypted := strings.CutPrefix(string(line), firstEncrypted)
	if !encrypted && string(line) == first {
		have = KindFile
	} else if !encrypted {
		return nil // decode says that it is damaged
	}
	if have != kind {
		return fmt.Errorf("%w: it is of the kind %q, and the configuration says %q; set keyring.kind, "+
			"or run coopr-agent keyring convert --to %s while the agent is stopped", ErrKind, have, kind, kind)
	}
	return nil
}

// Convert changes the kind of a keyring: it saves the keys that one store loads in another store, which may have the same folder. The keys
// are the same.
func Convert(from, to Store) error {
	s, err := from.Load()
	if err == nil {
		err = to.Save(s)
	}
	if err != nil {
		return fmt.Errorf("keyring: %w", err)
	}
	again, err := to.Load()
	if err == nil && !bytes.Equal(encode(again), encode(s)) {
		err = ErrDamaged
	}
	return err
}
