package directory

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/testing/slapd"
)

// settings returns the settings of a directory on a server.
func settings(t *testing.T, s *slapd.Server) config.Directory {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(slapd.AgentsWord+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Directory{
		Name: "corp", Tenant: "acme", URL: s.URL, CACert: s.CA, BindDN: slapd.Agents, BindPasswordFile: file, Users: slapd.People, Groups: slapd.Groups,
	}
}

// open returns a directory with settings, which have no faults.
func open(t *testing.T, d config.Directory) *LDAP {
	t.Helper()
	c := config.Default(true)
	c.Name, c.Directories = "a", []config.Directory{d}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return Open(c)[logins.Source{Tenant: d.Tenant, Method: d.Name}].(*LDAP)
}

// TestLDAP asks a real server about people: those whom it knows, and those who try to get in otherwise.
func TestLDAP(t *testing.T) {
	s := slapd.New(t)
	ann, bob := s.Person("Ann", "words of ann"), s.Person("bob", "words of bob")
	eve := s.Person("eve", "words of eve")
	s.Person("zed", "words of zed")
	inner := s.Group("inner", ann)
	s.Group("outer", inner, eve)
	s.Group("round", "cn=around,"+slapd.Groups, eve)
	s.Group("around", "cn=round,"+slapd.Groups)
	s.Group("devs", bob, ann)
	conf := settings(t, s)
	conf.Rules = []config.DirectoryRule{
		{Group: "CN=outer, OU=Groups, " + slapd.Base, Role: model.RoleAdmin, Groups: []string{"ops", "editor"}},
		{Group: "cn=devs," + slapd.Groups, Role: model.RoleUser, Groups: []string{"devs", "ops"}},
		{Group: "cn=round," + slapd.Groups, Groups: []string{"round"}},
	}
	d := open(t, conf)
	ctx := t.Context()

	p, err := d.Login(ctx, "ANN", "words of ann")
	if err != nil || p.Name != "Ann" || len(p.Subject) != 36 || p.Role != model.RoleAdmin || !slices.Equal(p.Groups, []string{"devs", "editor", "ops"}) {
		t.Errorf("ann: %+v, %v", p, err)
	}
	if again, err := d.Find(ctx, p.Subject); err != nil || again.Subject != p.Subject || again.Role != p.Role {
		t.Errorf("ann by her subject: %+v, %v", again, err)
	}
	if p, err := d.Login(ctx, "eve", "words of eve"); err != nil || p.Role != model.RoleAdmin || !slices.Equal(p.Groups, []string{"editor", "ops", "round"}) {
		t.Errorf("eve: %+v, %v", p, err)
	}
	for what, login := range map[string][2]string{
		"no password":       {"ann", ""},
		"a wrong password":  {"ann", "words of bob"},
		"nobody":            {"nobody", "words of ann"},
		"everybody":         {"*", "words of ann"},
		"a filter":          {"ann)(objectClass=*", "words of ann"},
		"a name's end":      {"ann\x00", "words of ann"},
		"no role":           {"zed", "words of zed"},
		"nothing":           {"", "words of ann"},
		"the agents' name":  {slapd.Agents, slapd.AgentsWord},
		"an entry's name":   {ann, "words of ann"},
		"not below people":  {"agents", slapd.AgentsWord},
		"a name and a star": {"an*", "words of ann"},
	} {
		if p, err := d.Login(ctx, login[0], login[1]); problem.CodeOf(err) != problem.Unauthorized {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}

	// A person keeps the subject under another name, and loses the role with the group.
	ann = s.Rename(ann, "uid=anna")
	s.Members("cn=inner,"+slapd.Groups, ann)
	s.Members("cn=devs,"+slapd.Groups, bob)
	if again, err := d.Find(ctx, p.Subject); err != nil || again.Name != "anna" || !slices.Equal(again.Groups, []string{"editor", "ops"}) {
		t.Errorf("ann under another name: %+v, %v", again, err)
	}
	s.Members("cn=inner,"+slapd.Groups, bob)
	if again, err := d.Find(ctx, p.Subject); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("ann without a group: %+v, %v", again, err)
	}
	s.Delete(ann)
	if again, err := d.Find(ctx, p.Subject); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("ann after she has left: %+v, %v", again, err)
	}

	// Without a server nobody is denied: nothing is known.
	s.Stop()
	if _, err := d.Login(ctx, "bob", "words of bob"); problem.CodeOf(err) != problem.Internal {
		t.Errorf("without a server: %v", err)
	}
	if _, err := d.Find(ctx, p.Subject); problem.CodeOf(err) != problem.Internal {
		t.Errorf("without a server: %v", err)
	}
	s.Start()
	if _, err := d.Login(ctx, "bob", "words of bob"); err != nil {
		t.Errorf("with the server again: %v", err)
	}
}

// TestConnection connects in each way that the settings allow.
func TestConnection(t *testing.T) {
	s := slapd.New(t)
	s.Person("ann", "words of ann")
	other := slapd.New(t)
	for name, c := range map[string]struct {
		change func(*config.Directory)
		ok     bool
	}{
		"TLS":                        {func(*config.Directory) {}, true},
		"StartTLS":                   {func(d *config.Directory) { d.URL = s.Plain }, true},
		"another CA":                 {func(d *config.Directory) { d.CACert = other.CA }, false},
		"another CA, StartTLS":       {func(d *config.Directory) { d.CACert, d.URL = other.CA, s.Plain }, false},
		"a CA of nobody":             {func(d *config.Directory) { d.CACert = d.BindPasswordFile }, false},
		"no file of the CA":          {func(d *config.Directory) { d.CACert = "/nothing" }, false},
		"the CAs of the system":      {func(d *config.Directory) { d.CACert = "" }, false},
		"another host":               {func(d *config.Directory) { d.URL = "ldaps://localhost:" + s.Port }, false},
		"a wrong password":           {func(d *config.Directory) { d.BindPasswordFile = d.CACert }, false},
		"no password":                {func(d *config.Directory) { d.BindPasswordFile = "/nothing" }, false},
		"another case of attributes": {func(d *config.Directory) { d.IDAttribute, d.NameAttribute = "ENTRYUUID", "Uid" }, true},
		"nobody may search":          {func(d *config.Directory) { d.BindDN = "" }, false},
		"there is no such entry":     {func(d *config.Directory) { d.Users = "ou=none," + slapd.Base }, false},
	} {
		conf := settings(t, s)
		conf.Role = model.RoleRead
		c.change(&conf)
		p, err := open(t, conf).Login(t.Context(), "ann", "words of ann")
		if c.ok && (err != nil || p.Role != model.RoleRead) || !c.ok && problem.CodeOf(err) != problem.Internal {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

// TestStall asks servers that stop answering, at each point. A question ends with its context, and as many people log in
// afterwards as before.
func TestStall(t *testing.T) {
	s := slapd.New(t)
	s.Person("ann", "words of ann")
	for _, scheme := range []string{"ldap", "ldaps"} {
		for _, after := range []int{0, 1, 20, 200, 1500} {
			stalled := stall(t, strings.TrimPrefix(map[string]string{"ldap": s.Plain, "ldaps": s.URL}[scheme], scheme+"://"), after)
			conf := settings(t, s)
			conf.Role, conf.URL = model.RoleRead, scheme+"://"+stalled.addr
			d := open(t, conf)
			for range parallel + 1 {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-stalled.reached
					cancel()
				}()
				if p, err := d.Login(ctx, "ann", "words of ann"); problem.CodeOf(err) != problem.Internal {
					t.Errorf("%s, %d bytes: %+v, %v", scheme, after, p, err)
				}
			}
		}
	}
}

// stalled is a proxy that passes a number of bytes of each connection's answers and then nothing.
type stalled struct {
	addr    string
	reached chan struct{} // receives once for each connection that is stalled
}

func stall(t *testing.T, to string, after int) *stalled {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := &stalled{addr: net.JoinHostPort("127.0.0.1", port), reached: make(chan struct{})}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer from.Close()
				server, err := net.Dial("tcp", to)
				if err != nil {
					t.Error(err)
					return
				}
				defer server.Close()
				all.Go(func() {
					_, _ = io.CopyN(from, server, int64(after))
					s.reached <- struct{}{}
				})
				_, _ = io.Copy(server, from) // until the agent hangs up
			})
		}
	})
	return s
}
