package logins_test

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// people are a directory: persons by subject, whose passwords are their subjects.
type people struct {
	all   map[string]logins.Person
	fault error
	asked int
}

func (p *people) Login(_ context.Context, name, password string) (logins.Person, error) {
	if x, ok := p.all[password]; ok && x.Name == name && p.fault == nil {
		return x, nil
	}
	return logins.Person{}, errors.Join(p.fault, problem.Unauthorized)
}

func (p *people) Find(_ context.Context, subject string) (logins.Person, error) {
	p.asked++
	if p.fault != nil {
		return logins.Person{}, p.fault
	}
	if x, ok := p.all[subject]; ok {
		return x, nil
	}
	return logins.Person{}, problem.Unauthorized
}

// mesh has a machine, a directory of tenant acme and the controller over both.
type mesh struct {
	*logins.Controller
	t     *testing.T
	m     *state.Machine
	dir   *people
	index uint64
	now   int64
}

func newMesh(t *testing.T) *mesh {
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := &mesh{t: t, m: m, dir: &people{all: map[string]logins.Person{}}, now: 1_750_000_000_000}
	x.Controller = logins.New(logins.Config{
		Machine: m, Propose: x.propose, Directories: map[logins.Source]logins.Directory{corp: x.dir}, Logger: slog.New(slog.DiscardHandler),
	})
	x.must(&pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: "acme"}, CreateOnly: true}}})
	return x
}

var corp = logins.Source{Tenant: "acme", Method: "corp"}

func (x *mesh) propose(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
	x.index++
	data, err := proto.Marshal(&pb.Entry{
		Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, NowMs: x.now, Commands: commands,
	})
	if err != nil {
		return nil, err
	}
	return x.m.Apply(&raft.Log{Type: raft.LogCommand, Index: x.index, Data: data}).([][]state.Answer)[0], nil
}

func (x *mesh) must(c *pb.Command) {
	x.t.Helper()
	c.Tenant, c.Actor = "acme", "root"
	answers, err := x.propose(x.t.Context(), proto.CloneOf(c))
	if err != nil || answers[0].Err != nil {
		x.t.Fatal(err, answers[0].Err)
	}
}

func (x *mesh) token(actor string, expires int64) {
	x.must(&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
		Hash: []byte(actor), Id: actor + "-token", Actor: actor, Tenant: "acme", ExpiresMs: expires,
	}}})
}

func (x *mesh) user(name string) model.User {
	x.t.Helper()
	u, ok := x.m.View().User("acme", name)
	if !ok {
		x.t.Fatalf("there is no user %s", name)
	}
	return u
}

func (x *mesh) login(name, password, want string) {
	x.t.Helper()
	u, err := x.Login(x.t.Context(), corp, name, password)
	if err != nil || u.Name != want || u.Subject != password {
		x.t.Errorf("%s logs in as %+v, %v; and should be %s", name, u, err, want)
	}
}

func (x *mesh) refuses(name, password string) {
	x.t.Helper()
	if u, err := x.Login(x.t.Context(), corp, name, password); problem.CodeOf(err) != problem.Unauthorized {
		x.t.Errorf("%s logs in as %+v, %v", name, u, err)
	}
}

// A person becomes a user at the first login, remains that user under another name, and never becomes another one.
func TestPersonIsOneUser(t *testing.T) {
	x := newMesh(t)
	x.dir.all["1"] = logins.Person{Subject: "1", Name: "ann", Role: model.RoleUser, Groups: []string{"devs"}}
	x.refuses("ann", "2")
	x.login("ann", "1", "ann")
	if u := x.user("ann"); u.Method != "corp" || u.Role != model.RoleUser || !slices.Equal(u.Groups, []string{"devs"}) || u.Left != 0 {
		t.Errorf("%+v", u)
	}
	x.dir.all["1"] = logins.Person{Subject: "1", Name: "anna", Role: model.RoleAdmin, Groups: []string{"ops"}}
	x.login("anna", "1", "ann")
	if u := x.user("ann"); u.Role != model.RoleAdmin || !slices.Equal(u.Groups, []string{"ops"}) {
		t.Errorf("the directory's change is not in the mesh: %+v", u)
	}
	// Another person gets the old name there.
	x.dir.all["2"] = logins.Person{Subject: "2", Name: "ann", Role: model.RoleRead}
	x.login("ann", "2", "corp.ann")
	x.dir.all["3"] = logins.Person{Subject: "3", Name: "ANN", Role: model.RoleRead}
	if u, err := x.Login(t.Context(), corp, "ANN", "3"); problem.CodeOf(err) != problem.Conflict {
		t.Errorf("a third ann logs in as %+v, %v", u, err)
	}
	// Names of the mesh, of others in the tenant and of superadmins elsewhere belong to nobody else.
	x.must(&pb.Command{Change: &pb.Command_PutUser{PutUser: &pb.PutUser{
		User: &record.User{Name: "bob", Tenant: "acme", Method: model.MethodLocal, Role: "user"}, CreateOnly: true,
	}}})
	x.must(&pb.Command{Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: "bob"}}})
	x.token("holder", 0)
	for name, want := range map[string]string{"bob": "corp.bob", "holder": "corp.holder", "root": "corp.root", "Zed@Example.com": "zed.example.com"} {
		x.dir.all["of "+name] = logins.Person{Subject: "of " + name, Name: name, Role: model.RoleRead}
		x.login(name, "of "+name, want)
	}
	if u, err := x.Login(t.Context(), logins.Source{Tenant: "other", Method: "corp"}, "ann", "1"); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a directory of another tenant lets %+v in, %v", u, err)
	}
}

// Who leaves the directory has no access until the directory says otherwise. What an administrator says stays.
func TestLeaving(t *testing.T) {
	x := newMesh(t)
	ann := logins.Person{Subject: "1", Name: "ann", Role: model.RoleUser}
	x.dir.all["1"] = ann
	x.login("ann", "1", "ann")
	x.token("ann", 0)
	access := func() bool {
		_, ok := x.m.View().Caller(hex.EncodeToString([]byte("ann")), x.now, netip.Addr{})
		return ok
	}
	sweep := func() { x.Sweep(t.Context(), time.UnixMilli(x.now)) }
	if !access() {
		t.Error("ann has no access at first")
	}
	x.dir.fault = problem.Busy
	delete(x.dir.all, "1")
	sweep()
	if err := x.Refresh(t.Context(), "acme", "ann"); problem.CodeOf(err) != problem.Busy || !access() {
		t.Errorf("a directory that does not answer changes something: %v", err)
	}
	x.dir.fault = nil
	sweep()
	if access() || x.user("ann").Left == 0 {
		t.Error("ann has left and has access")
	}
	if err := x.Refresh(t.Context(), "acme", "ann"); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a session of somebody who has left can be renewed: %v", err)
	}
	before := x.index
	sweep()
	if x.index != before {
		t.Error("a sweep writes what is known already")
	}
	x.dir.all["1"] = ann
	sweep()
	if !access() || x.user("ann").Left != 0 {
		t.Error("ann is back and has no access")
	}
	before = x.index
	sweep()
	if x.index != before {
		t.Error("a sweep writes without a change")
	}
	change := func(u *record.User, fields ...string) {
		u.Name, u.Tenant = "ann", "acme"
		x.must(&pb.Command{Change: &pb.Command_PutUser{PutUser: &pb.PutUser{User: u, Change: fields}}})
	}
	change(&record.User{Disabled: true}, "disabled")
	x.refuses("ann", "1")
	if err := x.Refresh(t.Context(), "acme", "ann"); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a session of somebody who is disabled can be renewed: %v", err)
	}
	change(&record.User{}, "disabled")
	x.login("ann", "1", "ann")
	x.must(&pb.Command{Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: "ann"}}})
	x.refuses("ann", "1")
}

// A sweep asks about users with tokens only, and only once about a directory that does not answer.
func TestSweepAsksLittle(t *testing.T) {
	x := newMesh(t)
	for _, s := range []string{"1", "2", "3"} {
		x.dir.all[s] = logins.Person{Subject: s, Name: "u" + s, Role: model.RoleUser}
		x.login("u"+s, s, "u"+s)
	}
	x.token("u1", 0)
	x.token("u2", x.now+1000)
	sweep := func() int {
		x.dir.asked = 0
		x.Sweep(t.Context(), time.UnixMilli(x.now))
		return x.dir.asked
	}
	if n := sweep(); n != 2 {
		t.Errorf("it asks %d times", n)
	}
	x.dir.fault = problem.Busy
	if n := sweep(); n != 1 {
		t.Errorf("it asks %d times without an answer", n)
	}
	x.dir.fault, x.now = nil, x.now+2000
	if n := sweep(); n != 1 {
		t.Errorf("it asks %d times after a token's end", n)
	}
}
