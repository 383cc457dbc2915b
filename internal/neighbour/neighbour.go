// Package neighbour finds out whose programs on this machine make requests.
package neighbour

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// relayed are headers that proxies add to what they pass on.
var relayed = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"}

// IsOwn reports whether a request on this machine comes from a program of the agent's user, or of root, which could read the agent's
// token in its files. A program of somebody else may be a proxy that lets everybody in, with requests that look as if they were made on
// this machine. A proxy that names itself is refused, whoever runs it.
func IsOwn(r *http.Request) bool {
	if slices.ContainsFunc(relayed, func(name string) bool { return r.Header.Get(name) != "" }) {
		return false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	server, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return false
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // this machine has no IPv6
		}
		if user, ok := userOf(string(text), plainSocket(client), plainSocket(server)); ok {
			return user == 0 || user == os.Getuid()
		}
	}
	return false
}

// userOf returns the user whose program has the client's end of an open connection, from a table of the kernel (proc_pid_net(5)).
func userOf(table string, client, server netip.AddrPort) (user int, ok bool) {
	const (
		localAddress, remoteAddress, state, owner = 1, 2, 3, 7 // columns
		established                               = "01"       // the kernel forgets the owner of a socket that is closed
	)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) <= owner || f[state] != established || kernelSocket(f[localAddress]) != client || kernelSocket(f[remoteAddress]) != server {
			continue
		}
		user, err := strconv.Atoi(f[owner])
		return user, err == nil
	}
	return 0, false
}

// kernelSocket returns an address and port as the kernel writes them: 32-bit words in the order of bytes of the machine, in hexadecimal.
// It returns the zero AddrPort for other texts.
func kernelSocket(text string) netip.AddrPort {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	p, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p))
}

// plainSocket returns an address and port without a zone, and as IPv4 if it is that.
func plainSocket(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
