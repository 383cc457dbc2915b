package directory

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/go-ldap/ldap/v3"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/duty/logins"
)

const (
	depth = 10   // of groups in groups
	most  = 1000 // groups of one person
)

// LDAP is a directory on an LDAP server. It connects for each question, so that a server that was away needs no care.
type LDAP struct {
	cfg   config.Directory
	slots slots
}

// Login returns the person with a name whose password is right.
func (d *LDAP) Login(ctx context.Context, name, password string) (p logins.Person, err error) {
	if password == "" { // most servers take a bind without a password for one of nobody, and accept it
		return p, denied("the password is empty")
	}
	leave, err := d.slots.enter(d.cfg.Name)
	if err != nil {
		return p, err
	}
	defer leave()
	err = d.ask(ctx, func(c *ldap.Conn) error {
		entry, err := d.find(c, d.cfg.NameAttribute, ldap.EscapeFilter(name))
		if err != nil {
			return err
		}
		if p, err = d.person(c, entry); err != nil {
			return err
		}
		// The password comes last: from here on the connection is the person's.
		err = c.Bind(entry.DN, password)
		if ldap.IsErrorAnyOf(err, refusals...) {
			return denied("log in as %s: %w", entry.DN, err)
		}
		return err
	})
	return p, err
}

// refusals are the codes with which servers refuse a person, for the password or because the account is locked.
var refusals = []uint16{
	ldap.LDAPResultInvalidCredentials, ldap.LDAPResultInsufficientAccessRights, ldap.LDAPResultUnwillingToPerform,
	ldap.LDAPResultConstraintViolation,
}

// Find returns the person who is a subject.
func (d *LDAP) Find(ctx context.Context, subject string) (p logins.Person, err error) {
	value := ldap.EscapeFilter(subject)
	if raw, ok := strings.CutPrefix(subject, binary); ok {
		value = ""
		for ; len(raw) >= 2; raw = raw[2:] {
			value += `\` + raw[:2]
		}
	}
	err = d.ask(ctx, func(c *ldap.Conn) error {
		entry, err := d.find(c, d.cfg.IDAttribute, value)
		if err == nil {
			p, err = d.person(c, entry)
		}
		return err
	})
	return p, err
}

// ask calls fn with an encrypted connection to the server, bound as the agents' own account. All of it ends within patience,
// whatever the server does.
func (d *LDAP) ask(ctx context.Context, fn func(*ldap.Conn) error) error {
	at, err := url.Parse(d.cfg.URL)
	if err != nil {
		return err
	}
	roots, err := authorities(d.cfg.CACert)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	port := map[string]string{"ldap": ldap.DefaultLdapPort, "ldaps": ldap.DefaultLdapsPort}[at.Scheme]
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), port)))
	if err != nil {
		return err
	}
	// The library's own time-outs leave out handshakes. A connection that is closed ends everything that it waits for.
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	var conn net.Conn = &bounded{Conn: raw, left: mostBytes}
	secure := &tls.Config{ServerName: at.Hostname(), RootCAs: roots, MinVersion: tls.VersionTLS12}
	if at.Scheme == "ldaps" {
		conn = tls.Client(conn, secure)
	}
	c := ldap.NewConn(conn, at.Scheme == "ldaps")
	c.Start()
	defer c.Close()
	if at.Scheme == "ldap" {
		err = c.StartTLS(secure)
	}
	if err == nil && d.cfg.BindDN != "" {
		err = d.bind(c)
	}
	if err == nil {
		err = fn(c)
	}
	return err
}

// bounded is a connection that ends after a number of bytes, so that a server fills no memory.
type bounded struct {
	net.Conn
	left int
}

// Read reads from the connection, and fails once all bytes are read that may be.
func (b *bounded) Read(p []byte) (n int, err error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the server has sent more than %d bytes", mostBytes)
	}
	n, err = b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func (d *LDAP) bind(c *ldap.Conn) error {
	password, err := os.ReadFile(d.cfg.BindPasswordFile)
	if err != nil {
		return err
	}
	if err := c.Bind(d.cfg.BindDN, strings.TrimRight(string(password), "\r\n")); err != nil {
		return fmt.Errorf("log in as %s: %w", d.cfg.BindDN, err)
	}
	return nil
}

// find returns the one entry whose attribute has a value, which is escaped.
func (d *LDAP) find(c *ldap.Conn, attribute, value string) (*ldap.Entry, error) {
	filter := fmt.Sprintf("(&%s(%s=%s))", d.cfg.UserFilter, attribute, value)
	res, err := d.search(c, d.cfg.Users, filter, 2, d.cfg.NameAttribute, d.cfg.IDAttribute)
	switch {
	case err != nil:
		return nil, fmt.Errorf("search %s for %s: %w", d.cfg.Users, filter, err)
	case len(res.Entries) != 1:
		return nil, denied("%s has %d entries for %s", d.cfg.Users, len(res.Entries), filter)
	}
	return res.Entries[0], nil
}

// search returns the entries below a base that match a filter, at most so many.
func (d *LDAP) search(c *ldap.Conn, base, filter string, most int, attributes ...string) (*ldap.SearchResult, error) {
	res, err := c.Search(&ldap.SearchRequest{
		BaseDN: base, Scope: ldap.ScopeWholeSubtree, SizeLimit: most, EnforceSizeLimit: true, TimeLimit: int(patience.Seconds()),
		Filter: filter, Attributes: attributes,
	})
	if errors.Is(err, ldap.ErrSizeLimitExceeded) || ldap.IsErrorWithCode(err, ldap.LDAPResultSizeLimitExceeded) {
		err = nil // there are more
	}
	return res, err
}

// binary comes before a subject that is no text, such as an objectGUID. The rest is hexadecimal.
const binary = "hex:"

// person returns the person of an entry, with the role and the groups that the rules of the configuration have for them.
func (d *LDAP) person(c *ldap.Conn, entry *ldap.Entry) (p logins.Person, err error) {
	id, name := entry.GetEqualFoldRawAttributeValue(d.cfg.IDAttribute), entry.GetEqualFoldAttributeValue(d.cfg.NameAttribute)
	if len(id) == 0 || name == "" {
		return p, denied("%s has no %s or no %s", entry.DN, d.cfg.IDAttribute, d.cfg.NameAttribute)
	}
	p = logins.Person{Subject: string(id), Name: name}
	if !utf8.Valid(id) || strings.EqualFold(d.cfg.IDAttribute, "objectGUID") {
		p.Subject = binary + hex.EncodeToString(id)
	}
	in := map[string]bool{}
	if len(d.cfg.Rules) > 0 {
		if in, err = d.groups(c, entry.DN); err != nil {
			return p, err
		}
	}
	return p, enroll(&p, d.cfg.Role, d.cfg.Rules, func(r config.DirectoryRule) bool { return in[normal(r.Group)] })
}

// groups returns the names of the groups in which an entry is, also by groups in groups.
func (d *LDAP) groups(c *ldap.Conn, dn string) (map[string]bool, error) {
	in := map[string]bool{}
	members := []string{dn}
	for range depth {
		var filter strings.Builder
		for _, m := range members {
			fmt.Fprintf(&filter, "(%s=%s)", d.cfg.MemberAttribute, ldap.EscapeFilter(m))
		}
		res, err := d.search(c, d.cfg.Groups, "(|"+filter.String()+")", most-len(in), "1.1") // without attributes
		if err != nil {
			return nil, fmt.Errorf("search %s for the groups of %s: %w", d.cfg.Groups, dn, err)
		}
		members = nil
		for _, g := range res.Entries {
			if !in[normal(g.DN)] {
				in[normal(g.DN)] = true
				members = append(members, g.DN)
			}
		}
		if len(members) == 0 || len(in) >= most {
			break
		}
	}
	return in, nil
}

// normal returns a name of an entry in the form in which names are compared, or the text itself if it is not such a name.
func normal(dn string) string {
	if parsed, err := ldap.ParseDN(dn); err == nil {
		dn = parsed.String()
	}
	return strings.ToLower(dn)
}
