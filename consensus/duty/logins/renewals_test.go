package logins_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// grants is a directory with pages whose secrets count once: the use of an old one ends the login, as with providers that look for
// stolen refresh tokens.
type grants struct {
	pages
	mu     sync.Mutex
	person logins.Person
	fault  error         // of questions about the person, after the secret was replaced
	login  int           // the latest one
	used   int           // how often its secret was replaced
	stolen bool          // an old secret of it came again
	wait   chan struct{} // closed when questions are answered; nil: at once
}

func (g *grants) next() string { return fmt.Sprintf("canary-%d-%d", g.login, g.used) }

func (g *grants) Finish(context.Context, logins.Pending, string, string) (logins.Person, string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.login, g.used, g.stolen = g.login+1, 0, false
	return g.person, g.next(), nil
}

func (g *grants) Renew(_ context.Context, subject, secret string) (logins.Person, string, error) {
	if g.wait != nil {
		<-g.wait
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stolen = g.stolen || secret != g.next() && strings.HasPrefix(secret, fmt.Sprintf("canary-%d-", g.login))
	if errors.Is(g.fault, logins.ErrEnded) || subject != g.person.Subject || secret != g.next() || g.stolen {
		return logins.Person{}, "", logins.ErrEnded
	}
	g.used++
	return g.person, g.next(), g.fault
}

// renewing has a mesh with keys, a user who has logged in with a session and a token, and the directory.
func renewing(t *testing.T) (x *mesh, g *grants, keys keyring.Set, login func() *logins.Controller) {
	x, g = newMesh(t), &grants{person: logins.Person{Subject: "1", Name: "ann", Role: model.RoleUser, Groups: []string{"devs"}}}
	keys = keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}
	ring, err := keyring.Open(&memkeys.Store{})
	if err == nil {
		err = ring.Put(keys)
	}
	if err == nil {
		err = sealed.NewBox(x.m, x.propose, ring).MakeMeshKey(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	sessions := 0
	return x, g, keys, func() *logins.Controller {
		t.Helper()
		c := x.leader(g, keys)
		_, id, err := c.Begin(t.Context(), corp, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(c, id); err != nil {
			t.Fatal(err)
		}
		sessions++
		name := "session-" + strconv.Itoa(sessions)
		x.must(&pb.Command{Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
			Hash: []byte(name), Id: name, Actor: "corp.ann", Tenant: "acme", Session: true, ExpiresMs: x.now + 1e9, RenewableMs: x.now + 1e10,
		}}})
		return c
	}
}

func (x *mesh) sessions() (n int) {
	for _, t := range x.m.View().Tokens("acme") {
		if t.Session {
			n++
		}
	}
	return n
}

func (x *mesh) kept() (rows []table.SealedRow) {
	x.m.View().EachSealed(func(r table.SealedRow) bool {
		if strings.HasPrefix(r.ID, "login/") {
			rows = append(rows, r)
		}
		return true
	})
	return rows
}

func refresh(c *logins.Controller) error { return c.Refresh(context.Background(), "acme", "corp.ann") }

// A renewal reads role and groups again, with a secret that no row shows and that the next leader has.
func TestRenewal(t *testing.T) {
	x, g, keys, login := renewing(t)
	c := login()
	if !c.Renews(x.user("corp.ann")) {
		t.Error("the session of a login with a refresh token is not renewed")
	}
	g.person.Role, g.person.Groups = model.RoleAdmin, []string{"devs", "ops"}
	for range 2 {
		if err := refresh(c); err != nil || x.user("corp.ann").Role != model.RoleAdmin || !slices.Equal(x.user("corp.ann").Groups, g.person.Groups) {
			t.Errorf("a renewal: %v, %+v", err, x.user("corp.ann"))
		}
		c = x.leader(g, keys) // the leader changes
	}
	if other := x.leader(&pages{}, keys); !other.Renews(x.user("corp.ann")) {
		t.Error("another leader has no secret")
	}
	if rows := x.kept(); len(rows) != 1 || rows[0].Version != 3 || slices.ContainsFunc(rows, func(r table.SealedRow) bool { return bytes.Contains(r.Sealed, []byte("canary")) }) {
		t.Errorf("on record are %+v", rows)
	}
	// A leader that ended before it had removed the version before.
	row := x.kept()[0]
	x.must(&pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{Values: []*pb.SealedValue{
		{Id: row.ID, Version: row.Version + 1, Sealed: row.Sealed},
	}}}})
	c.Sweep(t.Context())
	if rows := x.kept(); len(rows) != 1 || rows[0].Version != row.Version+1 {
		t.Errorf("after a sweep there are %+v", rows)
	}
}

// A provider that is down ends nothing and renews nothing. What it replaced before it went down counts afterwards.
func TestRenewalWithoutAnswer(t *testing.T) {
	x, g, _, login := renewing(t)
	c := login()
	g.person.Groups, g.fault = nil, errors.New("secret detail")
	for range 2 {
		if err := refresh(c); problem.CodeOf(err) != problem.Busy || strings.Contains(err.Error(), "detail") || x.sessions() != 1 ||
			x.user("corp.ann").Left != 0 || len(x.user("corp.ann").Groups) != 1 {
			t.Errorf("without an answer: %v, %+v", err, x.user("corp.ann"))
		}
	}
	if g.fault = nil; refresh(c) != nil || len(x.user("corp.ann").Groups) != 0 {
		t.Errorf("with an answer again: %v, %+v", refresh(c), x.user("corp.ann"))
	}
	g.wait = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Refresh(ctx, "acme", "corp.ann"); !errors.Is(err, context.Canceled) {
		t.Errorf("whoever gave up hears %v", err)
	}
	close(g.wait)
	if err := refresh(c); err != nil {
		t.Errorf("after a renewal whose caller gave up: %v", err)
	}
}

// Renewals at the same time use a secret once, and a login at that time is not lost.
func TestRenewalsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, g, _, login := renewing(t)
		c := login()
		var all sync.WaitGroup
		renew := func(n int) {
			g.wait = make(chan struct{})
			for range n {
				all.Go(func() {
					if err := refresh(c); err != nil {
						t.Errorf("one of %d renewals: %v", n, err)
					}
				})
			}
			synctest.Wait()
		}
		renew(8)
		close(g.wait)
		all.Wait()
		renew(1)
		login() // which ends the secret that is asked with
		close(g.wait)
		all.Wait()
		if !c.Renews(x.user("corp.ann")) || x.sessions() != 2 {
			t.Errorf("after a login during a renewal: %d sessions", x.sessions())
		}
	})
}

// A provider that ends a login, or knows no role for the person any more, ends the sessions. Tokens stay in the first case, as a refresh
// token may just be too old.
func TestRenewalRefused(t *testing.T) {
	for what, fault := range map[string]error{"the login": logins.ErrEnded, "the person": problem.New(problem.Unauthorized, "in no group")} {
		x, g, _, login := renewing(t)
		c := login()
		login()
		x.token("corp.ann", 0)
		g.fault = fault
		if err := refresh(c); problem.CodeOf(err) != problem.Unauthorized || !strings.Contains(err.Error(), "log in again") {
			t.Errorf("%s is refused: %v", what, err)
		}
		_, token := x.m.View().Caller(hex.EncodeToString([]byte("corp.ann")), x.now, netip.Addr{})
		left := !errors.Is(fault, logins.ErrEnded)
		if x.sessions() != 0 || c.Renews(x.user("corp.ann")) || token == left || (x.user("corp.ann").Left != 0) != left {
			t.Errorf("%s is refused: %d sessions, the token counts: %t, %+v", what, x.sessions(), token, x.user("corp.ann"))
		}
		if err := refresh(c); problem.CodeOf(err) != problem.Forbidden {
			t.Errorf("%s is asked about again: %v", what, err)
		}
		c.Sweep(t.Context())
		if rows := x.kept(); len(rows) != 0 {
			t.Errorf("%s: kept are %+v", what, rows)
		}
		g.fault = nil
		if c = login(); refresh(c) != nil || x.user("corp.ann").Left != 0 || x.sessions() != 1 {
			t.Errorf("%s: after a new login: %v, %+v", what, refresh(c), x.user("corp.ann"))
		}
	}
}

// A refresh token that is too large is not kept, and takes the place of the one before, as a login without one does.
func TestRenewalWithoutSecret(t *testing.T) {
	x, _, keys, login := renewing(t)
	for _, secret := range []string{strings.Repeat("x", 20<<10), ""} {
		login()
		c := x.leader(&pages{secret: secret}, keys)
		_, id, err := c.Begin(t.Context(), corp, "ann")
		if err != nil {
			t.Fatal(err)
		}
		if err := finish(c, id); err != nil || c.Renews(x.user("corp.ann")) {
			t.Errorf("after a login with %d bytes: %v", len(secret), err)
		}
	}
}
