package openstack

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/provider/providertest"
)

// Fleet runs each server as an SSH server within the test's process, at the server's address. It
// accepts the key in the server's user data.
type Fleet struct {
	*providertest.Fleet
	mu sync.Mutex
	at map[string]string // the addresses of all servers ever booted, by server id
}

// NewFleet returns a fleet that ends with the test.
func NewFleet(t testing.TB) *Fleet {
	return &Fleet{Fleet: providertest.NewFleet(t), at: map[string]string{}}
}

// Boot starts a server's SSH server.
func (f *Fleet) Boot(_ context.Context, s Server) error {
	var d struct {
		Users []any
	}
	var user struct {
		Keys []string `yaml:"ssh_authorized_keys"`
	}
	err := yaml.Unmarshal(s.UserData, &d)
	if err == nil && len(d.Users) > 0 {
		// The last user has the key: "default" may come before it.
		var b []byte
		if b, err = yaml.Marshal(d.Users[len(d.Users)-1]); err == nil {
			err = yaml.Unmarshal(b, &user)
		}
	}
	if err != nil || len(user.Keys) != 1 {
		return fmt.Errorf("the user data of server %s must be YAML that gives its last user one SSH key: %q (%v)", s.ID, s.UserData, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[s.ID] = f.BootAt(s.Address.String(), user.Keys[0])
	return nil
}

// Stop ends a server's SSH server.
func (f *Fleet) Stop(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Halt(f.at[id])
	return nil
}

// Delete ends a server's SSH server.
func (f *Fleet) Delete(id string) error { return f.Stop(id) }

// Ever returns the number of servers that were ever booted.
func (f *Fleet) Ever() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.at)
}
