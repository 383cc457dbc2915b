package openstack

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/provider/providertest"
)

// Fleet runs servers as SSH servers of the test's own, at addresses that are the
// test's. They let in who has the key of the user data.
type Fleet struct {
	*providertest.Fleet
	mu sync.Mutex
	at map[string]string // addresses, by server; of all there ever were
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
		// The last one: "default" may stand before it.
		var b []byte
		if b, err = yaml.Marshal(d.Users[len(d.Users)-1]); err == nil {
			err = yaml.Unmarshal(b, &user)
		}
	}
	if err != nil || len(user.Keys) != 1 {
		return fmt.Errorf("user data without a key: %q %v", s.UserData, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[s.ID] = f.BootAt(s.Address.String(), user.Keys[0])
	return nil
}

// Stop ends it.
func (f *Fleet) Stop(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Halt(f.at[id])
	return nil
}

// Delete ends it.
func (f *Fleet) Delete(id string) error { return f.Stop(id) }

// Ever returns how many servers there have been.
func (f *Fleet) Ever() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.at)
}
