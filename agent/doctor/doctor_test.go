package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/peer"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

func TestMain(m *testing.M) {
	confine.Hook()
	goleak.VerifyTestMain(m)
}

// healthy returns the configuration of an agent of a mesh, which does not run. Nothing is wrong with it.
func healthy(t *testing.T) config.Config {
	t.Helper()
	dir := t.TempDir()
	cfg := config.Default(false)
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.PluginDir = filepath.Join(dir, "plugins")
	cfg.HTTP.Addr, cfg.Peer.Addr, cfg.Gossip.Addr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	for _, d := range []string{cfg.DataDir, cfg.PluginDir} {
		must(t, os.MkdirAll(d, 0o700))
	}
	must(t, os.WriteFile(filepath.Join(cfg.PluginDir, "coopr-provider-some"), []byte("plugin"), 0o755))
	must(t, keyring.InDir(cfg.KeyringDir()).Save(keyring.Set{Keys: []keyring.Key{keyring.NewKey(1)}, Active: 1}))
	found(t, cfg, time.Now(), 24*time.Hour, nil)
	return cfg
}

// found makes the agent of a folder the first one of a mesh, with certificates from a time on.
func found(t *testing.T, cfg config.Config, from time.Time, lifetime time.Duration, peers []string) *identity.Identity {
	t.Helper()
	id, err := identity.LoadOrCreateID(cfg.DataDir)
	must(t, err)
	m, _, err := identity.Found()
	must(t, err)
	m, err = m.Complete(id, []string{"127.0.0.1"}, from, lifetime)
	must(t, err)
	m.Birth, m.Peers = nil, peers
	must(t, m.Save(cfg.DataDir))
	i, err := identity.Open("", id, []string{"127.0.0.1"}, lifetime, m)
	must(t, err)
	return i
}

// sealed encrypts the identity of an agent with its keyring.
func sealed(t *testing.T, cfg config.Config) {
	t.Helper()
	set, err := keyring.InDir(cfg.KeyringDir()).Load()
	must(t, err)
	m, err := identity.LoadMembership(cfg.DataDir)
	must(t, err)
	must(t, m.Save(cfg.DataDir, keyring.NewCipher(set.Keys[0])))
}

// TestLocked examines an agent whose keyring is locked with a passphrase. Nothing is wrong with it, but for what needs the keys.
func TestLocked(t *testing.T) {
	cfg := healthy(t)
	sealed(t, cfg)
	if level, text := result(Examine(t.Context(), cfg, "1"), "identity"); level != OK {
		t.Error("an identity that the keyring opens:", text)
	}
	cfg.Keyring.Kind = keyring.KindPassphrase
	p := keyring.WithPassphrase(cfg.KeyringDir())
	must(t, p.Change([]byte("correct horse battery")))
	must(t, keyring.Convert(keyring.InDir(cfg.KeyringDir()), p))
	list := Examine(t.Context(), cfg, "1")
	for check, want := range map[string]Level{"identity": OK, "keyring": OK, "peers": Warn} {
		if level, text := result(list, check); level != want || check != "identity" && !strings.Contains(text, "locked") {
			t.Errorf("%s is %s: %s", check, level, text)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// result returns the findings of one check.
func result(list []Finding, check string) (level Level, text string) {
	var of []Finding
	for _, f := range list {
		if f.Check == check {
			of = append(of, f)
			text += f.Message + "\n"
		}
	}
	return Worst(of), text
}

// A healthy agent has no failure. The clock and the grade are those of the machine that tests run on.
func TestHealthy(t *testing.T) {
	cfg := healthy(t)
	list := Examine(t.Context(), cfg, "1")
	var checks []string
	for _, f := range list {
		if !slices.Contains(checks, f.Check) {
			checks = append(checks, f.Check)
		}
		if (f.Level != OK || f.Advice != "") && !slices.Contains([]string{"clock", "confinement", "disk"}, f.Check) {
			t.Errorf("%+v", f)
		}
	}
	if got := strings.Join(checks, " "); got != "configuration data_dir identity certificate keyring disk journal log ports limits clock plugins confinement peers" {
		t.Errorf("the checks were %s", got)
	}
	if left, err := filepath.Glob(filepath.Join(cfg.DataDir, ".doctor*")); err != nil || len(left) > 0 {
		t.Errorf("the examination left %v, %v", left, err)
	}
}

// Each check is seen to fail for each of its reasons, and no other check fails with it.
func TestBroken(t *testing.T) {
	write := func(t *testing.T, path, content string, mode os.FileMode) {
		t.Helper()
		must(t, os.WriteFile(path, []byte(content), mode))
		must(t, os.Chmod(path, mode))
	}
	for _, tt := range []struct {
		name, check string
		level       Level
		says        string
		damage      func(t *testing.T, cfg *config.Config)
	}{
		{"open folder", "data_dir", Fail, "mode 0755", func(t *testing.T, cfg *config.Config) { must(t, os.Chmod(cfg.DataDir, 0o755)) }},
		{"damaged id", "data_dir", Fail, "agent-id", func(t *testing.T, cfg *config.Config) { write(t, cfg.DataDir+"/agent-id", "?", 0o600) }},
		{"file for a folder", "data_dir", Fail, "not a folder", func(t *testing.T, cfg *config.Config) {
			must(t, os.RemoveAll(cfg.DataDir))
			write(t, cfg.DataDir, "", 0o600)
		}},
		{"no identity", "identity", Fail, "no mesh", func(t *testing.T, cfg *config.Config) { must(t, os.Remove(cfg.DataDir+"/identity")) }},
		{"bad token", "identity", Fail, "join token", func(t *testing.T, cfg *config.Config) {
			must(t, os.Remove(cfg.DataDir+"/identity"))
			cfg.JoinTokenFile = cfg.DataDir + "/token"
			write(t, cfg.JoinTokenFile, "none\n", 0o600)
		}},
		{"open identity", "identity", Fail, "0644", func(t *testing.T, cfg *config.Config) { must(t, os.Chmod(cfg.DataDir+"/identity", 0o644)) }},
		{"ended", "identity", Warn, "ended", func(t *testing.T, cfg *config.Config) { found(t, *cfg, time.Now().Add(-48*time.Hour), time.Hour, nil) }},
		{"ended long ago", "identity", Fail, "too long", func(t *testing.T, cfg *config.Config) {
			found(t, *cfg, time.Now().Add(-100*24*time.Hour), time.Hour, nil)
		}},
		{"clock behind", "identity", Fail, "behind", func(t *testing.T, cfg *config.Config) { found(t, *cfg, time.Now().Add(48*time.Hour), time.Hour, nil) }},
		{"certificate ended", "certificate", Fail, "ended on", func(t *testing.T, cfg *config.Config) { certificate(t, cfg, -time.Hour) }},
		{"certificate ends", "certificate", Warn, "ends on", func(t *testing.T, cfg *config.Config) { certificate(t, cfg, time.Hour) }},
		{"no certificate", "certificate", Fail, "no such file", func(t *testing.T, cfg *config.Config) { cfg.HTTP.TLSCert, cfg.HTTP.TLSKey = "/nowhere", "/nowhere" }},
		{"open keyring", "keyring", Fail, "0755", func(t *testing.T, cfg *config.Config) { must(t, os.Chmod(cfg.KeyringDir(), 0o755)) }},
		{"damaged keyring", "keyring", Fail, "keys", func(t *testing.T, cfg *config.Config) { write(t, cfg.KeyringDir()+"/keys", "damaged", 0o600) }},
		{"another keyring", "identity", Fail, "another voter's", func(t *testing.T, cfg *config.Config) {
			sealed(t, *cfg)
			must(t, keyring.InDir(cfg.KeyringDir()).Save(keyring.Set{Keys: []keyring.Key{keyring.NewKey(1)}, Active: 1}))
		}},
		{"server away", "keyring", Warn, "does not answer", func(t *testing.T, cfg *config.Config) {
			must(t, os.RemoveAll(cfg.KeyringDir()))
			cfg.Keyring.Kind = keyring.KindTransit
			cfg.Keyring.Transit = config.Transit{Address: "https://127.0.0.1:1", Key: "k", TokenFile: cfg.DataDir + "/token"}
			write(t, cfg.Keyring.Transit.TokenFile, "token", 0o600)
		}},
		{"program refuses", "keyring", Fail, "no rights", func(t *testing.T, cfg *config.Config) {
			must(t, os.RemoveAll(cfg.KeyringDir()))
			cfg.Keyring.Kind, cfg.Keyring.Program.Path = keyring.KindProgram, cfg.DataDir+".program"
			write(t, cfg.Keyring.Program.Path, "#!/bin/sh\necho no rights >&2; exit 1\n", 0o700)
		}},
		{"damaged journal", "journal", Warn, "damaged", func(t *testing.T, cfg *config.Config) {
			write(t, cfg.DataDir+"/journal", strings.Repeat("damaged", 20), 0o600)
		}},
		{"damaged log", "log", Fail, "raft", func(t *testing.T, cfg *config.Config) {
			must(t, os.MkdirAll(cfg.DataDir+"/raft", 0o700))
			write(t, cfg.DataDir+"/raft/raft.db", strings.Repeat("damaged", 5000), 0o600)
		}},
		{"port in use", "ports", Fail, "http.addr", func(t *testing.T, cfg *config.Config) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { l.Close() })
			cfg.HTTP.Addr = l.Addr().String()
		}},
		{"UDP port in use", "ports", Fail, "gossip.addr", func(t *testing.T, cfg *config.Config) {
			l, err := net.ListenPacket("udp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { l.Close() })
			cfg.Gossip.Addr = l.LocalAddr().String()
		}},
		{"no plugins", "plugins", Warn, "no plugins", func(t *testing.T, cfg *config.Config) { cfg.PluginDir = t.TempDir() }},
		{"open plugin", "plugins", Fail, "others may change", func(t *testing.T, cfg *config.Config) {
			must(t, os.Chmod(cfg.PluginDir+"/coopr-provider-some", 0o777))
		}},
		{"missing plugin", "plugins", Fail, "other", func(t *testing.T, cfg *config.Config) { cfg.Plugins = []config.Plugin{{Name: "provider-other"}} }},
		{"other plugin", "plugins", Fail, "checksum", func(t *testing.T, cfg *config.Config) {
			cfg.Plugins = []config.Plugin{{Name: "provider-some", Checksum: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("other")))}}
		}},
		{"no such user", "confinement", Fail, "nobody-of-that-name", func(t *testing.T, cfg *config.Config) { cfg.Isolation.User = "nobody-of-that-name" }},
		{"silent voter", "peers", Fail, "127.0.0.1:1 ", func(t *testing.T, cfg *config.Config) {
			found(t, *cfg, time.Now(), time.Hour, []string{"127.0.0.1:1"})
		}},
		{"another build", "peers", Warn, "runs build 2", func(t *testing.T, cfg *config.Config) { voter(t, cfg) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := healthy(t)
			tt.damage(t, &cfg)
			list := Examine(t.Context(), cfg, "1")
			if level, text := result(list, tt.check); level != tt.level || !strings.Contains(text, tt.says) {
				t.Errorf("%s is %s: %s", tt.check, level, text)
			}
			for _, f := range list {
				if f.Check == tt.check && f.Level != OK && f.Advice == "" {
					t.Errorf("%+v has no advice", f)
				}
			}
		})
	}
}

// An agent that runs has its ports and its log, which are not examined.
func TestRunning(t *testing.T) {
	cfg := healthy(t)
	lock, err := identity.LockDir(cfg.DataDir)
	must(t, err)
	defer lock.Release()
	if level, text := result(Examine(t.Context(), cfg, "1"), "ports"); level != OK || !strings.Contains(text, "runs") {
		t.Errorf("%s: %s", level, text)
	}
}

// TestFullDisk checks what Examine finds on a disk that is nearly full, and on one that is full. Only root may mount a small one.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	cfg := healthy(t)
	if err := unix.Mount("tmpfs", cfg.DataDir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Fatal(err)
	}
	defer func() { must(t, unix.Unmount(cfg.DataDir, 0)) }()
	if level, text := result(Examine(t.Context(), cfg, "1"), "disk"); level != Fail || !strings.Contains(text, "MiB are free") {
		t.Errorf("nearly full: %s: %s", level, text)
	}
	_ = os.WriteFile(cfg.DataDir+"/full", make([]byte, 2<<20), 0o600)
	if level, text := result(Examine(t.Context(), cfg, "1"), "disk"); level != Fail || !strings.Contains(text, "cannot be written") {
		t.Errorf("full: %s: %s", level, text)
	}
}

// The kernel and its limits cannot be broken for a test as they are; these are its answers.
func TestKernel(t *testing.T) {
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	e := exam{}
	e.clockState(5, nil)
	e.clockState(0, unix.EPERM)
	e.grade(confine.None, nil)
	e.grade(confine.Shared, []string{"the kernel is old"})
	for _, f := range e.findings {
		if f.Level != Warn || f.Advice == "" {
			t.Errorf("%+v", f)
		}
	}
	if f := Invalid(os.ErrInvalid); Worst(f) != Fail {
		t.Errorf("%+v", f)
	}
}

func certificate(t *testing.T, cfg *config.Config, left time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(left)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	cfg.HTTP.TLSCert, cfg.HTTP.TLSKey = filepath.Join(cfg.DataDir, "cert"), filepath.Join(cfg.DataDir, "key")
	must(t, os.WriteFile(cfg.HTTP.TLSCert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(cfg.HTTP.TLSKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// build2 answers as an agent of build 2.
type build2 struct{ pb.UnimplementedPeerServer }

func (build2) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Build: "2"}, nil
}

// voter serves the peer port of a voter, whom the agent knows.
func voter(t *testing.T, cfg *config.Config) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	id := found(t, *cfg, time.Now(), time.Hour, []string{addr})
	ctx, cancel := context.WithCancel(context.Background())
	mux, err := wire.NewMux(wire.MuxConfig{Network: wire.TCP(&wire.TLSConfigs{Server: id.ServerConfig(), Client: id.ClientConfig("")}), Addr: addr, Advertise: addr})
	must(t, err)
	s := peer.NewServer(build2{}, false)
	done := make(chan error, 2)
	go func() { done <- mux.Run(ctx) }()
	go func() { done <- s.Serve(mux.GRPC()) }()
	t.Cleanup(func() {
		s.Stop()
		cancel()
		<-done
		<-done
	})
}
