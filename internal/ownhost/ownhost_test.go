package ownhost_test

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/coopr/coopr/internal/ownhost"
)

// The addresses are those that this machine can listen on.
func TestAddresses(t *testing.T) {
	all, err := ownhost.Addresses()
	if err != nil || !slices.Contains(all, netip.MustParseAddr("127.0.0.1")) || slices.Contains(all, netip.MustParseAddr("192.0.2.1")) {
		t.Fatal(all, err)
	}
	for _, a := range all {
		if a.IsLinkLocalUnicast() {
			continue // only with its zone
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
		if err != nil {
			t.Error(err)
			continue
		}
		_ = l.Close()
	}
}
