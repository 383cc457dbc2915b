package doctor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/executor"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/peer"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// ports checks that the agent can listen on its ports.
func (e *exam) ports() {
	if e.running {
		e.ok("ports", "the agent that runs has them")
		return
	}
	good := true
	for _, p := range []struct {
		path, addr string
		udp        bool
	}{{"http.addr", e.cfg.HTTP.Addr, false}, {"peer.addr", e.cfg.Peer.Addr, false}, {"gossip.addr", e.cfg.Gossip.Addr, true}} {
		l, err := net.Listen("tcp", p.addr)
		if err == nil {
			err = l.Close()
		}
		if err == nil && p.udp {
			var u net.PacketConn
			if u, err = net.ListenPacket("udp", p.addr); err == nil {
				err = u.Close()
			}
		}
		if err != nil {
			good = false
			e.fail("ports", "stop the program that has the port (ss -ltnup), or set "+p.path, "%s: %v", p.path, err)
		}
	}
	if good {
		e.ok("ports", "the ports are free")
	}
}

// limits checks the limits of the kernel on this process, which the agent has too if it is started in the same way.
func (e *exam) limits() {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		e.warn("limits", "", "the limit of open files: %v", err)
		return
	}
	if files.Max < leastFiles {
		e.warn("limits", "set LimitNOFILE=65536 in the unit, or raise ulimit -Hn",
			"a process may have %d open files; a busy agent needs %d", files.Max,
			leastFiles)
		return
	}
	e.ok("limits", "a process may have %d open files", files.Max)
}

// clock checks that something keeps the clock of this machine right.
func (e *exam) clock() {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	e.clockState(state, err)
}

func (e *exam) clockState(state int, err error) {
	const timeError = 5 // TIME_ERROR: the kernel's clock is not synchronised
	switch {
	case err != nil:
		e.warn("clock", "see that the clock is synchronised: timedatectl", "the state of the clock is unknown: %v", err)
	case state == timeError:
		e.warn("clock", "run chrony or systemd-timesyncd: certificates and leases need clocks that agree",
			"nothing synchronises the clock of this machine")
	default:
		e.ok("clock", "the clock is synchronised")
	}
}

// plugins checks that plugins are there, and those with checksums are the right ones.
func (e *exam) plugins() {
	var found []string
	good := true
	if dir := e.cfg.PluginDir; dir != "" {
		for _, pattern := range []string{"coopr-provider-*", "coopr-automator-*"} {
			list, err := filepath.Glob(filepath.Join(dir, pattern))
			if err == nil {
				found = append(found, list...)
			}
		}
		for _, file := range found {
			info, err := os.Stat(file)
			if err == nil && info.Mode()&0o022 != 0 {
				good = false
				e.fail("plugins", "chmod go-w "+file, "others may change the plugin %s", file)
			}
		}
	}
	for _, p := range e.cfg.Plugins {
		path := p.Path
		if path == "" {
			path = "coopr-" + p.Name
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(e.cfg.PluginDir, path)
		}
		sum, err := sumOf(path)
		switch {
		case err != nil:
			good = false
			e.fail("plugins", "install it, or remove it from the configuration", "plugin %s: %v", p.Name, err)
		case p.Checksum != "" && "sha256:"+sum != p.Checksum && filepath.Ext(path) == "":
			good = false
			e.fail("plugins", "install the right file, or correct the checksum if you have replaced the plugin",
				"plugin %s: %s has the checksum sha256:%s",
				p.Name, path, sum)
		}
	}
	switch {
	case good && len(found)+len(e.cfg.Plugins) == 0 && e.cfg.Worker.Slots > 0 && !e.cfg.Dev:
		e.warn("plugins", "install plugins to plugin_dir, or set worker.slots to 0",
			"there are no plugins in %q, so this agent can carry out no tasks",
			e.cfg.PluginDir)
	case good:
		e.ok("plugins", "%d files", len(found)+len(e.cfg.Plugins))
	}
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// confinement checks what keeps plugins away from the agent.
func (e *exam) confinement() {
	l, _, err := executor.OpenLauncher(e.cfg)
	if err != nil {
		e.fail("confinement", "correct the settings of isolation", "%v", err)
		return
	}
	e.grade(l.Grade(), l.Warnings())
}

func (e *exam) grade(grade confine.Grade, warnings []string) {
	switch {
	case grade == confine.None:
		e.warn("confinement", "use a kernel with Landlock, and allow its system calls in the unit", "nothing keeps plugins away from this agent")
	case len(warnings) > 0:
		e.warn("confinement", "see docs/operations.md, Isolation of plugins", "%s: %s", grade, strings.Join(warnings, "; "))
	default:
		e.ok("confinement", "the grade is %s", grade)
	}
}

// peers checks that the voters answer, and which builds they run.
func (e *exam) peers(ctx context.Context) {
	m := e.membership
	if m == nil || m.Mesh == "" || e.id == "" {
		e.ok("peers", "the agent knows none yet")
		return
	}
	if len(m.Sealed) > 0 {
		e.warn("peers", "see the check keyring", "the keyring is locked, so that the identity cannot be used to ask the other voters")
		return
	}
	id, err := identity.Open("", e.id, e.cfg.APINames(), 0, m)
	if err != nil {
		e.fail("peers", "see the check identity", "%v", err)
		return
	}
	network := wire.TCP(&wire.TLSConfigs{Client: id.ClientConfig("")})
	pool := peer.NewPool(func(ctx context.Context, addr string) (net.Conn, error) {
		return wire.Dial(ctx, network, addr, wire.ProtocolGRPC)
	})
	defer func() { _ = pool.Close() }()
	own, _ := config.Advertised("peer", e.cfg.Peer.Addr, e.cfg.Peer.Advertise)
	for _, addr := range m.Peers {
		if addr == own {
			continue
		}
		st, err := ask(ctx, pool, addr)
		switch {
		case err != nil:
			e.fail("peers", "see that the agent there runs, and that this machine reaches its port (nc -vz)",
				"the voter at %s does not answer: %v", addr, err)
		case st.Build != e.build:
			e.warn("peers", "finish the upgrade: all agents of a mesh should run one build", "the agent at %s runs build %s, and this is %s",
				addr, st.Build, e.build)
		default:
			e.ok("peers", "the voter at %s answers", addr)
		}
	}
	if len(m.Peers) == 0 || len(m.Peers) == 1 && m.Peers[0] == own {
		e.ok("peers", "there is no other voter")
	}
}

func ask(ctx context.Context, pool *peer.Pool, addr string) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	c, err := pool.Client(addr)
	if err != nil {
		return nil, err
	}
	return c.Status(ctx, &pb.StatusRequest{})
}
