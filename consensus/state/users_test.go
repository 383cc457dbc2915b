package state_test

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

func putUser(actor string, u model.User, password string) *pb.Command {
	m, err := logformat.EncodeUser(&u)
	if err != nil {
		panic(err)
	}
	put := &pb.PutUser{User: m, Password: password, CreateOnly: u.Method != ""}
	if !put.CreateOnly {
		put.Change = []string{"role", "groups", "description", "disabled"}
	}
	return &pb.Command{Tenant: u.Tenant, Actor: actor, Change: &pb.Command_PutUser{PutUser: put}}
}

// created returns the command that creates a user of the tenant t without a password.
func created(name, description string) *pb.Command {
	return putUser("ann", model.User{Name: name, Tenant: "t", Method: model.MethodLocal, Role: model.RoleUser, Description: description}, "")
}

// sessionOf returns the command that opens a session of a user of the tenant t. set is when the password was set.
func sessionOf(name, id string, expires, set int64) *pb.Command {
	return &pb.Command{Actor: name, Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Hash: []byte("hash of " + id), Actor: name, Tenant: "t", Id: id, Session: true, ExpiresMs: expires, RenewableMs: expires + 1000,
		PasswordSetMs: set,
	}}}
}

// tokenOf returns the command that makes a token of the tenant t.
func tokenOf(actor, id, role, parent string) *pb.Command {
	return &pb.Command{Actor: actor, Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Hash: []byte("hash of " + id), Actor: actor, Tenant: "t", Id: id, Role: role, Parent: parent,
	}}}
}

// grantOf returns the command that shares a cluster of the tenant t.
func grantOf(id, granter, to string, until int64) *pb.Command {
	m, err := logformat.EncodeGrant(&model.Grant{ID: id, Tenant: "t", Granter: granter, To: to, Actions: []string{"list", "read"},
		Resource: "cluster/00000001", Name: "shop", Until: until})
	if err != nil {
		panic(err)
	}
	return &pb.Command{Tenant: "t", Actor: granter, Change: &pb.Command_PutGrant{PutGrant: &pb.PutGrant{Grant: m}}}
}

func dropGrant(id string) *pb.Command {
	return &pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_DeleteGrant{DeleteGrant: &pb.DeleteGrant{Id: id}}}
}

// usersMesh applies commands one after the other.
type usersMesh struct {
	t     *testing.T
	m     *state.Machine
	index uint64
	now   int64
}

func newUsersMesh(t *testing.T) *usersMesh {
	u := &usersMesh{t: t, m: fresh(t), now: 10_000}
	u.must(tenant("t", 0, 0))
	return u
}

func (u *usersMesh) do(c *pb.Command) state.Answer {
	u.t.Helper()
	u.index++
	return do(u.t, u.m, entry(u.index, u.now, c))[0]
}

func (u *usersMesh) must(c *pb.Command) {
	u.t.Helper()
	if a := u.do(c); a.Err != nil {
		u.t.Fatal(a.Err)
	}
}

func (u *usersMesh) refused(code problem.Code, c *pb.Command) {
	u.t.Helper()
	if a := u.do(c); problem.CodeOf(a.Err) != code {
		u.t.Errorf("%v, not %s", a.Err, code)
	}
}

// caller returns whom a token belongs to, and fails unless it is valid or not, as said.
func (u *usersMesh) caller(id string, valid bool) model.Caller {
	u.t.Helper()
	who, ok := u.m.View().Caller(hex.EncodeToString([]byte("hash of "+id)), u.now, netip.Addr{})
	if ok != valid {
		u.t.Errorf("the token %s is valid: %v", id, ok)
	}
	return who
}

func (u *usersMesh) tokens() []string {
	var out []string
	for _, t := range u.m.View().Tokens("t") {
		out = append(out, t.ID)
	}
	slices.Sort(out)
	return out
}

// A token may do what its user may at the time, and a token that was made with another no more than both.
func TestTokensFollowTheirUser(t *testing.T) {
	u := newUsersMesh(t)
	u.must(putUser("root", model.User{Name: "ann", Tenant: "t", Method: "local", Role: "admin", Groups: []string{"devs", "operator"}}, "h1"))
	u.must(sessionOf("ann", "s", u.now+1000, u.now))
	u.must(tokenOf("ann", "all", "", ""))
	u.must(tokenOf("ann", "reads", "read", "all"))
	u.must(tokenOf("ann", "same", "", "all"))
	u.refused(problem.Forbidden, tokenOf("ann", "further", "", "same"))
	u.must(tokenOf("ann", "less", "read", ""))
	u.must(tokenOf("ann", "grows", "admin", "less"))
	u.must(tokenOf("bob", "free", "user", "")) // of nobody who can log in

	for _, id := range []string{"s", "all", "same"} {
		who := u.caller(id, true)
		if who.Role != "admin" || fmt.Sprint(who.Groups) != "[operator t/devs]" || who.Maker != nil || who.Token != id || who.Session != (id == "s") {
			t.Errorf("%s: %+v", id, who)
		}
	}
	for id, role := range map[string]model.Role{"reads": "read", "grows": "read", "free": "user"} {
		if who := u.caller(id, true); who.Role != role || len(who.Groups) > 0 || (who.Maker == nil) != (id == "free") {
			t.Errorf("%s: %+v", id, who)
		}
	}
	// Another role counts at once.
	u.must(putUser("root", model.User{Name: "ann", Tenant: "t", Role: "user"}, ""))
	if who := u.caller("all", true); who.Role != "user" || len(who.Groups) > 0 {
		t.Errorf("after the change: %+v", who)
	}
	if who := u.m.View().Acting("t", "ann"); who.Role != "user" || who.Actor != "ann" || who.Tenant != "t" {
		t.Errorf("the mesh acts with %+v", who)
	}
	// A disabled user has no access, and neither has what the user made.
	u.must(putUser("root", model.User{Name: "ann", Tenant: "t", Role: "user", Disabled: true}, ""))
	for _, id := range []string{"s", "all", "same", "reads", "less", "grows"} {
		u.caller(id, false)
	}
	u.caller("free", true)
	if who := u.m.View().Acting("t", "ann"); who.Role != "" {
		t.Errorf("the mesh acts for a disabled user: %+v", who)
	}
	u.refused(problem.Conflict, tokenOf("ann", "late", "", ""))
	u.must(putUser("root", model.User{Name: "ann", Tenant: "t", Role: "admin"}, ""))
	u.caller("grows", true)

	// The end of a token is the end of those that were made with it.
	u.must(&pb.Command{Actor: "ann", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "all"}}})
	if got := fmt.Sprint(u.tokens()); got != "[free grows less s]" {
		t.Errorf("tokens: %s", got)
	}
	u.refused(problem.Unauthorized, tokenOf("ann", "orphan", "read", "all"))
}

// A name is given once, and a deleted user's tokens end.
func TestNamesAreGivenOnce(t *testing.T) {
	u := newUsersMesh(t)
	u.must(created("ann", ""))
	u.must(tokenOf("ann", "k", "user", ""))
	u.refused(problem.Conflict, created("ann", "another"))
	remove := &pb.Command{Tenant: "t", Actor: "root", Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: "ann"}}}
	u.must(remove)
	u.caller("k", false)
	u.refused(problem.NotFound, remove)
	u.refused(problem.Conflict, created("ann", "another"))
	u.refused(problem.Conflict, putUser("root", model.User{Name: "ann", Tenant: "t", Role: "user"}, ""))
	u.refused(problem.Conflict, tokenOf("ann", "k2", "user", ""))
	if who := u.m.View().Acting("t", "ann"); who.Role != "" {
		t.Errorf("the mesh acts for a deleted user: %+v", who)
	}
	if _, ok := u.m.View().User("t", "ann"); ok || len(u.m.View().Users("t")) != 0 || len(u.tokens()) != 0 {
		t.Error("the deleted user is still there")
	}
	if again := restored(t, u.m); len(again.View().Users("")) != 0 {
		t.Error("a snapshot brings the deleted user back")
	}
	// With its tenant the name is forgotten.
	u.must(&pb.Command{Actor: "root", Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: "t"}}})
	u.must(tenant("t", 0, 0))
	u.must(created("ann", ""))
}

// A session ends with its time, with another password and with too many later ones; a renewal goes no further than the login allows.
func TestSessionsEnd(t *testing.T) {
	u := newUsersMesh(t)
	u.refused(problem.Conflict, sessionOf("ann", "s0", u.now+1000, 0)) // of nobody
	u.must(putUser("root", model.User{Name: "ann", Tenant: "t", Method: "local", Role: "user"}, "h1"))
	set := u.now
	u.refused(problem.Conflict, sessionOf("ann", "s0", u.now+1000, set-1)) // opened with an older password
	u.must(sessionOf("ann", "s1", u.now+1000, set))
	renew := func(expires int64) *pb.Command {
		return &pb.Command{Actor: "ann", Change: &pb.Command_RenewToken{RenewToken: &pb.RenewToken{Id: "s1", ExpiresMs: expires}}}
	}
	u.must(renew(set + 1500))
	u.now = set + 1400
	u.caller("s1", true)
	u.must(renew(set + 9000))
	u.now = set + 1999
	u.caller("s1", true)
	u.now = set + 2000
	u.caller("s1", false)
	u.refused(problem.Unauthorized, renew(set+9000))

	u.must(sessionOf("ann", "s2", u.now+1000, set))
	if got := fmt.Sprint(u.tokens()); got != "[s2]" {
		t.Errorf("ended sessions stay: %s", got)
	}
	short := tokenOf("ann", "short", "user", "")
	short.GetPutToken().ExpiresMs = u.now + 1
	u.must(short)
	u.must(tokenOf("ann", "child", "", "short"))
	u.now++
	u.must(tokenOf("ann", "k", "user", ""))
	u.must(sessionOf("ann", "s3", u.now+1000, set))
	// A new password undoes nothing that an administrator changed meanwhile.
	change := putUser("ann", model.User{Name: "ann", Tenant: "t", Role: "admin"}, "h2")
	change.GetPutUser().Keep, change.GetPutUser().Change = "s3", nil
	u.must(change)
	if got := fmt.Sprint(u.tokens()); got != "[k s3]" {
		t.Errorf("after another password: %s", got)
	}
	if who := u.caller("s3", true); who.Role != "user" {
		t.Errorf("a new password gave the role %s", who.Role)
	}
	for i := range 100 {
		u.now++
		u.must(sessionOf("ann", fmt.Sprint("many-", i), u.now+100_000, u.m.View().Users("t")[0].PasswordSet))
	}
	if all := u.tokens(); len(all) != 101 || slices.Contains(all, "s3") || !slices.Contains(all, "many-0") || !slices.Contains(all, "k") {
		t.Errorf("%d tokens: %v", len(all), all)
	}
	// Tokens end no sessions.
	for i := range 99 {
		u.must(tokenOf("ann", fmt.Sprint("token-", i), "read", ""))
	}
	u.refused(problem.Quota, tokenOf("ann", "one-more", "read", ""))
	if all := u.tokens(); len(all) != 200 || !slices.Contains(all, "many-0") {
		t.Errorf("%d tokens: %v", len(all), all)
	}
}

// Grants end with their time, with their granter and with whom they are for.
func TestGrantsEnd(t *testing.T) {
	u := newUsersMesh(t)
	u.must(created("ann", ""))
	u.must(created("bob", ""))
	u.must(grantOf("g1", "ann", "user/bob", 0))
	u.must(grantOf("g2", "bob", "group/ann", u.now+10))
	u.must(grantOf("g3", "bob", "group/ann", 0))
	u.refused(problem.Conflict, grantOf("g3", "bob", "group/ann", 0))
	u.must(dropGrant("g3"))
	u.refused(problem.NotFound, dropGrant("g3"))
	u.now += 10
	u.must(grantOf("g4", "carol", "user/bob", 0))
	var got []string
	for _, g := range u.m.View().Grants("t") {
		got = append(got, g.ID)
	}
	if fmt.Sprint(got) != "[g1 g4]" {
		t.Errorf("grants: %v", got)
	}
	before := u.m.View().GrantEdition("t")
	u.must(created("dan", ""))
	if u.m.View().GrantEdition("t") == before {
		t.Error("the granters may do something else now, and the edition is the same")
	}
	u.must(&pb.Command{Tenant: "t", Actor: "root", Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: "bob"}}})
	if left := u.m.View().Grants("t"); len(left) != 0 {
		t.Errorf("after the end of bob: %v", left)
	}
}
