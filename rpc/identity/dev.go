package identity

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DevToken returns the API token of a dev agent. All dev agents of one user share it, so that each of them
// can join the others: it is in a file of the user's configuration folder that nobody else can read. The
// data directory keeps a copy, which comes first. A user without a writable configuration folder gets a
// token for this data directory alone.
func DevToken(dataDir string) (string, error) {
	kept := filepath.Join(dataDir, "dev-token")
	if token, err := readDevToken(kept); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	token := "coopr-dev-" + rand.Text()
	if dir, err := os.UserConfigDir(); err == nil {
		shared, err := shareDevToken(filepath.Join(dir, "coopr"), token)
		switch {
		case err == nil:
			token = shared
		case !errors.As(err, new(*fs.PathError)) && !errors.As(err, new(*os.LinkError)):
			return "", err // the file is there, and something is wrong with it
		}
	}
	return token, os.WriteFile(kept, []byte(token+"\n"), 0o600)
}

// shareDevToken puts a token into the folder, unless another agent has put one there, and returns the one
// that is there.
func shareDevToken(dir, token string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, "dev-token")
	if token, err := readDevToken(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	f, err := os.CreateTemp(dir, "dev-token-*") // mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(token + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	// A link appears whole, and only one of two agents that start together can make it.
	if err := os.Link(f.Name(), name); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return readDevToken(name)
}

func readDevToken(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %04o, so other users may have read the token: remove the file, and start the agent again", name, mode)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 16 {
		return "", fmt.Errorf("%s has no token: remove the file, and start the agent again", name)
	}
	return token, nil
}

// DevGossipKey derives the key of a dev mesh's gossip from its token, so that agents of other users stay
// apart.
func DevGossipKey(token string) []byte {
	key, err := hkdf.Key(sha256.New, []byte(token), nil, "coopr dev gossip key", 32)
	if err != nil {
		panic(err) // only for a length that is too large
	}
	return key
}
