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

// dirStore keeps the keys in a file of a folder. With a guard, the file is encrypted; otherwise, whoever reads it has the keys.
type dirStore struct {
	dir, kind string
	guard     guard // nil for the kind file
}

// InDir returns the store of the kind file: the file "keys" in a folder of its own, which the first Save
// creates. Folder and file belong to the agent's user and are closed to everybody else.
func InDir(dir string) Store { return dirStore{dir: dir, kind: KindFile} }

func (d dirStore) path() string { return filepath.Join(d.dir, fileName) }

// Load reads the file. It refuses a folder or a file that others may reach, and a damaged file.
func (d dirStore) Load() (Set, error) {
	data, err := d.read()
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.guard != nil:
		return Set{}, d.guard.ready() // an agent that could not store keys must not wait for them
	case errors.Is(err, fs.ErrNotExist):
		return Set{}, nil
	case err != nil:
		return Set{}, err
	}
	err = fits(d.kind, data)
	var s Set
	switch {
	case err != nil:
	case d.guard == nil:
		s, err = decode(data)
	default:
		_, lines, ok := bytes.Cut(data, []byte("\n"))
		if !ok || !bytes.HasPrefix(data, []byte(firstEncrypted)) {
			err = fmt.Errorf("%w: its first line is not %q", ErrDamaged, firstEncrypted+d.kind)
			break
		}
		s, err = d.guard.open(lines)
	}
	if err != nil {
		return Set{}, fmt.Errorf("%s: %w", d.path(), err)
	}
	return s, nil
}

// read returns the content of the file. It fails with fs.ErrNotExist if there is none.
func (d dirStore) read() ([]byte, error) {
	info, err := os.Stat(d.dir)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a folder", d.dir)
	}
	if err := closed(d.dir, info); err != nil {
		return nil, err
	}
	f, err := os.Open(d.path())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := closed(d.path(), info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.path(), err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %w: it is too large", d.path(), ErrDamaged)
	}
	return data, nil
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
	data := encode(s)
	if d.guard != nil {
		lines, err := d.guard.seal(s)
		if err != nil {
			return err
		}
		data = append([]byte(firstEncrypted+d.kind+"\n"), lines...)
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	if err := durable.Replace(d.path(), data); err != nil {
		return err
	}
	return durable.SyncFolder(filepath.Dir(d.dir)) // d.dir may be new
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
