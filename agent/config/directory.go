package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/go-ldap/ldap/v3"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
)

// Directory is an LDAP directory of people who may log in to a tenant.
type Directory struct {
	Name             string          `yaml:"name" eg:"corp" doc:"Its name, which users give to log in: coopr login --method NAME. It must stay as it is, since users are kept by it."`
	Tenant           string          `yaml:"tenant" eg:"acme" doc:"The tenant whose users it knows. Default: default."`
	URL              string          `yaml:"url" eg:"ldaps://ldap.example.com" doc:"ldaps://HOST[:PORT], or ldap://HOST[:PORT], which is encrypted by StartTLS."`
	CACert           string          `yaml:"ca_cert" eg:"/etc/ssl/corp.pem" doc:"Certificates of the CA of the server, in PEM. Default: those of the system."`
	BindDN           string          `yaml:"bind_dn" eg:"cn=coopr,dc=example,dc=com" doc:"Account that may search. Default: none, for servers that anybody may search."`
	BindPasswordFile string          `yaml:"bind_password_file" eg:"/etc/coopr/ldap-password" doc:"File with its password."`
	Users            string          `yaml:"users" eg:"ou=people,dc=example,dc=com" doc:"Entry below which people are, such as ou=people,dc=example,dc=com."`
	UserFilter       string          `yaml:"user_filter" eg:"(objectClass=person)" doc:"Filter that people match. It has to leave out accounts that are disabled or locked, as far as the server itself does not refuse them. Default: (objectClass=person), and with objectGUID users of Active Directory that are not disabled."`
	NameAttribute    string          `yaml:"name_attribute" eg:"uid" doc:"Attribute with the name that people type. Default: uid; on Active Directory use sAMAccountName."`
	IDAttribute      string          `yaml:"id_attribute" eg:"entryUUID" doc:"Attribute that never changes and is never given again. Default: entryUUID; on Active Directory use objectGUID."`
	Groups           string          `yaml:"groups" eg:"ou=groups,dc=example,dc=com" doc:"Entry below which groups are. Needed if there are rules."`
	MemberAttribute  string          `yaml:"member_attribute" eg:"member" doc:"Attribute of a group that names its members. Default: member."`
	Role             model.Role      `yaml:"role" eg:"read" doc:"Role of everybody whom it knows: admin, user or read. Default: none, so that only the rules let people in."`
	Rules            []DirectoryRule `yaml:"rules" eg:"[{group: 'cn=ops,ou=groups,dc=example,dc=com', role: admin, groups: [oncall]}]" doc:"Roles and groups by the directory's groups."`
}

// IdentityProvider is a provider of OpenID Connect where people log in to a tenant.
type IdentityProvider struct {
	Name             string          `yaml:"name" eg:"sso" doc:"Its name, which users give to log in: coopr login --method NAME. It must stay as it is, since users are kept by it."`
	Tenant           string          `yaml:"tenant" eg:"acme" doc:"The tenant whose users it knows. Default: default."`
	Issuer           string          `yaml:"issuer" eg:"https://login.example.com/" doc:"Its URL, with https. Plain http is allowed on loopback."`
	CACert           string          `yaml:"ca_cert" eg:"/etc/ssl/corp.pem" doc:"Certificates of the CA of the provider, in PEM. Default: those of the system."`
	ClientID         string          `yaml:"client_id" eg:"coopr" doc:"The mesh's id at the provider. The provider must know it as a native application with the redirect URI http://127.0.0.1/callback and any port."`
	ConsoleURL       string          `yaml:"console_url" eg:"https://coopr.example.com:55054" doc:"The console's address, from which people log in, too. The provider must know the redirect URI https://HOST:PORT/console/callback. Default: none, so that people log in from the console on loopback only."`
	ClientSecretFile string          `yaml:"client_secret_file" eg:"/etc/coopr/oidc-secret" doc:"File with the mesh's secret at the provider. Default: none, for public clients."`
	Device           bool            `yaml:"device" eg:"false" doc:"Whether people may log in on another device: coopr login --device. Whoever talks somebody into confirming a code gets that person's session."`
	Scopes           []string        `yaml:"scopes" eg:"[profile]" doc:"Scopes besides openid. Default: profile. With offline_access, the provider gives the mesh a refresh token, and sessions are renewed for up to seven days; without it they end after eight hours."`
	NameClaim        string          `yaml:"name_claim" eg:"preferred_username" doc:"Claim with the person's name for records. Default: preferred_username."`
	GroupsClaim      string          `yaml:"groups_claim" eg:"groups" doc:"Claim with the person's groups. Default: groups."`
	Role             model.Role      `yaml:"role" eg:"read" doc:"Role of everybody whom it knows: admin, user or read. Default: none, so that only the rules let people in."`
	Rules            []DirectoryRule `yaml:"rules" eg:"[{group: ops, role: admin, groups: [oncall]}]" doc:"Roles and groups by the provider's groups."`
}

// WithDefaults returns a provider with the defaults of absent settings.
func (p IdentityProvider) WithDefaults() IdentityProvider {
	p.Tenant = cmp.Or(p.Tenant, model.FirstTenant)
	p.NameClaim = cmp.Or(p.NameClaim, "preferred_username")
	p.GroupsClaim = cmp.Or(p.GroupsClaim, "groups")
	if p.Scopes == nil {
		p.Scopes = []string{"profile"}
	}
	return p
}

// DirectoryRule says what the members of a directory's group are here.
type DirectoryRule struct {
	Group  string     `yaml:"group" doc:"The directory's group, such as cn=ops,ou=groups,dc=example,dc=com, or the value of the claim. In LDAP, groups in it count, too."`
	Role   model.Role `yaml:"role" doc:"admin, user or read. The highest role of all rules counts."`
	Groups []string   `yaml:"groups" doc:"Groups that policies name."`
}

// WithDefaults returns a directory with the defaults of absent settings.
func (d Directory) WithDefaults() Directory {
	d.Tenant = cmp.Or(d.Tenant, model.FirstTenant)
	d.NameAttribute = cmp.Or(d.NameAttribute, "uid")
	d.IDAttribute = cmp.Or(d.IDAttribute, "entryUUID")
	if strings.EqualFold(d.IDAttribute, "objectGUID") {
		d.UserFilter = cmp.Or(d.UserFilter, "(&(objectCategory=person)(objectClass=user)(!(userAccountControl:1.2.840.113556.1.4.803:=2)))")
	}
	d.UserFilter = cmp.Or(d.UserFilter, "(objectClass=person)")
	d.MemberAttribute = cmp.Or(d.MemberAttribute, "member")
	return d
}

func (c Config) checkDirectories(k *checks) {
	seen := map[[2]string]bool{}
	for i, p := range c.IdentityProviders {
		path := fmt.Sprintf("identity_providers[%d]", i)
		p = p.WithDefaults()
		k.method(path, p.Name, p.Tenant, seen)
		u, err := url.Parse(p.Issuer)
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
			k.fault(path+".issuer", "%q: write it as https://HOST/…, as http is for loopback only", p.Issuer)
		}
		if p.ClientID == "" {
			k.fault(path+".client_id", "it is missing")
		}
		if c, err := url.Parse(p.ConsoleURL); p.ConsoleURL != "" && (err != nil || c.Host == "" || p.ConsoleURL != "https://"+c.Host) {
			why := "write it as https://HOST:PORT"
			if err == nil && c.Scheme == "http" && isLoopback(c.Hostname()) {
				why = "leave it out: on loopback, people log in at http://127.0.0.1:PORT without it"
			}
			k.fault(path+".console_url", "%q: %s", p.ConsoleURL, why)
		}
		k.directoryRules(path, p.Role, p.Rules)
	}
	for i, d := range c.Directories {
		path := fmt.Sprintf("directories[%d]", i)
		d = d.WithDefaults()
		k.method(path, d.Name, d.Tenant, seen)
		if u, err := url.Parse(d.URL); err != nil || u.Scheme != "ldap" && u.Scheme != "ldaps" || u.Host == "" {
			k.fault(path+".url", "%q: write it as ldaps://HOST or ldap://HOST", d.URL)
		}
		if d.BindDN != "" && d.BindPasswordFile == "" {
			k.fault(path+".bind_dn", "bind_password_file is missing: a server may take a bind without a password for one of nobody")
		}
		k.dn(path+".users", d.Users)
		if _, err := ldap.CompileFilter(d.UserFilter); err != nil {
			k.fault(path+".user_filter", "%q: %v", d.UserFilter, err)
		}
		for _, a := range []struct{ path, name string }{
			{"name_attribute", d.NameAttribute}, {"id_attribute", d.IDAttribute}, {"member_attribute", d.MemberAttribute},
		} {
			if !namePattern.MatchString(a.name) {
				k.fault(path+"."+a.path, "%q is no name of an attribute", a.name)
			}
		}
		k.directoryRules(path, d.Role, d.Rules)
		if len(d.Rules) > 0 {
			k.dn(path+".groups", d.Groups)
		}
		for j, r := range d.Rules {
			k.dn(fmt.Sprintf("%s.rules[%d].group", path, j), r.Group)
		}
	}
}

// method checks the name and the tenant of a way to log in. seen has those of the others.
func (k *checks) method(path, name, tenant string, seen map[[2]string]bool) {
	switch why := model.CheckName(name); {
	case why != "":
		k.fault(path+".name", "%s", why)
	case name == model.MethodLocal || name == model.MethodAccount:
		k.fault(path+".name", "%s is a method of the mesh itself: choose another name", name)
	case seen[[2]string{tenant, name}]:
		k.fault(path+".name", "tenant %s has %s twice", tenant, name)
	}
	seen[[2]string{tenant, name}] = true
	if why := model.CheckName(tenant); why != "" {
		k.fault(path+".tenant", "%s", why)
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (k *checks) directoryRules(path string, role model.Role, rules []DirectoryRule) {
	k.directoryRole(path+".role", role)
	if role == "" && len(rules) == 0 {
		k.fault(path+".rules", "there is neither a role nor a rule, so nobody could log in")
	}
	for j, r := range rules {
		at := fmt.Sprintf("%s.rules[%d]", path, j)
		if r.Group == "" {
			k.fault(at+".group", "it is missing")
		}
		k.directoryRole(at+".role", r.Role)
		for n, g := range r.Groups {
			why := model.CheckName(g)
			if g != "editor" && access.GroupID("", g) == g {
				why = fmt.Sprintf("%q has its rights by a role, which a directory's rules give up to admin", g)
			}
			if why != "" {
				k.fault(fmt.Sprintf("%s.groups[%d]", at, n), "%s", why)
			}
		}
	}
}

// dn checks the name of an entry.
func (k *checks) dn(path, value string) {
	if parsed, err := ldap.ParseDN(value); err != nil || len(parsed.RDNs) == 0 {
		k.fault(path, "%q: write it as ou=people,dc=example,dc=com", value)
	}
}

// directoryRole checks a role by the rules of a directory. None of them makes superadmins: who controls the directory would control
// the mesh.
func (k *checks) directoryRole(path string, role model.Role) {
	if role != "" && !slices.Contains([]model.Role{model.RoleAdmin, model.RoleUser, model.RoleRead}, role) {
		k.fault(path, "%q: it must be admin, user or read", role)
	}
}
