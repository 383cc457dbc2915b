package identity

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/internal/durable"
)

// DevToken returns the API token of a dev agent. All dev agents of one user share it, so that each of them
// can join the others: it is in a file of the user's configuration folder that nobody else can read. The
// data directory keeps a copy, which comes first. shared is false if the token is another than that of the
// file, or if there can be no file: only agents with the same copy can join then.
func DevToken(dataDir string) (token string, shared bool, err error) {
	common, err := sharedDevToken()
	if err != nil {
		return "", false, err
	}
	kept := filepath.Join(dataDir, "dev-token")
	b, err := os.ReadFile(kept)
	switch token = strings.TrimSpace(string(b)); {
	case err == nil && len(token) >= minDevToken:
		return token, token == common, nil
	case err == nil:
		return "", false, fmt.Errorf("%s has no token: remove the file, and start the agent again", kept)
	case !errors.Is(err, fs.ErrNotExist):
		return "", false, err
	}
	token = cmp.Or(common, newDevToken())
	return token, token == common, durable.WriteFile(kept, []byte(token+"\n"))
}

const minDevToken = 16

func newDevToken() string { return "coopr-dev-" + rand.Text() }

// sharedDevToken returns the token of the user's dev agents, and creates it if there is none. It returns ""
// if no file can be created for it.
func sharedDevToken() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", nil
	}
	dir = filepath.Join(dir, "coopr")
	name := filepath.Join(dir, "dev-token")
	if _, err := os.Stat(name); err != nil && !createDevToken(dir, name) {
		return "", nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s has mode %04o, so other users may have read the token: remove the file, and start the agent again",
			name, info.Mode().Perm())
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minDevToken {
		return "", fmt.Errorf("%s has no token: remove the file, and start the agent again", name)
	}
	return token, nil
}

// createDevToken reports whether there is a file with a token, its own or that of an agent that started at
// the same time.
func createDevToken(dir, name string) bool {
	if os.MkdirAll(dir, 0o700) != nil {
		return false
	}
	f, err := os.CreateTemp(dir, "dev-token-*") // mode 0600
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(newDevToken() + "\n")
	if errors.Join(err, f.Close()) != nil {
		return false
	}
	// A link appears whole, and only one of two agents can make it.
	err = os.Link(f.Name(), name)
	return err == nil || errors.Is(err, fs.ErrExist)
}

// DevGossipKey derives the key of a dev mesh's gossip from its token, so that agents of other users stay
// apart.
func DevGossipKey(token string) []byte { return derive([]byte(token), "coopr dev gossip key", 32) }
