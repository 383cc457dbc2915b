package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/wire"
	"github.com/coopr/coopr/testing/doubles/fabric"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// oldMesh is the secret of a mesh whose agents share one.
const oldMesh = "coopr-join-1-bb2rm4bbjbejwk5qythtb2pezf7lx2dxg7dn6ufu46k4vxhzqe7rqrziy4"

const (
	a = "10.0.0.1"
	b = "10.0.0.2"
)

// run starts a mux and returns a function that stops it and waits for its end.
func run(t testing.TB, cfg wire.MuxConfig) (*wire.Mux, func()) {
	t.Helper()
	m, err := wire.NewMux(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return m, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error("run:", err)
		}
	})
}

// echo sends everything that a listener's conns receive back after a prefix, until the listener closes.
func echo(l net.Listener, prefix string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			buf := make([]byte, 100)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				fmt.Fprintf(conn, "%s%s", prefix, buf[:n])
			}
		}()
	}
}

func ask(conn net.Conn, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

func TestEachProtocolReachesItsServer(t *testing.T) {
	secret, _ := identity.ParseToken(oldMesh)
	one, err := identity.New(secret, "00000000-0000-4000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	configs := &wire.TLSConfigs{Server: one.ServerConfig(), Client: one.ClientConfig("")}
	for name, network := range map[string]wire.Network{"plain": wire.TCP(nil), "tls": wire.TCP(configs)} {
		t.Run(name, func(t *testing.T) {
			m, stop := run(t, wire.MuxConfig{Network: network, Addr: "127.0.0.1:0"})
			defer stop()
			go echo(m.Raft(), "raft ")
			go echo(m.GRPC(), "grpc ")
			go echo(m.HTTP(), "http ")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			addr := m.Addr().String()
			if got, err := ask(m.DialGRPC(ctx, addr)); got != "grpc hello" {
				t.Error(got, err)
			}
			if got, err := ask(m.DialHTTP(ctx, addr)); got != "http hello" {
				t.Error(got, err)
			}
			if got, err := ask(m.Raft().Dial("ignored", 0)); err == nil {
				t.Error("a dial without time succeeds:", got)
			}
		})
	}
}

func TestServersSeeWhoCalls(t *testing.T) {
	secret, _ := identity.ParseToken(oldMesh)
	const oneID, twoID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
	one, _ := identity.New(secret, oneID)
	two, _ := identity.New(secret, twoID)
	server, stop := run(t, wire.MuxConfig{Network: wire.TCP(&wire.TLSConfigs{Server: one.ServerConfig(), Client: one.ClientConfig("")}),
		Addr: "127.0.0.1:0"})
	defer stop()
	seen := make(chan string, 1)
	go func() {
		conn, err := server.HTTP().Accept()
		if err != nil {
			return
		}
		p, err := identity.PeerOf(conn)
		seen <- fmt.Sprint(p.ID, " ", err)
		conn.Close()
	}()
	network := wire.TCP(&wire.TLSConfigs{Server: two.ServerConfig(), Client: two.ClientConfig("")})
	conn, err := wire.Dial(t.Context(), network, server.Addr().String(), wire.ProtocolHTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if p, err := identity.PeerOf(conn); p.ID != oneID || err != nil {
		t.Error("the client sees", p, err)
	}
	if got := <-seen; got != twoID+" <nil>" {
		t.Error("the server sees", got)
	}
}

// Silent, slow and invalid clients do not delay others, and their conns end after the handshake time-out.
func TestBadClientsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		m, stop := run(t, wire.MuxConfig{Network: f.Host(b), Addr: b + ":55055", HandshakeTimeout: 5 * time.Second})
		go echo(m.GRPC(), "grpc ")
		var silent []net.Conn
		for range 50 {
			conn, err := f.Host(a).Dial(t.Context(), b+":55055")
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, conn)
		}
		mad, _ := f.Host(a).Dial(t.Context(), b+":55055")
		mad.Write([]byte("\x00\xff rubbish"))
		if _, err := mad.Read(make([]byte, 1)); err == nil {
			t.Error("rubbish got an answer")
		}
		begin := time.Now()
		if got, err := ask(wire.Dial(t.Context(), f.Host(a), b+":55055", wire.ProtocolGRPC)); got != "grpc hello" || time.Since(begin) != 0 {
			t.Error(got, err, time.Since(begin))
		}
		for _, conn := range silent {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("silence got an answer")
			}
			conn.Close()
		}
		if waited := time.Since(begin); waited != 5*time.Second {
			t.Error("silent clients were cut after", waited)
		}
		mad.Close()
		stop()
	})
}

func TestTLSHandshakeHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, _ := identity.ParseToken(oldMesh)
		one, _ := identity.New(secret, "00000000-0000-4000-8000-000000000001")
		f := fabric.New(1)
		network := wire.WithTLS(f.Host(b), wire.TLSConfigs{Server: one.ServerConfig(), Client: one.ClientConfig("")})
		_, stop := run(t, wire.MuxConfig{Network: network, Addr: b + ":55055", HandshakeTimeout: 5 * time.Second})
		begin := time.Now()
		conn, _ := f.Host(a).Dial(t.Context(), b+":55055")
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(begin) != 5*time.Second {
			t.Error(err, time.Since(begin))
		}
		conn.Close()
		stop()
	})
}

func TestConnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		m, stop := run(t, wire.MuxConfig{Network: f.Host(b), Addr: b + ":55055", MaxConnsPerRemote: 3})
		go echo(m.GRPC(), "grpc ")
		go echo(m.HTTP(), "http ")
		go echo(m.Raft(), "raft ")
		dial := func(from string, p wire.Protocol) (net.Conn, bool) {
			conn, err := wire.Dial(t.Context(), f.Host(from), b+":55055", p)
			if err != nil {
				return nil, false
			}
			conn.Write([]byte("x"))
			_, err = conn.Read(make([]byte, 10))
			if err != nil {
				conn.Close()
			}
			return conn, err == nil
		}
		var open []net.Conn
		for range 3 {
			conn, ok := dial(a, wire.ProtocolGRPC)
			if !ok {
				t.Fatal("refused below the limit")
			}
			open = append(open, conn)
		}
		if _, ok := dial(a, wire.ProtocolHTTP); ok {
			t.Error("a fourth conn was served")
		}
		raft, ok := dial(a, wire.ProtocolRaft)
		if !ok {
			t.Error("no room for Raft")
		}
		if conn, ok := dial("10.0.0.9", wire.ProtocolHTTP); !ok {
			t.Error("another host pays for the first")
		} else {
			open = append(open, conn)
		}
		open[0].Close()
		synctest.Wait()
		if conn, ok := dial(a, wire.ProtocolHTTP); !ok {
			t.Error("a closed conn still counts")
		} else {
			open = append(open, conn)
		}
		for _, conn := range append(open, raft) {
			conn.Close()
		}
		synctest.Wait()
		stop()
	})
}

// Conns of a protocol that no server accepts must not accumulate.
func TestUnservedProtocolIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		_, stop := run(t, wire.MuxConfig{Network: f.Host(b), Addr: b + ":55055", HandshakeTimeout: time.Second})
		conn, err := wire.Dial(t.Context(), f.Host(a), b+":55055", wire.ProtocolHTTP)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("an unserved conn got an answer")
		}
		conn.Close()
		stop()
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		m, stop := run(t, wire.MuxConfig{Network: f.Host(b), Addr: b + ":55055"})
		go echo(m.GRPC(), "grpc ")
		served, err := wire.Dial(t.Context(), f.Host(a), b+":55055", wire.ProtocolGRPC)
		if err != nil {
			t.Fatal(err)
		}
		greeted, _ := f.Host(a).Dial(t.Context(), b+":55055")
		f.Partition(fabric.Blackhole, []string{"10.0.0.7"}, []string{a, b})
		f.Host("10.0.0.7")
		hanging := make(chan error, 1)
		go func() { _, err := m.Raft().Dial("10.0.0.7:55055", time.Hour); hanging <- err }()
		synctest.Wait()
		begin := time.Now()
		stop()
		if _, err := m.HTTP().Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error("accept after close:", err)
		}
		if err := <-hanging; err == nil {
			t.Error("a hanging dial succeeds")
		}
		for _, conn := range []net.Conn{served, greeted} {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("a conn outlives the port")
			}
			conn.Close()
		}
		if time.Since(begin) != 0 {
			t.Error("closing took", time.Since(begin))
		}
	})
}

// A peer that does not read must not delay Close.
func TestCloseDoesNotWaitForDeafPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, _ := identity.ParseToken(oldMesh)
		one, _ := identity.New(secret, "00000000-0000-4000-8000-000000000001")
		f := fabric.New(1)
		configs := wire.TLSConfigs{Server: one.ServerConfig(), Client: one.ClientConfig("")}
		m, stop := run(t, wire.MuxConfig{Network: wire.WithTLS(f.Host(b), configs), Addr: b + ":1"})
		conn, err := wire.Dial(t.Context(), wire.WithTLS(f.Host(a), configs), b+":1", wire.ProtocolGRPC)
		if err != nil {
			t.Fatal(err)
		}
		far, err := m.GRPC().Accept()
		if err != nil {
			t.Fatal(err)
		}
		// A record of one byte takes 23 bytes on the wire. This many leave no room for TLS's close message.
		for range 256 << 10 / 23 {
			far.Write([]byte{0})
		}
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 0 {
			t.Error("closing took", took)
		}
		far.Close()
		conn.Close()
	})
}

func TestCloseWithoutRun(t *testing.T) {
	m, err := wire.NewMux(wire.MuxConfig{Network: wire.TCP(nil), Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestForwardedHTTP(t *testing.T) {
	m, stop := run(t, wire.MuxConfig{Network: wire.TCP(nil), Addr: "127.0.0.1:0"})
	defer stop()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })}
	go server.Serve(m.HTTP())
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return m.DialHTTP(ctx, addr) },
	}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://" + m.Addr().String() + "/v1/clusters")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); string(body) != "/v1/clusters" {
		t.Errorf("%s", body)
	}
}

// FuzzFirstBytes sends bytes to the port: it never panics, and only the three known first bytes reach a server.
func FuzzFirstBytes(f *testing.F) {
	for _, seed := range []string{"", "R", "Ghello", "H", "r", "\x00", "\x16\x03\x01\x00\x05hello", "GET / HTTP/1.1\r\n\r\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		synctest.Test(t, func(t *testing.T) {
			fab := fabric.New(1)
			m, stop := run(t, wire.MuxConfig{Network: fab.Host(b), Addr: b + ":1"})
			reached := make(chan byte, 3)
			for p, accept := range map[byte]func() error{
				'R': func() error { c, err := m.Raft().Accept(); closeOf(c); return err },
				'G': func() error { c, err := m.GRPC().Accept(); closeOf(c); return err },
				'H': func() error { c, err := m.HTTP().Accept(); closeOf(c); return err },
			} {
				go func() {
					for accept() == nil {
						reached <- p
					}
				}()
			}
			conn, err := fab.Host(a).Dial(t.Context(), b+":1")
			if err != nil {
				t.Fatal(err)
			}
			conn.Write(input)
			conn.Close()
			time.Sleep(time.Minute)
			stop()
			synctest.Wait()
			var got []byte
			for len(reached) > 0 {
				got = append(got, <-reached)
			}
			known := len(input) > 0 && (input[0] == 'R' || input[0] == 'G' || input[0] == 'H')
			if known != (len(got) == 1) || known && got[0] != input[0] {
				t.Errorf("%q reached %q", input, got)
			}
		})
	})
}

func closeOf(c net.Conn) {
	if c != nil {
		c.Close()
	}
}

// A conn that is slow in its handshake delays nobody who hangs up on others.
func TestHangDoesNotWaitForHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret, _ := identity.ParseToken(oldMesh)
		one, _ := identity.New(secret, "00000000-0000-4000-8000-000000000001")
		two, _ := identity.New(secret, "00000000-0000-4000-8000-000000000002")
		f := fabric.New(1)
		at := func(host string, i *identity.Identity) wire.Network {
			return wire.WithTLS(f.Host(host), wire.TLSConfigs{Server: i.ServerConfig(), Client: i.ClientConfig("")})
		}
		m, stop := run(t, wire.MuxConfig{Network: at(b, one), Addr: b + ":55055", HandshakeTimeout: 5 * time.Second})
		defer stop()
		go echo(m.GRPC(), "grpc ")
		silent, err := f.Host(a).Dial(t.Context(), b+":55055")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		known, err := wire.Dial(t.Context(), at(a, two), b+":55055", wire.ProtocolGRPC)
		if err != nil {
			t.Fatal(err)
		}
		defer known.Close()
		synctest.Wait()
		begin := time.Now()
		m.Hang(func(p identity.Peer) bool { return p.ID == "00000000-0000-4000-8000-000000000002" })
		if _, err := known.Read(make([]byte, 1)); err == nil || time.Since(begin) > time.Second {
			t.Error("the conn of the removed agent goes on:", err, time.Since(begin))
		}
		if again, err := wire.Dial(t.Context(), at(a, two), b+":55055", wire.ProtocolGRPC); err == nil {
			if _, err := again.Read(make([]byte, 1)); err == nil {
				t.Error("the removed agent has another conn")
			}
			_ = again.Close()
		}
	})
}

// A target is reached only if the agent answers that it names, as a voter if that is asked for.
func TestTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const oneID, twoID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"
		ca, err := identity.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		agent := func(id string, role identity.Role) *identity.Identity {
			m := identity.NewMembership()
			csr, err := identity.Request(m.Key)
			if err != nil {
				t.Fatal(err)
			}
			certs, err := ca.Issue(identity.Subject{Mesh: "m", Role: role, ID: id}, csr, nil, time.Now(), identity.Lifetime)
			if err == nil {
				m, err = m.Admit(&identity.Admission{Mesh: "m", Role: role, Certificates: certs, CAs: [][]byte{ca.Certificate()}})
			}
			if err != nil {
				t.Fatal(err)
			}
			i, err := identity.Open("", id, nil, identity.Lifetime, m)
			if err != nil {
				t.Fatal(err)
			}
			return i
		}
		f := fabric.New(1)
		at := func(host string, i *identity.Identity) wire.Network {
			return wire.WithTLS(f.Host(host), wire.TLSConfigs{Server: i.ServerConfig(), Client: i.ClientConfig("")})
		}
		voter, stop := run(t, wire.MuxConfig{Network: at(a, agent(oneID, identity.Voter)), Addr: a + ":55055"})
		defer stop()
		worker, stop := run(t, wire.MuxConfig{Network: at(b, agent(twoID, identity.Worker)), Addr: b + ":55055"})
		defer stop()
		go echo(voter.GRPC(), "grpc ")
		go echo(worker.GRPC(), "grpc ")
		for target, good := range map[wire.Target]bool{
			{Addr: b + ":55055"}:                         true,
			{Addr: b + ":55055", ID: twoID}:              true,
			{Addr: b + ":55055", ID: oneID}:              false,
			{Addr: b + ":55055", Voter: true}:            false,
			{Addr: b + ":55055", ID: twoID, Voter: true}: false,
		} {
			if got, err := ask(voter.DialGRPC(t.Context(), target.String())); (got == "grpc hello") != good || !good && !errors.Is(err, identity.ErrWrongPeer) {
				t.Errorf("%+v: %q, %v", target, got, err)
			}
		}
		if got, err := ask(worker.DialGRPC(t.Context(), wire.Leader(a+":55055", oneID).String())); got != "grpc hello" {
			t.Error(got, err)
		}
		// The certificate of a conn ends, and the conn with it.
		conn, err := worker.DialGRPC(t.Context(), a+":55055")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		begin := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(begin) != identity.Lifetime {
			t.Error("the conn lives for", time.Since(begin), err)
		}
	})
}
