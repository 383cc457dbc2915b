package config

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAdvertised(t *testing.T) {
	for _, c := range [][3]string{
		{"10.0.0.1:5", "", ""}, {"0.0.0.0:5", "192.0.2.1:6", "192.0.2.1:6"}, {"[::1]:5", "", ""},
	} {
		if got, err := Advertised("peer.advertise", c[0], c[1]); got != c[2] || err != nil {
			t.Error(c, got, err)
		}
	}
	// The result depends on the machine: either a private address, or an error that names the setting.
	got, err := Advertised("peer.advertise", "0.0.0.0:5", "")
	if err != nil {
		if !strings.Contains(err.Error(), "peer.advertise is not set") {
			t.Error(err)
		}
	} else if addr, err := netip.ParseAddrPort(got); err != nil || !addr.Addr().IsPrivate() || addr.Port() != 5 {
		t.Error(got)
	}
	if _, err := Advertised("x", "nonsense", ""); err == nil {
		t.Error("nonsense has an address")
	}
}
