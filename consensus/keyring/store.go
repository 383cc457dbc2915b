package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/coopr/coopr/internal/durable"
)

var (
	// ErrDamaged means that a keyring's file is not as it was written.
	ErrDamaged = errors.New("the keyring's file is damaged: restore it from a backup, or remove it, so that the leader sends the keys again")
	// ErrExposed means that others than its owner may reach a keyring.
	ErrExposed = errors.New("others than the owner may reach the keyring")
)

// fileName is the file of the keys in the folder of a keyring.
const fileName = "keys"

// maxFile bounds the size of the file, in bytes.
const maxFile = 1 << 20

// dirStore keeps the keys in a file of a folder. With a local key, the file is encrypted; otherwise, whoever reads it has the keys.
type dirStore struct {
	dir, kind string
	local     func() (Key, error) // nil for the kind file
}

// InDir returns the store of the kind file: the file "keys" in a folder of its own, which the first Save
// creates. Folder and file belong to the agent's user and are closed to everybody else.
func InDir(dir string) Store { return dirStore{dir: dir, kind: KindFile} }

// Load reads the file. It refuses a folder or a file that others may reach, and a damaged file.
func (d dirStore) Load() (Set, error) {
	var local Key
	if d.local != nil {
		var err error
		if local, err = d.local(); err != nil { // also before there are keys: this agent could not store them
			return Set{}, err
		}
	}
	info, err := os.Stat(d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Set{}, nil
	case err != nil:
		return Set{}, err
	case !info.IsDir():
		return Set{}, fmt.Errorf("%s is not a folder", d.dir)
	}
	if err := closed(d.dir, info); err != nil {
		return Set{}, err
	}
	path := filepath.Join(d.dir, fileName)
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Set{}, nil
	case err != nil:
		return Set{}, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return Set{}, err
	}
	if err := closed(path, info); err != nil {
		return Set{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Set{}, fmt.Errorf("read %s: %w", path, err)
	}
	if err := fits(d.kind, data); err != nil {
		return Set{}, fmt.Errorf("%s: %w", path, err)
	}
	var s Set
	if d.local == nil {
		s, err = decode(data)
	} else {
		s, err = decodeFor(d.kind, local, data)
	}
	if err != nil {
		return Set{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// closed returns ErrExposed if others than its owner may read or change a file or a folder.
func closed(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%w: %s has mode %04o; run chmod go= %s, and change what the keys protect if others may have read them",
			ErrExposed, path, mode, path)
	}
	return nil
}

// Save replaces the file. The keys are on the disk when it returns.
func (d dirStore) Save(s Set) error {
	dir, data := d.dir, encode(s)
	if d.local != nil {
		local, err := d.local()
		if err != nil {
			return err
		}
		data = encodeFor(d.kind, local, s)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, fileName), data); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(dir)) // dir may be new
}

// first is the first line of the file.
const first = "coopr-keyring 1"

// encode returns the content of the file: lines of text, the last of which has the SHA-256 of those before it.
func encode(s Set) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, first)
	fmt.Fprintln(&b, "active", s.Active)
	for _, k := range s.Keys {
		fmt.Fprintln(&b, "key", k.Number, base64.StdEncoding.EncodeToString(k.Secret[:]))
	}
	fmt.Fprintf(&b, "sum %x\n", sha256.Sum256(b.Bytes()))
	return b.Bytes()
}

// decode returns the keys in the content of a file. It accepts only what encode returns. Its errors never
// have a part of the content, which may be a key.
func decode(data []byte) (Set, error) {
	damaged := func(why string) (Set, error) { return Set{}, fmt.Errorf("%w: %s", ErrDamaged, why) }
	if len(data) > maxFile {
		return damaged("it is too large")
	}
	text, ok := strings.CutSuffix(string(data), "\n")
	if !ok {
		return damaged(fmt.Sprintf("it ends within a line, after %d bytes", len(data)))
	}
	lines := strings.Split(text, "\n")
	if lines[0] != first {
		return damaged("its first line is not " + strconv.Quote(first))
	}
	var s Set
	for i, line := range lines[1:] {
		number := i + 2
		switch word, rest, _ := strings.Cut(line, " "); word {
		case "active":
			n, err := strconv.ParseUint(rest, 10, 32)
			if err != nil {
				return damaged(fmt.Sprintf("line %d has no number", number))
			}
			s.Active = uint32(n)
		case "key":
			n, secret, _ := strings.Cut(rest, " ")
			raw, err := base64.StdEncoding.DecodeString(secret)
			of, err2 := strconv.ParseUint(n, 10, 32)
			if err != nil || err2 != nil || len(raw) != Size {
				return damaged(fmt.Sprintf("line %d has no key of %d bytes", number, Size))
			}
			s.Keys = append(s.Keys, Key{Number: uint32(of), Secret: [Size]byte(raw)})
		case "sum":
		default:
			return damaged(fmt.Sprintf("line %d is unknown", number))
		}
	}
	if err := s.check(); err != nil {
		return damaged(err.Error())
	}
	if !bytes.Equal(encode(s), data) {
		return damaged("its sum does not fit")
	}
	return s, nil
}
