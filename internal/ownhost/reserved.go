package ownhost

import (
	"net/netip"
	"slices"
)

// Reserved reports whether an address leads to the machine that dials it, to its links or to a cloud's metadata service. It does not know
// the addresses of this machine's interfaces.
func Reserved(a netip.Addr) bool {
	a = Plain(a)
	return slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Plain returns the form in which addresses are compared: without a zone, and that of IPv4 if one is within an address of IPv6.
func Plain(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	b := a.As16()
	within := slices.ContainsFunc(embedding, func(p netip.Prefix) bool { return p.Contains(a) })
	if !within || a.IsUnspecified() || a.IsLoopback() {
		return a
	}
	return netip.AddrFrom4([4]byte(b[12:]))
}

var (
	reserved = prefixes("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "::/128", "::1/128", "fe80::/10",
		"ff00::/8", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32", "fd00:ec2::254/128", "fd20:ce::254/128")
	// embedding are the networks of IPv6 whose last four bytes are an address of IPv4.
	embedding = prefixes("::/96", "64:ff9b::/96", "64:ff9b:1::/48")
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}
