package instance

import (
	"net"
	"net/netip"
	"testing"

	"github.com/coopr/coopr/internal/ownhost"
)

// TestGuard checks which addresses are refused, in all their forms.
func TestGuard(t *testing.T) {
	g, err := ParseGuard("127.0.0.0/8,fe80::/10")
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]struct{ usual, allowed bool }{
		"127.0.0.1":                {false, true},
		"::ffff:127.0.0.1":         {false, true},
		"fe80::1%lo":               {false, true},
		"::1":                      {},
		"0.0.0.0":                  {},
		"::":                       {},
		"169.254.169.254":          {},
		"::ffff:169.254.169.254":   {},
		"::169.254.169.254":        {},
		"64:ff9b::169.254.169.254": {},
		"64:ff9b:1::a9fe:a9fe":     {},
		"64:ff9b::127.0.0.1":       {},
		"100.100.100.200":          {},
		"192.0.0.192":              {},
		"fd00:ec2::254":            {},
		"224.0.0.1":                {},
		"ff02::1":                  {},
		"not an address":           {},
		"192.0.2.1":                {true, true},
		"10.0.0.1":                 {true, true},
		"64:ff9b::192.0.2.1":       {true, true},
		"2001:db8::1":              {true, true},
	} {
		to := net.JoinHostPort(address, "443")
		if err := NewGuard(nil).check(to); (err == nil) != want.usual || err != nil && KindOf(err) != Invalid {
			t.Errorf("%s: %v", address, err)
		}
		if err := g.check(to); (err == nil) != want.allowed {
			t.Errorf("%s, with networks allowed: %v", address, err)
		}
	}
	if _, err := ParseGuard("127.0.0.1"); err == nil {
		t.Error("an address is taken as a network")
	}
}

// An address of this machine's interfaces is treated as loopback is.
func TestGuardOfOwnAddresses(t *testing.T) {
	own, err := ownhost.Addresses()
	if err != nil {
		t.Fatal(err)
	}
	var others int
	for _, ip := range own {
		if ownhost.Reserved(ip) {
			continue
		}
		others++
		to := netip.AddrPortFrom(ip, 443).String()
		if err := NewGuard(nil).check(to); err == nil || KindOf(err) != Invalid {
			t.Errorf("%s, which is the agent's own: %v", ip, err)
		}
		for _, allow := range []string{"127.0.0.0/8", netip.PrefixFrom(ip, ip.BitLen()).String()} {
			if err := NewGuard([]netip.Prefix{netip.MustParsePrefix(allow)}).check(to); err != nil {
				t.Errorf("%s, with %s allowed: %v", ip, allow, err)
			}
		}
	}
	if others == 0 {
		t.Log("this machine has no address besides loopback")
	}
}
