package identity

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/coopr/coopr/internal/durable"
)

const (
	idFile     = "agent-id"
	secretFile = "mesh-secret"
	lockFile   = "lock"
)

// LoadOrCreateID returns the id of the agent that owns a data directory: a random UUID, which the
// first call creates. A file without a UUID is an error and is never overwritten, because the Raft
// configuration has the id.
func LoadOrCreateID(dir string) (string, error) {
	path := filepath.Join(dir, idFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id := newID()
		if err := durable.WriteFile(path, []byte(id+"\n")); err != nil {
			return "", fmt.Errorf("agent id: %w", err)
		}
		return id, nil
	case err != nil:
		return "", fmt.Errorf("agent id: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if !validID(id) {
		return "", fmt.Errorf("agent id: %s holds %d bytes that are no UUID: restore it from a backup, or delete it together "+
			"with the data directory to join as a new agent", path, len(raw))
	}
	return id, nil
}

func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// IsID reports whether a text is an agent's id.
func IsID(text string) bool { return validID(text) }

// validID reports whether id is a lower-case UUID in its usual form.
func validID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, r := range id {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if r != '-' {
				return false
			}
		case !strings.ContainsRune("0123456789abcdef", r):
			return false
		}
	}
	return true
}

// SaveSecret writes the mesh secret to the data directory, readable by the file's owner only.
func SaveSecret(dir string, secret Secret) error {
	if err := durable.WriteFile(filepath.Join(dir, secretFile), []byte(secret.Token()+"\n")); err != nil {
		return fmt.Errorf("mesh secret: %w", err)
	}
	return nil
}

// LoadSecret returns the mesh secret of the data directory. The error wraps fs.ErrNotExist if there
// is none.
func LoadSecret(dir string) (Secret, error) {
	s, err := LoadTokenFile(filepath.Join(dir, secretFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; the agent's user must own the file. If it is damaged, remove it and give the agent the join token again", err)
	}
	return s, err
}

// LoadTokenFile reads a mesh secret from a file. It refuses a file that other users than its owner
// can access.
func LoadTokenFile(path string) (Secret, error) {
	text, err := ReadTokenFile(path)
	if err != nil {
		return Secret{}, err
	}
	secret, err := ParseToken(text)
	if err != nil {
		return Secret{}, fmt.Errorf("mesh secret: %s: %w", path, err)
	}
	return secret, nil
}

// maxToken bounds the size of a file with a token, in bytes.
const maxToken = 4096

// ReadTokenFile returns the text of a file with a token. It refuses a file that other users than its owner can access.
func ReadTokenFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("join token: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("join token: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("join token: %s can be read by others (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fmt.Errorf("join token: %w", err)
	}
	return string(text), nil
}

// ErrLocked is wrapped by LockDir's error if another process has locked the directory.
var ErrLocked = errors.New("the data directory is in use by another agent")

// Lock is the lock on a data directory.
type Lock struct{ f *os.File }

// LockDir locks the data directory until Release is called or the process ends. Two agents with
// one directory would have the same identity.
func LockDir(dir string) (*Lock, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	readOnly := errors.Is(err, syscall.EROFS)
	if readOnly { // an agent works as well as it can until the file system can be written again
		f, err = os.Open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		buf := make([]byte, 32)
		n, _ := f.ReadAt(buf, 0)
		pid := strings.TrimSpace(string(buf[:n]))
		if pid == "" {
			pid = "unknown"
		}
		return nil, fmt.Errorf("lock %s: %w: process %s", dir, ErrLocked, pid)
	}
	// The pid is only for the message above. The kernel holds the lock itself.
	if readOnly {
		return &Lock{f}, nil
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return &Lock{f}, nil
}

// Release unlocks the directory. The file remains, because deleting it would race with the next
// process that locks it.
func (l *Lock) Release() error { return l.f.Close() }
