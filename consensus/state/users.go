package state

import (
	"cmp"
	"encoding/hex"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// maxUserTokens bounds the tokens of one user, and the sessions. A further login ends the oldest session.
const maxUserTokens = 100

// users changes users, tokens and grants.
type users struct{ *writer }

func (a users) putUser(c *pb.Command, p *pb.PutUser) Answer {
	u, err := logformat.DecodeUser(p.User)
	if err != nil {
		return refuse(problem.Unsupported, "user: %v", err)
	}
	if err := a.tenant(u.Tenant); err != nil {
		return Answer{Err: err}
	}
	next := &table.UserRow{User: *u, Password: p.Password}
	switch old := a.user(u.Tenant, u.Name); {
	case old == nil && !p.CreateOnly:
		return refuse(problem.NotFound, "there is no user %q", u.Name)
	case old == nil:
		if other, ok := a.view().UserOf(u.Tenant, u.Method, u.Subject); ok {
			return refuse(problem.Conflict, "user %q of %s is in the mesh as %q", u.Name, u.Method, other.Name)
		}
		if err := a.roomForOne(u.Tenant, model.LimitUsers); err != nil {
			return Answer{Err: err}
		}
		next.Created = a.now
	case old.Deleted != 0:
		return refuse(problem.Conflict, "user %q was deleted, and records still name it: the name is not given again", u.Name)
	case p.CreateOnly:
		return refuse(problem.Conflict, "user %q exists", u.Name)
	default:
		next = changed(old, u, p.Change)
		next.Password = cmp.Or(p.Password, old.Password)
	}
	if p.Password != "" {
		next.PasswordSet = a.now
	}
	a.put(table.Users, next)
	a.event(model.Event{Type: "user.changed", Tenant: u.Tenant, Subject: u.Name, Actor: c.Actor})
	if p.Password != "" {
		for _, t := range a.tokensOf(u.Tenant, u.Name) {
			if t.Session && t.ID != p.Keep {
				a.end(c, t)
			}
		}
	}
	return Answer{Subject: u.Name}
}

// changed returns a user with those fields of another that a change names. All others stay as they are in this state, so that
// changes at the same time do not undo each other.
func changed(old *table.UserRow, u *model.User, fields []string) *table.UserRow {
	next := *old
	for _, f := range fields {
		switch f {
		case "role":
			next.Role = u.Role
		case "groups":
			next.Groups = u.Groups
		case "description":
			next.Description = u.Description
		case "disabled":
			next.Disabled = u.Disabled
		case "left":
			next.Left = u.Left
		}
	}
	return &next
}

func (a users) deleteUser(c *pb.Command, name string) Answer {
	u := a.user(c.Tenant, name)
	if u == nil || u.Deleted != 0 {
		return refuse(problem.NotFound, "there is no user %q", name)
	}
	a.put(table.Users, &table.UserRow{User: model.User{
		Name: u.Name, Tenant: u.Tenant, Method: u.Method, Subject: u.Subject, Created: u.Created, Deleted: a.now,
	}})
	for _, t := range a.tokensOf(c.Tenant, name) {
		a.end(c, t)
	}
	a.removeGrantsOf(c, u)
	a.event(model.Event{Type: "user.deleted", Tenant: c.Tenant, Subject: name, Actor: c.Actor})
	return Answer{Subject: name}
}

// user returns the row of a user, or nil. A deleted user has one, too.
func (a users) user(tenant, name string) *table.UserRow {
	return table.Get[table.UserRow](a.txn, table.Users, "id", tenant, name)
}

// tokensOf returns the tokens of a user, the oldest first.
func (a users) tokensOf(tenant, name string) []*table.TokenRow {
	out := table.List[table.TokenRow](a.txn, table.Tokens, "actor", tenant, name)
	slices.SortStableFunc(out, func(x, y *table.TokenRow) int { return cmp.Compare(x.Created, y.Created) })
	return out
}

func (a users) putToken(c *pb.Command, p *pb.PutToken) Answer {
	if err := a.tenant(p.Tenant); err != nil {
		return Answer{Err: err}
	}
	if table.Get[table.TokenRow](a.txn, table.Tokens, "id", p.Id) != nil {
		return refuse(problem.Conflict, "token %q exists", p.Id)
	}
	if p.Parent != "" {
		switch parent := table.Get[table.TokenRow](a.txn, table.Tokens, "id", p.Parent); {
		case parent == nil:
			return refuse(problem.Unauthorized, "the token that asks was revoked")
		case parent.Parent != "":
			return refuse(problem.Forbidden, "token %q was made with a token: it makes no further ones", p.Parent)
		}
	}
	switch u := a.user(p.Tenant, p.Actor); {
	case u == nil && p.Session || u != nil && !u.HasAccess():
		return refuse(problem.Conflict, "user %q has no access", p.Actor)
	case p.Session && u.PasswordSet != p.PasswordSetMs:
		return refuse(problem.Conflict, "the password was changed meanwhile: log in with the new one")
	}
	a.endExpired()
	if err := a.makeRoom(c, p); err != nil {
		return Answer{Err: err}
	}
	if !p.Session {
		if err := a.roomForOne(p.Tenant, model.LimitTokens); err != nil {
			return Answer{Err: err}
		}
	}
	a.put(table.Tokens, &table.TokenRow{Hash: hex.EncodeToString(p.Hash), Token: model.Token{
		ID: p.Id, Actor: p.Actor, Tenant: p.Tenant, Role: model.Role(p.Role), Created: a.now, Session: p.Session,
		Parent: p.Parent, Expires: p.ExpiresMs, Renewable: p.RenewableMs, Description: p.Description, Sources: p.Sources,
	}})
	a.event(model.Event{Type: "token.changed", Tenant: p.Tenant, Subject: p.Id, Actor: c.Actor})
	return Answer{Subject: p.Id}
}

// makeRoom ends the oldest session of a user who has as many as one can have. Tokens that are no sessions are counted apart, so that
// they end no session.
func (a users) makeRoom(c *pb.Command, p *pb.PutToken) error {
	all := a.tokensOf(p.Tenant, p.Actor)
	all = slices.DeleteFunc(all, func(t *table.TokenRow) bool { return t.Session != p.Session })
	switch {
	case len(all) < maxUserTokens || a.user(p.Tenant, p.Actor) == nil:
		return nil
	case p.Session:
		a.end(c, all[0])
		return nil
	}
	return problem.New(problem.Quota, "user %q has %d tokens: revoke some first", p.Actor, len(all))
}

// endExpired removes tokens whose time is over, with those that were made with them. They were not valid any more.
func (a users) endExpired() {
	var over []*table.TokenRow
	table.Each(a.txn, table.Tokens, "id", func(t *table.TokenRow) bool {
		if t.Expires != 0 && t.Expires <= a.now {
			over = append(over, t)
		}
		return true
	})
	for _, t := range over {
		a.end(&pb.Command{}, t) // nobody ended it
	}
}

func (a users) renewToken(c *pb.Command, p *pb.RenewToken) Answer {
	t := table.Get[table.TokenRow](a.txn, table.Tokens, "id", p.Id)
	if t == nil || !t.Session || t.Expires <= a.now {
		return refuse(problem.Unauthorized, "the session has ended: log in again")
	}
	next := *t
	next.Expires = max(t.Expires, min(p.ExpiresMs, t.Renewable))
	a.put(table.Tokens, &next)
	a.event(model.Event{Type: "token.changed", Tenant: t.Tenant, Subject: t.ID, Actor: c.Actor})
	return Answer{Subject: t.ID}
}

// touchTokens records in which hour tokens were last used. It has no event and no audit record, because a token may be used in every
// hour. A use of a token that has ended is forgotten, and so is one before the last use on record.
func (a users) touchTokens(p *pb.TouchTokens) Answer {
	used := model.Hour(min(p.HourMs, a.now))
	for _, id := range p.Ids {
		t := table.Get[table.TokenRow](a.txn, table.Tokens, "id", id)
		if t == nil || t.Used >= used {
			continue
		}
		next := *t
		next.Used = used
		a.put(table.Tokens, &next)
	}
	return Answer{}
}

func (a users) deleteToken(c *pb.Command, id string) Answer {
	t := table.Get[table.TokenRow](a.txn, table.Tokens, "id", id)
	if t == nil {
		return refuse(problem.NotFound, "there is no token %q", id)
	}
	a.end(c, t)
	return Answer{Subject: id}
}

// end removes a token, and those that were made with it.
func (a users) end(c *pb.Command, t *table.TokenRow) {
	if table.Get[table.TokenRow](a.txn, table.Tokens, "id", t.ID) == nil {
		return // it ended with the one that made it
	}
	a.remove(table.Tokens, t)
	a.event(model.Event{Type: "token.deleted", Tenant: t.Tenant, Subject: t.ID, Actor: c.Actor})
	for _, child := range table.List[table.TokenRow](a.txn, table.Tokens, "parent", t.ID) {
		a.end(c, child)
	}
}
