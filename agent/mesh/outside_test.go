package mesh

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

var discard = slog.New(slog.DiscardHandler)

// These tests use real sockets, files, names and logs.

func TestRealSockets(t *testing.T) {
	var meshes []*Mesh
	ctx, cancel := context.WithCancel(context.Background())
	var done []chan error
	for i := range 3 {
		cfg := Config{ID: idOf(i), Bind: "127.0.0.1:0", GossipKeys: [][]byte{testKey}}
		if i > 0 {
			cfg.Join = []string{meshes[0].Addr()}
		}
		m, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ch := make(chan error, 1)
		go func() { ch <- m.Run(ctx) }()
		meshes, done = append(meshes, m), append(done, ch)
	}
	for _, m := range meshes {
		changed, stop := m.Subscribe()
		for countStatus(m, StatusAlive) != 3 {
			select {
			case <-changed:
			case <-time.After(30 * time.Second):
				t.Fatal("not complete:", m.Members())
			}
		}
		stop()
	}
	if n, err := meshes[1].Join(ctx, []string{"localhost:" + port(meshes[2].Addr())}); n != 1 || err != nil {
		t.Error(n, err)
	}
	cancel()
	for _, ch := range done {
		if err := <-ch; err != nil {
			t.Error(err)
		}
	}
	// The ports are free again.
	l, err := net.Listen("tcp", meshes[0].Addr())
	if err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
	if _, err := meshes[0].Join(context.Background(), []string{meshes[1].Addr()}); !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
	time.Sleep(2 * quick.ProbeInterval) // memberlist's last probes
}

func port(addr string) string { _, p, _ := net.SplitHostPort(addr); return p }

func TestShutdownEndsHangingDials(t *testing.T) {
	s, err := openSockets(netip.MustParseAddrPort("127.0.0.1:0"), discard)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	far := <-s.StreamCh()
	read := make(chan error, 1)
	go func() { _, err := far.Read(make([]byte, 1)); read <- err }()
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := <-read; err == nil {
		t.Error("a stream outlives its port")
	}
	if _, err := s.DialAddressTimeout(memberlist.Address{Addr: "127.0.0.1:1"}, time.Hour); err == nil {
		t.Error("a dial after shutdown")
	}
	if err := s.Shutdown(); err != nil {
		t.Error("shutting down twice:", err)
	}
	conn.Close()
}

func TestNewRefusesNonsenseAllAtOnce(t *testing.T) {
	_, err := New(Config{GossipKeys: [][]byte{[]byte("short")}, Self: Self{Name: strings.Repeat("x", 600)}})
	var long *TagsTooLongError
	if err == nil || !errors.As(err, &long) {
		t.Fatal(err)
	}
	for _, want := range []string{"no agent id", "neither a gossip address", "gossip key", "shorten name, which has 600"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	for bind, advertise := range map[string]string{"0.0.0.0:0": "", "localhost": "", "127.0.0.1:0": "x"} {
		if m, err := New(Config{ID: idOf(1), Bind: bind, Advertise: advertise}); err == nil {
			t.Errorf("%s %s is accepted", bind, advertise)
			m.Close()
		}
	}
	m, err := New(Config{ID: idOf(1), Bind: "0.0.0.0:0", Advertise: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(m.Addr(), ":0") || !strings.HasPrefix(m.Addr(), "127.0.0.1:") {
		t.Error(m.Addr())
	}
	m.Close()
}

func TestBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	peers := dir + "/peers"
	os.WriteFile(peers, []byte("{broken"), 0o600)
	m, err := New(Config{ID: idOf(1), Bind: "127.0.0.1:0", PeersFile: peers})
	if err != nil {
		t.Fatal("a broken peers file is only a loss of memory:", err)
	}
	m.Close()
}

func TestEpochGrowsWithEveryStart(t *testing.T) {
	path := t.TempDir() + "/peers"
	future := uint64(time.Now().Add(1000 * time.Hour).UnixMilli())
	last := uint64(0)
	for i := range 3 {
		m, err := New(Config{ID: idOf(1), Bind: "127.0.0.1:0", PeersFile: path})
		if err != nil {
			t.Fatal(err)
		}
		if m.Epoch() <= last {
			t.Error("the epoch went from", last, "to", m.Epoch())
		}
		if i == 0 {
			m.epoch = future // simulates a clock that was wrong
		}
		last = m.Epoch()
		m.savePeers()
		m.Close()
	}
}

func TestNamesAreResolved(t *testing.T) {
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "seed.example.org" {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.2"), netip.MustParseAddr("fd00::1")}, nil
	}
	m := &Mesh{cfg: Config{Lookup: lookup}}
	for addr, want := range map[string]string{
		"seed.example.org":    "[10.0.0.1:55056 10.0.0.2:55056 [fd00::1]:55056]",
		"seed.example.org:77": "[10.0.0.1:77 10.0.0.2:77 [fd00::1]:77]",
		"10.0.0.9":            "[10.0.0.9:55056]", "10.0.0.9:7": "[10.0.0.9:7]", "fd00::2": "[[fd00::2]:55056]", "[fd00::2]:7": "[[fd00::2]:7]",
	} {
		got, err := m.cfg.resolve(context.Background(), addr)
		if text := strings.TrimSpace(sprint(got)); text != want || err != nil {
			t.Errorf("%s is %s, %v", addr, text, err)
		}
	}
	for _, addr := range []string{"other.example.org", "10.0.0.1:port", ""} {
		if got, err := m.cfg.resolve(context.Background(), addr); err == nil {
			t.Errorf("%q is %v", addr, got)
		}
	}
}

func sprint(addrs []netip.AddrPort) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return "[" + strings.Join(out, " ") + "]"
}

func TestLibraryLinesBecomeRecords(t *testing.T) {
	var out strings.Builder
	l := newLogBridge(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.Printf("[ERR] memberlist: Failed fallback TCP ping: %s", "timeout")
	l.Printf("[WARN] serf: something")
	l.Printf("[DEBUG] memberlist: invisible")
	l.Printf("no level at all")
	want := []string{`level=WARN msg="Failed fallback TCP ping: timeout" library=memberlist`, `level=DEBUG msg=something library=serf`,
		`level=DEBUG msg="no level at all"`}
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			t.Errorf("no %s in\n%s", w, out.String())
		}
	}
	if strings.Contains(out.String(), "invisible") {
		t.Error("traces at debug level")
	}
}
