package logins_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// people are a directory: persons by subject, whose passwords are their subjects.
type people struct {
	all       map[string]logins.Person
	fault     error            // of all questions
	faults    map[string]error // of questions about subjects
	asked     int
	subjects  []string
	meanwhile func() // called before an answer
}

func (p *people) Login(_ context.Context, name, password string) (logins.Person, error) {
	x, ok := p.all[password]
	if p.meanwhile != nil {
		p.meanwhile()
	}
	if ok && x.Name == name && p.fault == nil {
		return x, nil
	}
	return logins.Person{}, errors.Join(p.fault, problem.Unauthorized)
}

func (p *people) Find(_ context.Context, subject string) (logins.Person, error) {
	p.asked++
	p.subjects = append(p.subjects, subject)
	x, ok := p.all[subject]
	if p.meanwhile != nil {
		p.meanwhile()
	}
	switch err := cmp.Or(p.fault, p.faults[subject]); {
	case err != nil:
		return x, err
	case !ok:
		return x, problem.Unauthorized
	}
	return x, nil
}

// mesh has a machine, a directory of tenant acme and the controller over both.
type mesh struct {
	*logins.Controller
	t     *testing.T
	m     *state.Machine
	dir   *people
	mu    sync.Mutex // of what follows
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
	x.mu.Lock()
	defer x.mu.Unlock()
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
	x.login("ann", "1", "corp.ann")
	if u := x.user("corp.ann"); u.Method != "corp" || u.Role != model.RoleUser || !slices.Equal(u.Groups, []string{"devs"}) || u.Left != 0 {
		t.Errorf("%+v", u)
	}
	x.dir.all["1"] = logins.Person{Subject: "1", Name: "anna", Role: model.RoleAdmin, Groups: []string{"ops"}}
	x.login("anna", "1", "corp.ann")
	if u := x.user("corp.ann"); u.Role != model.RoleAdmin || !slices.Equal(u.Groups, []string{"ops"}) {
		t.Errorf("the directory's change is not in the mesh: %+v", u)
	}
	// Other people get the old name there, or one that differs in case or in what names cannot have.
	for subject, name := range map[string]string{"2": "ann", "3": "ANN", "4": "a@b", "5": "a b", "6": "анна"} {
		x.dir.all[subject] = logins.Person{Subject: subject, Name: name, Role: model.RoleRead}
		if u, err := x.Login(t.Context(), corp, name, subject); err != nil || !strings.HasPrefix(u.Name, "corp.") || u.Subject != subject {
			t.Errorf("%s logs in as %+v, %v", name, u, err)
		}
	}
	names := map[string]bool{}
	for _, u := range x.m.View().Users("acme") {
		names[u.Name] = true
	}
	if len(names) != 6 || !names["corp.a.b"] || !names["corp.ann-d4735e3a"] {
		t.Errorf("the users: %v", names)
	}
	for name, person := range map[string]logins.Person{
		"nobody": {Name: "nobody"}, "much": {Subject: strings.Repeat("x", 600), Name: "much"}, "long": {Subject: "9", Name: strings.Repeat("x", 300)},
	} {
		person.Role = model.RoleRead
		x.dir.all[person.Subject] = person
		if u, err := x.Login(t.Context(), corp, person.Name, person.Subject); err == nil {
			t.Errorf("%s logs in as %+v", name, u)
		}
	}
	if u, err := x.Login(t.Context(), logins.Source{Tenant: "other", Method: "corp"}, "ann", "1"); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a directory of another tenant lets %+v in, %v", u, err)
	}
}

// A person who leaves the directory has no access until the directory says otherwise. An administrator's decision stays.
func TestLeaving(t *testing.T) {
	x := newMesh(t)
	ann := logins.Person{Subject: "1", Name: "ann", Role: model.RoleUser}
	x.dir.all["1"] = ann
	x.login("ann", "1", "corp.ann")
	x.token("corp.ann", 0)
	access := func() bool {
		_, ok := x.m.View().Caller(hex.EncodeToString([]byte("corp.ann")), x.now, netip.Addr{})
		return ok
	}
	sweep := func() { x.Sweep(t.Context()) }
	if !access() {
		t.Error("ann has no access at first")
	}
	x.dir.fault = errors.New("away")
	delete(x.dir.all, "1")
	sweep()
	if err := x.Refresh(t.Context(), "acme", "corp.ann"); problem.CodeOf(err) != problem.Busy || !access() {
		t.Errorf("a directory that does not answer changes something: %v", err)
	}
	x.dir.fault = nil
	sweep()
	if access() || x.user("corp.ann").Left == 0 {
		t.Error("ann has left and has access")
	}
	if err := x.Refresh(t.Context(), "acme", "corp.ann"); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a session of somebody who has left can be renewed: %v", err)
	}
	before := x.index
	sweep()
	if x.index != before {
		t.Error("a sweep writes what is known already")
	}
	x.dir.all["1"] = ann
	sweep()
	if !access() || x.user("corp.ann").Left != 0 {
		t.Error("ann is back and has no access")
	}
	before = x.index
	sweep()
	if x.index != before {
		t.Error("a sweep writes without a change")
	}
	change := func(u *record.User, fields ...string) {
		u.Name, u.Tenant = "corp.ann", "acme"
		x.must(&pb.Command{Change: &pb.Command_PutUser{PutUser: &pb.PutUser{User: u, Change: fields}}})
	}
	change(&record.User{Disabled: true}, "disabled")
	x.refuses("ann", "1")
	if err := x.Refresh(t.Context(), "acme", "corp.ann"); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a session of somebody who is disabled can be renewed: %v", err)
	}
	change(&record.User{}, "disabled")
	x.login("ann", "1", "corp.ann")
	x.must(&pb.Command{Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: "corp.ann"}}})
	x.refuses("ann", "1")
}

// A sweep asks about everybody, as rights outlive tokens. It goes on after somebody who cannot be asked about, and leaves a
// directory alone that does not answer.
func TestSweep(t *testing.T) {
	x := newMesh(t)
	for _, s := range []string{"1", "2", "3", "4", "5", "6"} {
		x.dir.all[s] = logins.Person{Subject: s, Name: "u" + s, Role: model.RoleUser}
		x.login("u"+s, s, "corp.u"+s)
	}
	sweep := func() int {
		x.dir.asked = 0
		x.Sweep(t.Context())
		return x.dir.asked
	}
	if n := sweep(); n != 6 {
		t.Errorf("it asks %d times", n)
	}
	x.dir.faults = map[string]error{"2": errors.New("too many groups"), "4": errors.New("too many groups")}
	delete(x.dir.all, "6")
	if n := sweep(); n != 6 || x.user("corp.u6").Left == 0 {
		t.Errorf("with faults it asks %d times, and has %+v", n, x.user("corp.u6"))
	}
	x.dir.fault = errors.New("away")
	if n := sweep(); n != 3 {
		t.Errorf("it asks %d times without an answer", n)
	}
	if x.user("corp.u1").Left != 0 {
		t.Error("a directory that does not answer locks somebody out")
	}
	// The next sweep begins after the last question.
	x.dir.fault, x.dir.faults = nil, nil
	x.dir.subjects = nil
	if sweep(); x.dir.subjects[0] != "4" {
		t.Errorf("it asks about %v", x.dir.subjects)
	}
	// A directory that is not configured lets nobody in. What its users have stays: the leader's settings may be older.
	gone := logins.New(logins.Config{Machine: x.m, Propose: x.propose, Logger: slog.New(slog.DiscardHandler)})
	gone.Sweep(t.Context())
	if err := gone.Refresh(t.Context(), "acme", "corp.u1"); problem.CodeOf(err) != problem.Unauthorized || x.user("corp.u1").Left != 0 {
		t.Errorf("a user of a directory that is gone: %v, %+v", err, x.user("corp.u1"))
	}
}

// An answer that is older than what is on record changes nothing.
func TestLateAnswer(t *testing.T) {
	x := newMesh(t)
	x.dir.all["1"] = logins.Person{Subject: "1", Name: "ann", Role: model.RoleRead}
	x.login("ann", "1", "corp.ann")
	x.dir.meanwhile = func() { // the person is asked about, and logs in with a new role before the answer is there
		x.dir.meanwhile = nil
		x.dir.all["1"] = logins.Person{Subject: "1", Name: "ann", Role: model.RoleAdmin}
		x.login("ann", "1", "corp.ann")
	}
	if err := x.Refresh(t.Context(), "acme", "corp.ann"); err != nil || x.user("corp.ann").Role != model.RoleAdmin {
		t.Errorf("the late answer counts: %+v, %v", x.user("corp.ann"), err)
	}
	x.dir.meanwhile = func() { // the person logs in, and a sweep hears of a new role before that
		x.dir.meanwhile = nil
		x.dir.all["1"] = logins.Person{Subject: "1", Name: "ann", Role: model.RoleUser}
		x.Sweep(t.Context())
	}
	if u, err := x.Login(t.Context(), corp, "ann", "1"); err != nil || u.Role != model.RoleUser || x.user("corp.ann").Role != model.RoleUser {
		t.Errorf("the late login counts: %+v, %v", u, err)
	}
}

// pages is a directory with pages, of which each login is in one state.
type pages struct {
	err    error
	secret string // which Finish returns
}

func (p *pages) Begin(_ context.Context, redirect string) (logins.Prompt, logins.Pending, error) {
	return logins.Prompt{URL: "https://example.com/", Ends: time.Now().Add(time.Hour)}, logins.Pending{Redirect: redirect, State: "s"}, nil
}

func (p *pages) Finish(_ context.Context, l logins.Pending, _, code string) (logins.Person, string, error) {
	return logins.Person{Subject: code, Name: l.Redirect, Role: model.RoleUser}, p.secret, p.err
}

func (p *pages) Renew(context.Context, string, string) (logins.Person, string, error) {
	return logins.Person{}, "", errors.New("nobody is asked about again")
}

// leader returns the controller of a leader with keys, for a directory that has people log in on its pages.
func (x *mesh) leader(p logins.Pages, keys keyring.Set) *logins.Controller {
	x.t.Helper()
	ring, err := keyring.Open(&memkeys.Store{})
	if err != nil {
		x.t.Fatal(err)
	}
	if err := ring.Put(keys); err != nil {
		x.t.Fatal(err)
	}
	return logins.New(logins.Config{Machine: x.m, Propose: x.propose, Ring: ring, Box: sealed.NewBox(x.m, x.propose, ring),
		Directories: map[logins.Source]logins.Directory{corp: p}, Logger: slog.New(slog.DiscardHandler)})
}

// A login on pages is finished by its own id, at any leader that has the keys of the mesh.
func TestPages(t *testing.T) {
	x, p := newMesh(t), &pages{}
	keys := keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}
	leader := func(keys keyring.Set) *logins.Controller { return x.leader(p, keys) }
	c := leader(keys)
	prompt, id, err := c.Begin(t.Context(), corp, "ann")
	if err != nil || prompt.URL == "" || prompt.Ends.After(time.Now().Add(11*time.Minute)) || strings.Contains(id, "ann") {
		t.Fatalf("%+v, %q, %v", prompt, id, err)
	}
	if u, err := c.Finish(t.Context(), id, "s", "1"); err != nil || u.Name != "corp.ann" || u.Subject != "1" {
		t.Errorf("%+v, %v", u, err)
	}
	for _, err := range []error{logins.ErrPending, logins.ErrSlowDown, problem.Unauthorized} {
		if p.err = err; !errors.Is(errors.Join(finish(c, id)), err) {
			t.Errorf("%v becomes %v", err, finish(c, id))
		}
	}
	if p.err = errors.New("secret detail"); problem.CodeOf(finish(c, id)) != problem.Busy || strings.Contains(finish(c, id).Error(), "detail") {
		t.Errorf("%v", finish(c, id))
	}
	p.err = nil
	for what, id := range map[string]string{"another id": id[:len(id)-4] + "AAAA", "no id": "", "junk": "junk"} {
		if err := finish(c, id); problem.CodeOf(err) != problem.Unauthorized {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := finish(leader(keys), id); err != nil {
		t.Errorf("another leader: %v", err)
	}
	if plain, err := base64.RawURLEncoding.DecodeString(id); err != nil {
		t.Error(err)
	} else if _, err := keyring.NewCipher(keys.Keys[0]).Open(keyring.Bind("login", x.m.View().Mesh()), plain); !errors.Is(err, keyring.ErrNotSealed) {
		t.Errorf("the key of the mesh itself encrypts logins: %v", err)
	}
	if err := finish(leader(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}), id); problem.CodeOf(err) != problem.Unauthorized {
		t.Errorf("a leader of another mesh: %v", err)
	}
	if _, _, err := leader(keyring.Set{}).Begin(t.Context(), corp, "ann"); problem.CodeOf(err) != problem.NoMajority {
		t.Errorf("a leader without keys: %v", err)
	}
	if err := c.Refresh(t.Context(), "acme", "corp.ann"); problem.CodeOf(err) != problem.Forbidden || c.Renews(x.user("corp.ann")) {
		t.Errorf("a session is renewed: %v", err)
	}
	c.Sweep(t.Context())
	if x.user("corp.ann").Left != 0 {
		t.Error("a sweep locks somebody out about whom nobody can be asked")
	}
}

// A login ends ten minutes after it began, though its directory would wait for longer. Nobody is asked about it afterwards.
func TestLateFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newMesh(t)
		c := x.leader(&pages{}, keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}})
		_, id, err := c.Begin(t.Context(), corp, "ann")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + time.Second)
		if err := finish(c, id); problem.CodeOf(err) != problem.Unauthorized || !strings.Contains(err.Error(), "begin again") {
			t.Errorf("a late login: %v", err)
		}
		if users := x.m.View().Users("acme"); len(users) > 0 {
			t.Errorf("a late login makes users: %+v", users)
		}
		if _, id, err = c.Begin(t.Context(), corp, "ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute - time.Second)
		if err := finish(c, id); err != nil {
			t.Errorf("a login in the last second: %v", err)
		}
	})
}

func finish(c *logins.Controller, id string) error {
	_, err := c.Finish(context.Background(), id, "s", "1")
	return err
}
