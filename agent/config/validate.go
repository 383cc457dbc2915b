package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/identity"
)

// Validate returns everything that is wrong with a configuration as Faults, or nil.
func (c Config) Validate() error { return c.check().Err() }

// within reports whether a path is a folder or in it.
func within(path, folder string) bool {
	at, err := filepath.Abs(path)
	in, err2 := filepath.Abs(folder)
	if err != nil || err2 != nil {
		return false
	}
	rel, err := filepath.Rel(in, at)
	return err == nil && filepath.IsLocal(rel)
}

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
		k.fault("data_dir", "it is empty; an agent needs a directory of its own")
	}
	if c.WorkDir != "" && c.DataDir != "" && within(c.WorkDir, c.DataDir) {
		k.fault("work_dir", "%s is in data_dir, which plugins cannot read: use another folder", c.WorkDir)
	}
	c.checkKeyring(k)
	k.between("isolation.processes", c.Isolation.Processes, 0, 1<<20)
	k.between("isolation.files", c.Isolation.Files, 0, 1<<20)
	c.checkPorts(k)
	c.checkHTTP(k)
	c.checkMesh(k)
	c.checkWork(k)
	c.checkDirectories(k)
	if u, err := url.Parse(c.Issuer); c.Issuer != "" && (err != nil || u.Host == "" || c.Issuer != "https://"+u.Host+u.Path ||
		strings.HasSuffix(u.Path, "/")) {
		k.fault("issuer", "%q: write it as https://HOST or https://HOST/PATH, without a slash at its end", c.Issuer)
	}
	c.checkSinks(k)
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "text", "json")
	k.oneOf("raft.store", c.Raft.Store, "boltdb", "wal")
	k.between("gossip.expect", c.Gossip.Expect, 0, 10_000)
	k.between("raft.multiplier", c.Raft.Multiplier, 1, 10)
	k.between("raft.snapshot_threshold", c.Raft.SnapshotThreshold, 1, 1<<30)
	k.between("raft.trailing_logs", c.Raft.TrailingLogs, 1, 1<<30)
	if c.Raft.SnapshotInterval <= 0 {
		k.fault("raft.snapshot_interval", "%v: it must be more than 0", c.Raft.SnapshotInterval)
	}
	if c.Limits.Body < 1<<10 {
		k.fault("limits.body", "%v: it must be at least 1KiB", c.Limits.Body)
	}
	k.between("limits.http_conns", c.Limits.HTTPConns, 0, 1<<20)
	k.between("limits.peer_conns", c.Limits.PeerConns, 0, 1<<20)
	c.checkRetention(k)
	if c.Audit.Retention < time.Hour {
		k.fault("audit.retention", "%v: it must be at least an hour", c.Audit.Retention)
	}
	k.between("audit.records", c.Audit.Records, 1000, 1<<30)
	if c.Audit.Memory < 1<<20 {
		k.fault("audit.memory", "%v: it must be at least 1MiB", c.Audit.Memory)
	}
	if c.Orphans.Every < time.Second {
		k.fault("orphans.every", "%v: it must be at least a second", c.Orphans.Every)
	}
	if c.Orphans.Grace < time.Second {
		k.fault("orphans.grace", "%v: it must be at least a second", c.Orphans.Grace)
	}
	k.between("limits.strangers", c.Limits.Strangers, 0, 1<<20)
	k.between("limits.watches", c.Limits.Watches, 0, 1<<20)
	return k.faults
}

func (c Config) checkRetention(k *checks) {
	r := c.Retention
	for _, s := range []struct {
		path  string
		value time.Duration
	}{
		{"clusters", r.Clusters}, {"operations", r.Operations}, {"requests", r.Requests}, {"logs", r.Logs},
	} {
		if s.value < time.Minute {
			k.fault("retention."+s.path, "%v: it must be at least a minute", s.value)
		}
	}
	k.between("retention.cluster_count", r.ClusterCount, 1, 1<<20)
	if r.LogSize < 1<<20 {
		k.fault("retention.log_size", "%v: it must be at least 1MiB", r.LogSize)
	}
}

func (k *checks) name(path, value string, required bool) {
	if value == "" && !required {
		return
	}
	if !namePattern.MatchString(value) {
		k.fault(path, "%q: a name has at most 63 letters, digits, dots, dashes and underscores, and starts and ends "+
			"with a letter or digit", value)
	}
}

func (k *checks) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.fault(path, "%q: it must be one of %s", value, strings.Join(allowed, ", "))
	}
}

func (k *checks) between(path string, value, low, high int) {
	if value < low || value > high {
		k.fault(path, "%d: it must be between %d and %d", value, low, high)
	}
}

// address parses "ip:port". It adds a fault and returns false if value is not one.
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
			k.fault(port.path+".addr", "%s is also the value of %s: every port needs its own address", port.addr, other)
		}
		used[addr] = port.path + ".addr"
		if c.Dev && !addr.Addr().IsLoopback() {
			k.fault(port.path+".addr", "%s is not loopback: dev mode has no TLS and no join token, so it is limited to 127.0.0.1; a real mesh "+
				"must not use dev mode",
				port.addr)
		}
		if port.advertise == "" {
			continue
		}
		advertise, ok := k.address(port.path+".advertise", port.advertise)
		switch {
		case !ok:
		case advertise.Addr().IsUnspecified() || advertise.Port() == 0:
			k.fault(port.path+".advertise", "%s: other agents cannot reach this address; set the address and port that they use", port.advertise)
		case c.Dev && !advertise.Addr().IsLoopback():
			k.fault(port.path+".advertise", "%s is not loopback: dev mode is limited to 127.0.0.1", port.advertise)
		}
	}
}

func (c Config) checkHTTP(k *checks) {
	switch {
	case c.HTTP.TLSCert != "" && c.HTTP.TLSKey == "":
		k.fault("http.tls_cert", "http.tls_key is missing")
	case c.HTTP.TLSCert == "" && c.HTTP.TLSKey != "":
		k.fault("http.tls_key", "http.tls_cert is missing")
	case c.HTTP.TLSCert != "" && c.HTTP.InsecurePlaintext:
		k.fault("http.insecure_plaintext", "http.tls_cert is set too: remove one of the two")
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
		if _, err := netip.ParseAddr(name); err != nil && !model.IsHostName(name) {
			k.fault(fmt.Sprintf("http.names[%d]", i), "%q is neither a host name nor an address", name)
		}
	}
}

func (c Config) checkMesh(k *checks) {
	for i, network := range c.Providers.Endpoints {
		if _, err := netip.ParsePrefix(network); err != nil {
			k.fault(fmt.Sprintf("providers.endpoints[%d]", i), "%q: write it as a network, such as 127.0.0.0/8", network)
		}
	}
	for i, addr := range c.Join {
		path := fmt.Sprintf("join[%d]", i)
		if _, err := netip.ParseAddr(addr); err == nil {
			continue
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = addr, GossipPort
		}
		if _, err := netip.ParseAddr(host); err != nil && !model.IsHostName(host) {
			k.fault(path, "%q: write it as host or host:port of a gossip port", addr)
		} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			k.fault(path, "%q: the port must be a number from 1 to 65535", addr)
		}
	}
	switch {
	case !c.JoinToken.IsZero() && c.JoinTokenFile != "":
		k.fault("join_token", "join_token_file is set too: remove one of the two")
	case !c.JoinToken.IsZero():
		if err := identity.CheckToken(c.JoinToken.Reveal()); err != nil {
			k.fault("join_token", "%v", err)
		}
	case c.JoinTokenFile != "":
		text, err := identity.ReadTokenFile(c.JoinTokenFile)
		if err == nil {
			err = identity.CheckToken(text)
		}
		if errors.Is(err, fs.ErrNotExist) && c.joined() {
			err = nil // it was used, and removed
		}
		if err != nil {
			k.fault("join_token_file", "%v", err)
		}
	}
	if !slices.Contains([]int{0, 1, 3, 5}, c.BootstrapExpect) {
		k.fault("bootstrap_expect", "%d: it must be 1, 3 or 5 (an even number survives no more failures than the odd number below it), or 0 "+
			"to wait for a group",
			c.BootstrapExpect)
	}
	if c.BootstrapExpect == 1 && c.joinsOthers() {
		k.fault("bootstrap_expect", "1 starts a mesh of this agent alone, but join names other agents: remove it (0) to join their mesh, or "+
			"set the number of agents that start a mesh together, on all of them")
	}
	if c.BootstrapExpect > 0 && !c.Eligible {
		k.fault("bootstrap_expect", "%d, but eligible is false: an agent that cannot be a voter cannot start the group", c.BootstrapExpect)
	}
}

// joinsOthers reports whether join names an agent other than this one.
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
	for i, entry := range c.Interpreters {
		if why := hostexec.CheckInterpreter(entry); why != "" {
			k.fault(fmt.Sprintf("interpreters[%d]", i), "%s", why)
		}
	}
	seen := map[string]bool{}
	for i, p := range c.Plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if !namePattern.MatchString(p.Name) {
			k.fault(path+".name", "%q is not a valid plugin name", p.Name)
		} else if seen[p.Name] {
			k.fault(path+".name", "%s is in the list twice", p.Name)
		}
		seen[p.Name] = true
		if p.Path != "" && !filepath.IsAbs(p.Path) && !filepath.IsLocal(p.Path) {
			k.fault(path+".path", "%q is outside plugin_dir: use an absolute path", p.Path)
		}
		for _, l := range []struct {
			path  string
			paths []string
		}{{".reads", p.Reads}, {".writes", p.Writes}} {
			for j, at := range l.paths {
				if !filepath.IsAbs(at) {
					k.fault(fmt.Sprintf("%s%s[%d]", path, l.path, j), "%q is not an absolute path", at)
				}
			}
		}
		if p.Checksum != "" && !checksumPattern.MatchString(p.Checksum) {
			k.fault(path+".checksum", "%q: write it as sha256:<64 hex digits>", p.Checksum)
		}
	}
}

// joined reports whether the agent belongs to a mesh already, so that it needs no join token.
func (c Config) joined() bool {
	for _, name := range []string{"identity", "mesh-secret"} {
		if _, err := os.Stat(filepath.Join(c.DataDir, name)); c.DataDir != "" && err == nil {
			return true
		}
	}
	return false
}

// JoinText returns the configured join token, or "" if there is none.
func (c Config) JoinText() (string, error) {
	if c.JoinTokenFile != "" && c.JoinToken.IsZero() {
		text, err := identity.ReadTokenFile(c.JoinTokenFile)
		return strings.TrimSpace(text), err
	}
	return c.JoinToken.Reveal(), nil
}

// APINames returns the host names and addresses under which clients reach this agent's API.
func (c Config) APINames() []string {
	names := append([]string{c.Name}, c.HTTP.Names...)
	advertised, _ := Advertised("peer.advertise", c.Peer.Addr, c.Peer.Advertise) // the agent reports an error when it binds the port
	for _, addr := range []string{c.HTTP.Addr, c.Peer.Addr, advertised} {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() || host == "" {
			continue
		}
		names = append(names, host)
	}
	slices.Sort(names)
	return slices.Compact(slices.DeleteFunc(names, func(n string) bool { return n == "" }))
}

// HTTPSecurity is how the API's port is protected.
type HTTPSecurity int

// The kinds of protection. HTTPSecurity chooses the first that applies.
const (
	// PlainLoopback is plain HTTP on loopback, in dev mode.
	PlainLoopback HTTPSecurity = iota
	// PlainBehindProxy is plain HTTP, on request (insecure_plaintext).
	PlainBehindProxy
	// OwnCertificate is TLS with the operator's tls_cert and tls_key.
	OwnCertificate
	// MeshCertificate is TLS with a certificate of the mesh's CA, the default.
	MeshCertificate
)

// HTTPSecurity returns how the API's port is protected.
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
