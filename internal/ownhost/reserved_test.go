package ownhost_test

import (
	"net/netip"
	"testing"

	"github.com/coopr/coopr/internal/ownhost"
)

// Addresses count in all their forms.
func TestReserved(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "::ffff:127.0.0.1": true, "64:ff9b::7f00:1": true, "0.0.0.1": true, "::": true,
		"169.254.169.254": true, "::ffff:169.254.169.254": true, "64:ff9b::a9fe:a9fe": true, "fe80::1%eth0": true, "100.100.100.200": true,
		"fd00:ec2::254": true, "224.0.0.1": true, "ff02::1": true, "255.255.255.255": true,
		"192.0.2.1": false, "10.0.0.1": false, "2001:db8::1": false, "64:ff9b::a00:1": false,
	} {
		if got := ownhost.Reserved(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	for address, want := range map[string]string{
		"fe80::1%eth0": "fe80::1", "::ffff:10.0.0.1": "10.0.0.1", "64:ff9b::a00:1": "10.0.0.1", "::1": "::1", "::": "::", "10.0.0.1": "10.0.0.1",
	} {
		if got := ownhost.Plain(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}
