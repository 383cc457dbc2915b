package neighbour

import (
	"net/netip"
	"testing"
)

// The kernel's tables say whose connections are: of open ones only, and of the client's end only.
func TestUserOf(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:D70E 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:D70E 01 00000000:00000000 00:00000000 00000000    33        0 2 1 0 20 0 0 10 -1
   2: 0100007F:D70E 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 0 0 10 -1
   3: 0100007F:9C41 0100007F:D70E 06 00000000:00000000 03:00001769 00000000     0        0 0 3 0
   4: 00000000000000000000000001000000:9C42 00000000000000000000000001000000:D70E 01 00000000:00000000 00:00000000 00000000  1001 0 4 1 0 20 0 0 10 -1
   5: 0000000000000000FFFF00000100007F:9C43 0000000000000000FFFF00000100007F:D70E 01 00000000:00000000 00:00000000 00000000  1002 0 5 1 0 20
   6: broken:9C44 0100007F:D70E 01
   7: 0100007F:9C45
`
	server := "127.0.0.1:55054"
	for _, c := range []struct {
		client, server string
		user           int
		ok             bool
	}{
		{"127.0.0.1:40000", server, 33, true},
		{server, "127.0.0.1:40000", 1000, true},
		{"127.0.0.1:40001", server, 0, false}, // it has ended, and its owner is forgotten
		{"[::1]:40002", "[::1]:55054", 1001, true},
		{"127.0.0.1:40003", server, 1002, true},
		{"127.0.0.1:40004", server, 0, false},
		{"127.0.0.1:40005", server, 0, false},
		{"127.0.0.2:40000", server, 0, false},
		{"127.0.0.1:40000", "127.0.0.1:55055", 0, false},
	} {
		user, ok := userOf(table, plainSocket(netip.MustParseAddrPort(c.client)), plainSocket(netip.MustParseAddrPort(c.server)))
		if user != c.user || ok != c.ok {
			t.Errorf("%s to %s: user %d, %v", c.client, c.server, user, ok)
		}
	}
}
