package instance

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// names is a DNS server for all names, which have the addresses that it is told. Answers are good for no time.
type names struct {
	mu        sync.Mutex
	addresses []netip.Addr
	asked     int
}

// serveNames starts the server and returns a resolver that asks it.
func serveNames(t *testing.T) (*names, *net.Resolver) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, done := &names{}, make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			size, from, err := conn.ReadFrom(b)
			if err != nil {
				return // closed
			}
			answer, err := n.answer(b[:size])
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.WriteTo(answer, from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return n, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (n *names) answer(query []byte) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	for _, q := range m.Questions {
		for _, a := range n.addresses {
			h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
			switch {
			case a.Is4() && q.Type == dnsmessage.TypeA:
				n.asked++
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
			case a.Is6() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
	}
	return m.Pack()
}

// set changes the addresses of all names, and returns how often they were asked for since the last change.
func (n *names) set(addresses ...string) (asked int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses = nil
	for _, a := range addresses {
		n.addresses = append(n.addresses, netip.MustParseAddr(a))
	}
	asked, n.asked = n.asked, 0
	return asked
}

// TestChangingName checks that a name whose address changes reaches nothing that its present address may not. The cloud is at an address
// that an operator allows, and a service that trusts the agent's machine at another one, with the same port.
func TestChangingName(t *testing.T) {
	var cloud, trusting atomic.Int32
	count := func(n *atomic.Int32) *httptest.Server {
		return httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n.Add(1) }))
	}
	at := func(s *httptest.Server, address string) {
		t.Helper()
		_ = s.Listener.Close()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
	}
	allowed, other := count(&cloud), count(&trusting)
	at(other, "127.0.0.1:0")
	_, port, _ := net.SplitHostPort(other.Listener.Addr().String())
	at(allowed, "127.0.0.2:"+port)

	server, resolver := serveNames(t)
	g := NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.2/32"), netip.MustParsePrefix("127.0.0.3/32")})
	g.dialer.Resolver = resolver
	g.transport.DisableKeepAlives = true // each request dials
	client := &http.Client{Transport: g.Transport()}
	get := func() error {
		resp, err := client.Get("http://cloud.example.com:" + port + "/")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return errors.Join(err, resp.Body.Close())
	}
	refuses := func(what string, err error) {
		t.Helper()
		if err == nil || KindOf(err) != Invalid || !strings.Contains(err.Error(), "127.0.0.1 is an address of the agent's machine") {
			t.Errorf("%s: %v", what, err)
		}
	}

	server.set("127.0.0.2")
	if err := get(); err != nil {
		t.Fatal(err)
	}
	if asked := server.set("127.0.0.1"); asked != 1 {
		t.Errorf("one connection asked for the address %d times: the dialled one may be another than the one that was checked", asked)
	}
	refuses("a changed address", get())
	// An address that does not answer makes the dialer take the next.
	server.set("127.0.0.3", "127.0.0.1")
	if err := get(); err == nil {
		t.Error("the second of two addresses is dialled") // the error is that of the first one
	}
	// A redirect to a name, while it changes.
	server.set("127.0.0.2")
	allowed.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cloud.Add(1)
		server.set("127.0.0.1")
		http.Redirect(w, r, "http://other.example.com:"+port+"/", http.StatusTemporaryRedirect)
	})
	refuses("a redirect", get())
	server.set("::ffff:127.0.0.1")
	if err := get(); err == nil {
		t.Error("an IPv4 address within IPv6 is dialled")
	}
	server.set("127.0.0.1")
	if conn, err := g.DialContext(t.Context(), "tcp", "daemon.example.com:"+port); err == nil {
		_ = conn.Close()
		t.Error("a daemon's name leads to this machine")
	} else {
		refuses("a daemon", err)
	}
	if here, there := trusting.Load(), cloud.Load(); here != 0 || there != 2 {
		t.Errorf("%d requests reached a service of this machine, and %d the cloud", here, there)
	}
}
