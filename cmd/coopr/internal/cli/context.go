package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coopr/coopr/rpc/client"
)

// Dev is the name of the context that stands for the mesh of "coopr-agent --dev" on this machine. It is not in the file.
const Dev = "dev"

// Context is a mesh that commands talk to, and who somebody is there.
type Context struct {
	Addresses []string `json:"addresses"`
	CACert    string   `json:"caCert,omitempty"`
	Tenant    string   `json:"tenant,omitempty"`
	Method    string   `json:"method,omitempty"` // how the user logs in, "" for the mesh's own password
	User      string   `json:"user,omitempty"`   // as the method knows it
	// Token is the session's, "" after a logout. The times are in Unix milliseconds.
	Token     string `json:"token,omitempty"`
	Opened    int64  `json:"opened,omitempty"`
	Expires   int64  `json:"expires,omitempty"`
	Renewable int64  `json:"renewable,omitempty"`
}

// Own returns the URLs of the context's agents with the given addresses. It returns false if one of these is no agent of the
// context, or names one without the encryption that the context has.
func (c *Context) Own(addresses []string) (urls []string, ok bool) {
	for _, addr := range addresses {
		i := slices.IndexFunc(c.Addresses, func(url string) bool {
			_, place, _ := strings.Cut(url, "://")
			return addr == url || addr == place || addr+":"+client.DefaultPort == place
		})
		if i < 0 {
			return nil, false
		}
		urls = append(urls, c.Addresses[i])
	}
	return urls, true
}

// Contexts are the contexts of a user, as a file holds them.
type Contexts struct {
	// Current is the context of commands that name none, or "" for the dev agent's.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
	path     string
}

// LoadContexts reads a file. Without the file there are no contexts.
func LoadContexts(path string) (*Contexts, error) {
	all := &Contexts{Contexts: map[string]Context{}, path: path}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(data, all); err != nil {
		return nil, fmt.Errorf("%s: %w; repair the file, or remove it and log in again", path, err)
	}
	if all.Contexts == nil {
		all.Contexts = map[string]Context{}
	}
	return all, nil
}

// Save writes the file, which only its user can read.
func (c *Contexts) Save() error {
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(c.path, func(w io.Writer) error { // a new file of os.CreateTemp has the mode 0600
		_, err := w.Write(append(data, '\n'))
		return err
	})
}

// LoginTarget is the mesh that a login is for.
type LoginTarget struct {
	Client *client.Client
	// All are the contexts. Name is the one that flags or the file name, or "", and Context is that one, or a new one with the
	// client's addresses.
	All     *Contexts
	Name    string
	Context Context
}

// Names returns the names of all contexts, in order.
func (c *Contexts) Names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }
