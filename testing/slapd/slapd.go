// Package slapd starts a real LDAP server with people and groups, for tests.
package slapd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-ldap/ldap/v3"

	"github.com/coopr/coopr/testing/programs"
	"github.com/coopr/coopr/testing/site"
)

// Names and passwords of the server.
const (
	Base       = "dc=example,dc=com"
	People     = "ou=people," + Base
	Groups     = "ou=groups," + Base
	Agents     = "cn=agents," + Base // may search
	AgentsWord = "words of the agents"
	admin      = "cn=admin," + Base
	adminWord  = "words of the administrator"
)

// Server is a running slapd.
type Server struct {
	URL   string // ldaps://…
	Plain string // ldap://…, for StartTLS
	CA    string // file with the certificate of its CA
	Port  string // of URL
	t     *testing.T
	cmd   *exec.Cmd
	args  []string
	log   string // file with what the server says
}

// New starts a server, which ends with the test. The test is skipped where slapd is not installed.
func New(t *testing.T) *Server {
	t.Helper()
	program := programs.Installed(t, "slapd")
	dir, host := t.TempDir(), site.Loopback()
	cert, key, err := site.Certificate(dir, "slapd", host)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCertificateFile %s
TLSCertificateKeyFile %s
database mdb
suffix "%s"
rootdn "%s"
rootpw "%s"
directory %s
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="%s" read by * none
`, cert, key, Base, admin, adminWord, filepath.Join(dir, "db"), Agents)
	file := filepath.Join(dir, "slapd.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{
		t: t, CA: cert, URL: "ldaps://" + host + ":6360", Plain: "ldap://" + host + ":3890", Port: "6360", log: filepath.Join(dir, "slapd.log"),
	}
	s.args = []string{program, "-f", file, "-d", "0", "-h", s.URL + "/ " + s.Plain + "/"}
	s.Start()
	t.Cleanup(s.Stop)
	s.Add(Base, "objectClass", "dcObject", "objectClass", "organization", "o", "Example")
	s.Add(People, "objectClass", "organizationalUnit")
	s.Add(Groups, "objectClass", "organizationalUnit")
	s.Add(Agents, "objectClass", "organizationalRole", "objectClass", "simpleSecurityObject", "userPassword", AgentsWord)
	return s
}

// Start starts the server again after Stop.
func (s *Server) Start() {
	s.t.Helper()
	log, err := os.Create(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	site.Await(s.t, "slapd to answer", func() error {
		c, err := s.connect()
		if err != nil {
			said, _ := os.ReadFile(s.log)
			return fmt.Errorf("%w\n%s", err, said)
		}
		return c.Close()
	})
}

// Stop ends the server. Its content stays.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(os.Interrupt)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Person adds somebody with a password, and returns the name of the entry.
func (s *Server) Person(uid, password string) string {
	dn := "uid=" + uid + "," + People
	s.Add(dn, "objectClass", "inetOrgPerson", "cn", uid, "sn", uid, "userPassword", password)
	return dn
}

// Group adds a group with members, and returns the name of the entry.
func (s *Server) Group(cn string, members ...string) string {
	dn := "cn=" + cn + "," + Groups
	pairs := []string{"objectClass", "groupOfNames"}
	for _, m := range members {
		pairs = append(pairs, "member", m)
	}
	s.Add(dn, pairs...)
	return dn
}

// Add adds an entry with attributes, each a name and a value.
func (s *Server) Add(dn string, pairs ...string) {
	s.t.Helper()
	values := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = append(values[pairs[i]], pairs[i+1])
	}
	r := ldap.NewAddRequest(dn, nil)
	for name, list := range values {
		r.Attribute(name, list)
	}
	s.change(func(c *ldap.Conn) error { return c.Add(r) })
}

// Delete deletes an entry.
func (s *Server) Delete(dn string) {
	s.t.Helper()
	s.change(func(c *ldap.Conn) error { return c.Del(ldap.NewDelRequest(dn, nil)) })
}

// Rename changes the first part of the name of an entry, and returns the new name.
func (s *Server) Rename(dn, rdn string) string {
	s.t.Helper()
	s.change(func(c *ldap.Conn) error { return c.ModifyDN(ldap.NewModifyDNRequest(dn, rdn, true, "")) })
	_, parent, _ := strings.Cut(dn, ",")
	return rdn + "," + parent
}

// Members sets the members of a group.
func (s *Server) Members(group string, members ...string) {
	s.t.Helper()
	r := ldap.NewModifyRequest(group, nil)
	r.Replace("member", members)
	s.change(func(c *ldap.Conn) error { return c.Modify(r) })
}

func (s *Server) change(fn func(*ldap.Conn) error) {
	s.t.Helper()
	c, err := s.connect()
	if err == nil {
		defer c.Close()
		err = c.Bind(admin, adminWord)
	}
	if err == nil {
		err = fn(c)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) connect() (*ldap.Conn, error) {
	pem, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return ldap.DialURL(s.URL, ldap.DialWithTLSConfig(&tls.Config{RootCAs: roots}), ldap.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}))
}
