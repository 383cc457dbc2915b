package config

import (
	"fmt"
	"net/netip"

	sockaddr "github.com/hashicorp/go-sockaddr"
)

// Advertised returns the address at which other agents reach a port: advertise if it is set, or, if the
// port is bound to all addresses of the machine, its private address. "" means the address that the port
// is bound to, as does an empty bound, of a transport that binds none. path names the setting in errors.
func Advertised(path, bound, advertise string) (string, error) {
	if advertise != "" || bound == "" {
		return advertise, nil
	}
	addr, err := netip.ParseAddrPort(bound)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if !addr.Addr().IsUnspecified() {
		return "", nil
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
