// Package ownhost finds the addresses of this machine.
package ownhost

import (
	"net"
	"net/netip"
)

// Addresses returns the addresses of this machine's interfaces, those of IPv4 as such and without zones. Containers and virtual machines on
// it have others.
func Addresses() ([]netip.Addr, error) {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, n := range networks {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out, nil
}
