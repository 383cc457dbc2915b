package providertest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"
)

// FleetPort is the SSH port of a Fleet's machines.
const FleetPort = 24022

// Fleet holds the machines of played clouds: SSH servers on loopback addresses that run commands on
// this machine.
type Fleet struct {
	t  testing.TB
	mu sync.Mutex
	up map[string]*Machine
}

// Machine is a machine of a Fleet.
type Machine struct {
	Address string
	listen  net.Listener
	config  *gossh.ServerConfig
	work    sync.WaitGroup
	mu      sync.Mutex
	conns   map[net.Conn]bool
	closed  bool
}

// NewFleet returns a fleet that ends with the test.
func NewFleet(t testing.TB) *Fleet {
	f := &Fleet{t: t, up: map[string]*Machine{}}
	t.Cleanup(func() {
		for _, m := range f.up {
			m.stop()
		}
	})
	return f
}

// Boot starts a machine on an address of its own, which it returns. The machine accepts the key
// authorized, a line of authorized_keys.
func (f *Fleet) Boot(authorized string) string { return f.BootAt("", authorized) }

// BootAt is Boot on a given address.
func (f *Fleet) BootAt(address, authorized string) string {
	key, _, _, _, err := gossh.ParseAuthorizedKey([]byte(authorized))
	if err != nil {
		f.t.Errorf("the authorized key %q: %v", authorized, err)
		return ""
	}
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	host, err := gossh.NewSignerFromKey(private)
	if err != nil {
		f.t.Error(err)
		return ""
	}
	m := &Machine{conns: map[net.Conn]bool{}, config: &gossh.ServerConfig{PublicKeyCallback: func(_ gossh.ConnMetadata,
		k gossh.PublicKey) (*gossh.Permissions, error) {
		if string(k.Marshal()) != string(key.Marshal()) {
			return nil, errors.New("not this key")
		}
		return nil, nil
	}}}
	m.config.AddHostKey(host)
	if address != "" {
		m.Address = address
		if m.listen, err = net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(FleetPort))); err != nil {
			f.t.Error(err)
			return ""
		}
	}
	for m.listen == nil {
		b := make([]byte, 3)
		_, _ = rand.Read(b)
		m.Address = fmt.Sprintf("127.%d.%d.%d", 32+int(b[0])%32, b[1], 1+int(b[2])%254)
		m.listen, _ = net.Listen("tcp", net.JoinHostPort(m.Address, fmt.Sprint(FleetPort)))
	}
	m.work.Go(m.serve)
	f.mu.Lock()
	f.up[m.Address] = m
	f.mu.Unlock()
	return m.Address
}

// Halt stops a machine.
func (f *Fleet) Halt(address string) {
	f.mu.Lock()
	m := f.up[address]
	delete(f.up, address)
	f.mu.Unlock()
	if m != nil {
		m.stop()
	}
}

func (m *Machine) stop() {
	m.mu.Lock()
	m.closed = true
	_ = m.listen.Close()
	for c := range m.conns {
		_ = c.Close()
	}
	m.mu.Unlock()
	m.work.Wait()
}

func (m *Machine) serve() {
	for {
		c, err := m.listen.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		if m.closed {
			_ = c.Close()
		}
		m.conns[c] = true
		m.mu.Unlock()
		m.work.Go(func() {
			m.talk(c)
			_ = c.Close()
			m.mu.Lock()
			delete(m.conns, c)
			m.mu.Unlock()
		})
	}
}

// talk serves one connection.
func (m *Machine) talk(c net.Conn) {
	conn, channels, requests, err := gossh.NewServerConn(c, m.config)
	if err != nil {
		return
	}
	defer conn.Close()
	go gossh.DiscardRequests(requests)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for ch := range channels {
		if ch.ChannelType() != "session" {
			_ = ch.Reject(gossh.UnknownChannelType, "sessions only")
			continue
		}
		s, requests, err := ch.Accept()
		if err != nil {
			return
		}
		sessions.Go(func() { session(s, requests) })
	}
}

// session runs the one command of a session.
func session(s gossh.Channel, requests <-chan *gossh.Request) {
	defer s.Close()
	for r := range requests {
		if r.Type != "exec" || len(r.Payload) < 4 || int(binary.BigEndian.Uint32(r.Payload)) != len(r.Payload)-4 {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		cmd := exec.Command("/bin/sh", "-c", string(r.Payload[4:]))
		cmd.Stdout, cmd.Stderr = s, s.Stderr()
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			go func() {
				_, _ = io.Copy(in, s)
				_ = in.Close()
			}()
			err = cmd.Wait()
		}
		var exit *exec.ExitError
		code := uint32(0)
		if errors.As(err, &exit) {
			code = uint32(exit.ExitCode())
		} else if err != nil {
			code = 255
		}
		_, _ = s.SendRequest("exit-status", false, binary.BigEndian.AppendUint32(nil, code))
		return
	}
}
