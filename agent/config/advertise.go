package config

import (
	"fmt"
	"net/netip"

	sockaddr "github.com/hashicorp/go-sockaddr"
)

// Advertised is the address others reach a port at: advertise where it is set, else the address the port is bound to,
// and where that is every address of the machine, the machine's private one. path names the setting for the error.
func Advertised(path, bound, advertise string) (string, error) {
	if advertise != "" {
		return advertise, nil
	}
	addr, err := netip.ParseAddrPort(bound)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if !addr.Addr().IsUnspecified() {
		return bound, nil
	}
	private, err := sockaddr.GetPrivateIP()
	if err != nil {
		return "", fmt.Errorf("%s: find this machine's address: %w", path, err)
	}
	ip, err := netip.ParseAddr(private)
	if err != nil {
		return "", fmt.Errorf("%s is not set, %s is every address of this machine, and none of them is private (10/8, 172.16/12, "+
			"192.168/16, fc00::/7): "+
			"set it to the address and port the other agents use", path, bound)
	}
	return netip.AddrPortFrom(ip, addr.Port()).String(), nil
}
