package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/identity"
)

// Validate says what is wrong with a configuration, all of it, as Faults with paths; nil when nothing is.
func (c Config) Validate() error { return c.check().Err() }

// checks collects faults under their paths.
type checks struct{ faults model.Faults }

func (k *checks) fault(path, format string, args ...any) {
	k.faults.Add(path, fmt.Sprintf(format, args...))
}

var (
	namePattern     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	checksumPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

func (c Config) check() model.Faults {
	k := &checks{}
	k.name("name", c.Name, true)
	k.name("zone", c.Zone, false)
	k.name("class", c.Class, false)
	if c.DataDir == "" && !c.Dev {
		k.fault("data_dir", "empty: this agent needs a directory of its own")
	}
	c.checkPorts(k)
	c.checkHTTP(k)
	c.checkMesh(k)
	c.checkWork(k)
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "text", "json")
	k.oneOf("raft.store", c.Raft.Store, "boltdb", "wal")
	k.between("gossip.expect", c.Gossip.Expect, 0, 10_000)
	k.between("raft.multiplier", c.Raft.Multiplier, 1, 10)
	k.between("raft.snapshot_threshold", c.Raft.SnapshotThreshold, 1, 1<<30)
	k.between("raft.trailing_logs", c.Raft.TrailingLogs, 1, 1<<30)
	if c.Raft.SnapshotInterval <= 0 {
		k.fault("raft.snapshot_interval", "%v: it has to be longer than nothing", c.Raft.SnapshotInterval)
	}
	if c.Limits.Body < 1<<10 {
		k.fault("limits.body", "%v: no request would fit, give at least 1KiB", c.Limits.Body)
	}
	k.between("limits.http_conns", c.Limits.HTTPConns, 0, 1<<20)
	k.between("limits.peer_conns", c.Limits.PeerConns, 0, 1<<20)
	if c.Audit.Retention < time.Hour {
		k.fault("audit.retention", "%v: it is an hour at least", c.Audit.Retention)
	}
	k.between("audit.records", c.Audit.Records, 1000, 1<<30)
	if c.Audit.Memory < 1<<20 {
		k.fault("audit.memory", "%v: it is 1MiB at least", c.Audit.Memory)
	}
	if c.Orphans.Every < time.Second {
		k.fault("orphans.every", "%v: it is a second at least", c.Orphans.Every)
	}
	if c.Orphans.Grace < time.Second {
		k.fault("orphans.grace", "%v: it is a second at least", c.Orphans.Grace)
	}
	k.between("limits.watches", c.Limits.Watches, 0, 1<<20)
	return k.faults
}

func (k *checks) name(path, value string, required bool) {
	if value == "" && !required {
		return
	}
	if !namePattern.MatchString(value) {
		k.fault(path, "%q: letters, digits, dots, dashes and underscores, at most 63, beginning and ending with a letter or digit", value)
	}
}

func (k *checks) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.fault(path, "%q: it is one of %s", value, strings.Join(allowed, ", "))
	}
}

func (k *checks) between(path string, value, low, high int) {
	if value < low || value > high {
		k.fault(path, "%d: it is between %d and %d", value, low, high)
	}
}

// address reads "ip:port"; a fault and false where it is none.
func (k *checks) address(path, value string) (netip.AddrPort, bool) {
	addr, err := netip.ParseAddrPort(value)
	if err != nil {
		k.fault(path, "%q: write it as ip:port, such as 10.0.0.5:%s", value, PeerPort)
	}
	return addr, err == nil
}

func (c Config) checkPorts(k *checks) {
	used := map[netip.AddrPort]string{}
	for _, port := range []struct{ path, addr, advertise string }{
		{"http", c.HTTP.Addr, ""}, {"peer", c.Peer.Addr, c.Peer.Advertise}, {"gossip", c.Gossip.Addr, c.Gossip.Advertise},
	} {
		addr, ok := k.address(port.path+".addr", port.addr)
		if !ok {
			continue
		}
		if other, taken := used[addr]; taken && addr.Port() != 0 {
			k.fault(port.path+".addr", "%s is %s's already: every port needs its own", port.addr, other)
		}
		used[addr] = port.path + ".addr"
		if c.Dev && !addr.Addr().IsLoopback() {
			k.fault(port.path+".addr", "%s is not loopback: dev mode has no TLS and no tokens, so it stays on 127.0.0.1; leave dev out for a real mesh",
				port.addr)
		}
		if port.advertise == "" {
			continue
		}
		advertise, ok := k.address(port.path+".advertise", port.advertise)
		switch {
		case !ok:
		case advertise.Addr().IsUnspecified() || advertise.Port() == 0:
			k.fault(port.path+".advertise", "%s: others cannot reach that, give the address and port they see", port.advertise)
		case c.Dev && !advertise.Addr().IsLoopback():
			k.fault(port.path+".advertise", "%s is not loopback: dev mode stays on 127.0.0.1", port.advertise)
		}
	}
}

func (c Config) checkHTTP(k *checks) {
	switch {
	case c.HTTP.TLSCert != "" && c.HTTP.TLSKey == "":
		k.fault("http.tls_cert", "there is no http.tls_key for it")
	case c.HTTP.TLSCert == "" && c.HTTP.TLSKey != "":
		k.fault("http.tls_key", "there is no http.tls_cert for it")
	case c.HTTP.TLSCert != "" && c.HTTP.InsecurePlaintext:
		k.fault("http.insecure_plaintext", "there is a certificate in http.tls_cert: decide for one")
	case c.HTTP.TLSCert != "":
		if _, err := tls.LoadX509KeyPair(c.HTTP.TLSCert, c.HTTP.TLSKey); err != nil {
			path := "http.tls_cert"
			var pe *fs.PathError
			if errors.As(err, &pe) && pe.Path == c.HTTP.TLSKey {
				path = "http.tls_key"
			}
			k.fault(path, "%v", err)
		}
	}
	for i, name := range c.HTTP.Names {
		if _, err := netip.ParseAddr(name); err != nil && !validHost(name) {
			k.fault(fmt.Sprintf("http.names[%d]", i), "%q is neither a host name nor an address", name)
		}
	}
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\.?$`)

func validHost(name string) bool { return len(name) <= 253 && hostPattern.MatchString(name) }

func (c Config) checkMesh(k *checks) {
	for i, addr := range c.Join {
		path := fmt.Sprintf("join[%d]", i)
		if _, err := netip.ParseAddr(addr); err == nil {
			continue
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = addr, GossipPort
		}
		if _, err := netip.ParseAddr(host); err != nil && !validHost(host) {
			k.fault(path, "%q: write it as host or host:port of a gossip port", addr)
		} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			k.fault(path, "%q: the port is a number from 1 to 65535", addr)
		}
	}
	switch {
	case !c.JoinToken.IsZero() && c.JoinTokenFile != "":
		k.fault("join_token", "join_token_file is set too: decide for one")
	case !c.JoinToken.IsZero():
		if _, err := identity.ParseToken(c.JoinToken.Reveal()); err != nil {
			k.fault("join_token", "%v", err)
		}
	case c.JoinTokenFile != "":
		if _, err := identity.LoadTokenFile(c.JoinTokenFile); err != nil {
			k.fault("join_token_file", "%v", err)
		}
	}
	if !slices.Contains([]int{0, 1, 3, 5}, c.BootstrapExpect) {
		k.fault("bootstrap_expect", "%d: it is 1, 3 or 5 (an even number survives no more failures than the odd one below it), or 0 to wait for a group",
			c.BootstrapExpect)
	}
	if c.BootstrapExpect == 1 && c.joinsOthers() {
		k.fault("bootstrap_expect", "1 begins a mesh of this agent alone, but join names others: leave it out (0) to join theirs, or say on all of them how many begin one together")
	}
	if c.BootstrapExpect > 0 && !c.Eligible {
		k.fault("bootstrap_expect", "%d, but eligible is false: an agent that may not be a voter cannot start the group", c.BootstrapExpect)
	}
}

// joinsOthers says whether join names anybody but this agent.
func (c Config) joinsOthers() bool {
	return slices.ContainsFunc(c.Join, func(addr string) bool {
		if _, err := netip.ParseAddr(addr); err == nil || !strings.Contains(addr, ":") {
			addr = net.JoinHostPort(addr, GossipPort)
		}
		return addr != c.Gossip.Addr && addr != c.Gossip.Advertise
	})
}

func (c Config) checkWork(k *checks) {
	k.between("worker.slots", c.Worker.Slots, 0, 10000)
	seen := map[string]bool{}
	for i, p := range c.Plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if !namePattern.MatchString(p.Name) {
			k.fault(path+".name", "%q is no name of a plugin", p.Name)
		} else if seen[p.Name] {
			k.fault(path+".name", "%s is in the list already", p.Name)
		}
		seen[p.Name] = true
		if p.Path != "" && !filepath.IsAbs(p.Path) && !filepath.IsLocal(p.Path) {
			k.fault(path+".path", "%q leads out of plugin_dir: give an absolute path", p.Path)
		}
		if p.Checksum != "" && !checksumPattern.MatchString(p.Checksum) {
			k.fault(path+".checksum", "%q: write it as sha256:<64 hex digits>", p.Checksum)
		}
	}
}

// MeshSecret is the secret that the configuration names, zero where it names none.
func (c Config) MeshSecret() (identity.Secret, error) {
	switch {
	case !c.JoinToken.IsZero():
		return identity.ParseToken(c.JoinToken.Reveal())
	case c.JoinTokenFile != "":
		return identity.LoadTokenFile(c.JoinTokenFile)
	}
	return identity.Secret{}, nil
}

// HTTPSecurity is how the API's port is protected.
type HTTPSecurity int

// The ways, in the order they are chosen.
const (
	// PlainLoopback is dev mode.
	PlainLoopback HTTPSecurity = iota
	// PlainBehindProxy was asked for with insecure_plaintext.
	PlainBehindProxy
	// OwnCertificate is the operator's tls_cert and tls_key.
	OwnCertificate
	// MeshCertificate is one of the mesh's CA: whoever has given nothing has TLS all the same.
	MeshCertificate
)

// HTTPSecurity tells how the API's port is protected.
func (c Config) HTTPSecurity() HTTPSecurity {
	switch {
	case c.Dev:
		return PlainLoopback
	case c.HTTP.InsecurePlaintext:
		return PlainBehindProxy
	case c.HTTP.TLSCert != "":
		return OwnCertificate
	}
	return MeshCertificate
}
