package directory

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

const (
	patience  = 10 * time.Second // for one question
	parallel  = 16               // logins at one server at a time
	mostBytes = 4 << 20          // of a server's answers to one question
)

// Open returns the directories and identity providers of a configuration. It does not connect to them.
func Open(c config.Config) map[logins.Source]logins.Directory {
	out := map[logins.Source]logins.Directory{}
	for _, d := range c.Directories {
		d = d.WithDefaults()
		out[logins.Source{Tenant: d.Tenant, Method: d.Name}] = &LDAP{cfg: d, slots: make(slots, parallel)}
	}
	for _, p := range c.IdentityProviders {
		p = p.WithDefaults()
		out[logins.Source{Tenant: p.Tenant, Method: p.Name}] = &OIDC{
			cfg: p, codes: make(slots, parallel), devices: make(slots, parallel), renewals: make(slots, parallel),
		}
	}
	return out
}

// slots has an element for each login that is under way.
type slots chan struct{}

// enter takes a slot, which leave gives back. It fails if there is none.
func (s slots) enter(server string) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	default:
		return nil, problem.New(problem.Busy, "too many people log in at %s: try again in a few seconds", server)
	}
}

// denied returns an error for a person whom the directory does not let in.
func denied(format string, args ...any) error {
	return problem.New(problem.Unauthorized, format, args...)
}

// authorities returns the CAs in a file, or nil, which means those of the system, for no file.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificates in PEM", file)
	}
	return roots, nil
}

// enroll sets the role and the groups of a person by all rules that fit. It fails for a person without a role.
func enroll(p *logins.Person, role model.Role, rules []config.DirectoryRule, fits func(config.DirectoryRule) bool) error {
	p.Role = role
	for _, r := range rules {
		if !fits(r) {
			continue
		}
		p.Groups = append(p.Groups, r.Groups...)
		if r.Role.AtLeast(cmp.Or(p.Role, model.RoleRead)) {
			p.Role = r.Role
		}
	}
	slices.Sort(p.Groups)
	p.Groups = slices.Compact(p.Groups)
	if p.Role == "" {
		return denied("%s is in no group that has a role", p.Name)
	}
	return nil
}
