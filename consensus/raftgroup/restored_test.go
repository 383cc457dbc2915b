package raftgroup_test

import (
	"fmt"
	"testing"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// TestConfigurationOutOfASnapshot: a member whose configuration is only in its
// snapshot, as after a recovery, counts that configuration as applied. Otherwise the
// voters controller of this leader would never make a change.
func TestConfigurationOutOfASnapshot(t *testing.T) {
	onFiles(t, func(t *testing.T, _ logstore.Kind, dir string, o grouptest.Options) {
		c := grouptest.Start(t, 1, o)
		defer c.Stop()
		c.Apply("one")
		m := c.Leader()
		m.Crash()
		write(t, dir+"/"+m.ID+"/peers.json", fmt.Sprintf(`[{"id": %q, "address": "127.0.0.1:1"}]`, m.ID))
		m.Start()
		lead := c.Leader().Group()
		if servers, at := lead.ServersAt(); at == 0 || len(servers) != 1 || servers[0] != lead.Servers()[0] {
			t.Errorf("applied: %v at %d; latest: %v", servers, at, lead.Servers())
		}
	})
}
