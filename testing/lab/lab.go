package lab

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Lab is a network of light machines. It is safe for concurrent use.
type Lab struct {
	// Net is the wire between the machines; Gateway is the address of the test process on it.
	Net     *Switch
	Gateway netip.Addr

	image  image
	dir    string
	groups cgroups
	key    []byte // private, PEM
	signer ssh.Signer
	server *http.Server

	mu       sync.Mutex
	next     netip.Addr
	machines map[string]*Machine
}

// prefix is the network of all labs; a process has one lab at a time.
var prefix = netip.MustParsePrefix("10.77.0.0/16")

// Network returns the network of the machines.
func (l *Lab) Network() netip.Prefix { return prefix }

const mirrorPort = 8088

// aptSource is the file in which machines find the mirror.
const aptSource = "etc/apt/sources.list.d/lab.list"

func (l *Lab) aptSource() []byte {
	return fmt.Appendf(nil, "deb [trusted=yes] http://%s ./\n", netip.AddrPortFrom(l.Gateway, mirrorPort))
}

// New returns a lab that ends with the test. If light machines are not possible, it skips the test
// with the reason.
func New(t testing.TB) *Lab {
	t.Helper()
	if errMissing != nil {
		t.Skip(errMissing)
	}
	l, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func open() (*Lab, error) {
	i, err := findImage()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(i.run(), "lab")
	if err != nil {
		return nil, err
	}
	l := &Lab{Net: NewSwitch(1), image: i, dir: dir, groups: cgroups{os.Getenv(groupVar)}, machines: map[string]*Machine{}}
	l.Gateway = prefix.Addr().Next()
	l.next = l.Gateway.Next()
	if l.key, l.signer, err = newKey(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	if err := l.plugIn(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// plugIn connects this process to the wire and serves the package mirror.
func (l *Lab) plugIn() error {
	fd, err := openTAP("lab0")
	if err != nil {
		return err
	}
	l.Net.Attach(l.Gateway, os.NewFile(uintptr(fd), "lab0"))
	cidr := netip.PrefixFrom(l.Gateway, prefix.Bits()).String()
	if err := ip(l.image.root(), device("lab0", cidr, macOf(l.Gateway))...); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(l.Gateway, mirrorPort).String())
	if err != nil {
		return fmt.Errorf("the package mirror: %w", err)
	}
	l.server = &http.Server{Handler: http.FileServer(http.Dir(l.image.mirror()))}
	go func() { _ = l.server.Serve(listener) }()
	return nil
}

func (l *Lab) close() error {
	var errs []error
	for _, m := range maps.Clone(l.machines) {
		errs = append(errs, m.Destroy())
	}
	if l.server != nil {
		errs = append(errs, l.server.Close())
	}
	l.Net.Close()
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// Key returns the private key, in OpenSSH's format, for logins on all machines as root and as
// debian (who may use sudo).
func (l *Lab) Key() []byte { return l.key }

// Signer returns Key for ssh.PublicKeys.
func (l *Lab) Signer() ssh.Signer { return l.signer }

// Isolate cuts a machine off from all others, including this process.
func (l *Lab) Isolate(m *Machine) {
	l.Net.Set(m.Addr, netip.Addr{}, Fault{Cut: true})
	l.Net.Set(netip.Addr{}, m.Addr, Fault{Cut: true})
}

// Partition cuts every connection between the addresses of a and those of b, in both directions.
func (l *Lab) Partition(a, b []netip.Addr) {
	for _, x := range a {
		for _, y := range b {
			l.Net.Set(x, y, Fault{Cut: true})
			l.Net.Set(y, x, Fault{Cut: true})
		}
	}
}

// newKey returns a new key: private in OpenSSH's format, and as a signer.
func newKey() ([]byte, ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	return pem.EncodeToMemory(block), signer, err
}

// reserve assigns an address and a folder to a new machine.
func (l *Lab) reserve(m *Machine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machines[m.Name] != nil {
		return fmt.Errorf("machine %s exists already", m.Name)
	}
	if m.Addr = m.spec.Addr; !m.Addr.IsValid() {
		m.Addr, l.next = l.next, l.next.Next()
		if m.Addr.As4()[3] == 255 || m.Addr.As4()[3] == 0 { // some programs reject such addresses
			m.Addr, l.next = l.next.Next(), l.next.Next().Next()
		}
	}
	for _, other := range l.machines {
		if other.Addr == m.Addr {
			return fmt.Errorf("%s is the address of machine %s", m.Addr, other.Name)
		}
	}
	m.dir = filepath.Join(l.dir, m.Name)
	l.machines[m.Name] = m
	return nil
}

func (l *Lab) forget(m *Machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.machines, m.Name)
}
