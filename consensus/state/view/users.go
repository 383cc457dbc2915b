package view

import (
	"net/netip"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
)

// Acting returns the caller for what the mesh does later in a user's name, with the rights that the user has in
// this state.
func (v TenantView) Acting(tenant, actor string) model.Caller {
	if u := v.user(tenant, actor); u != nil {
		return callerOf(&u.User)
	}
	all := v.AllUsers()
	for _, u := range all {
		if u.Name == actor && u.Role == model.RoleSuperadmin {
			who := callerOf(&u)
			who.Tenant = tenant
			return who
		}
	}
	now := time.Now().UnixMilli()
	tokens := slices.DeleteFunc(v.Tokens(""), func(t model.Token) bool {
		return t.Actor != actor || t.Parent != "" || t.Expires != 0 && t.Expires <= now ||
			slices.ContainsFunc(all, func(u model.User) bool { return u.Tenant == t.Tenant && u.Name == t.Actor })
	})
	return hostexec.Acting(tokens, tenant, actor)
}

// Users returns a tenant's users, or all users if tenant is "". Deleted ones are not among them.
func (v TenantView) Users(tenant string) []model.User {
	return slices.DeleteFunc(v.AllUsers(), func(u model.User) bool { return u.Deleted != 0 || tenant != "" && u.Tenant != tenant })
}

// AllUsers returns the users of all tenants, also the deleted ones, which have no role.
func (v TenantView) AllUsers() []model.User {
	var out []model.User
	table.Each(v.txn, table.Users, "id", func(u *table.UserRow) bool { out = append(out, u.User); return true })
	return out
}

// User finds a user who was not deleted.
func (v TenantView) User(tenant, name string) (model.User, bool) {
	if u := v.user(tenant, name); u != nil && u.Deleted == 0 {
		return u.User, true
	}
	return model.User{}, false
}

// UserOf finds the user that a directory knows as a subject, also one who was deleted. Nobody is the empty subject.
func (v TenantView) UserOf(tenant, method, subject string) (found model.User, ok bool) {
	if subject == "" {
		return found, false
	}
	table.Each(v.txn, table.Users, "id", func(u *table.UserRow) bool {
		if ok = u.Tenant == tenant && u.Method == method && u.Subject == subject; ok {
			found = u.User
		}
		return !ok
	})
	return found, ok
}

// Grants returns a tenant's grants.
func (v TenantView) Grants(tenant string) []model.Grant {
	return values(table.List[model.Grant](v.txn, table.Grants, "id_prefix", tenant))
}

// GrantEdition returns a value that is another once a tenant's grants have changed, or, if it has any, what their granters may do.
func (v TenantView) GrantEdition(tenant string) any {
	grants := table.Edition(v.txn, table.Grants, "id_prefix", tenant)
	if raw, err := v.txn.First(table.Grants, "id_prefix", tenant); err != nil || raw == nil {
		return grants
	}
	return [3]any{grants, table.Edition(v.txn, table.Users, "id_prefix"), table.Edition(v.txn, table.Tokens, "id_prefix")}
}

// Password returns the argon2id hash of a user's password, or "".
func (v TenantView) Password(tenant, name string) string {
	if u := v.user(tenant, name); u != nil {
		return u.Password
	}
	return ""
}

func (v TenantView) user(tenant, name string) *table.UserRow {
	return table.Get[table.UserRow](v.txn, table.Users, "id", tenant, name)
}

// Tokens returns a tenant's tokens, or all tokens if tenant is "".
func (v TenantView) Tokens(tenant string) []model.Token {
	var out []model.Token
	table.Each(v.txn, table.Tokens, "id", func(t *table.TokenRow) bool {
		if tenant == "" || t.Tenant == tenant {
			out = append(out, t.Token)
		}
		return true
	})
	return out
}

// Token finds a token by its id.
func (v TenantView) Token(id string) (model.Token, bool) {
	if t := table.Get[table.TokenRow](v.txn, table.Tokens, "id", id); t != nil {
		return t.Token, true
	}
	return model.Token{}, false
}

// Caller returns the caller that a token belongs to, by the SHA-256 of the token in hexadecimal. It returns false for an
// unknown token, and if the token, one that made it, or its user has no access at a time in Unix
// milliseconds, or a token cannot be used from the address from which the caller asks.
func (v TenantView) Caller(hash string, now int64, from netip.Addr) (model.Caller, bool) {
	t := table.Get[table.TokenRow](v.txn, table.Tokens, "hash", hash)
	if t == nil {
		return model.Caller{}, false
	}
	return v.caller(&t.Token, now, from)
}

func (v TenantView) caller(t *model.Token, now int64, from netip.Addr) (model.Caller, bool) {
	if t.Expires != 0 && t.Expires <= now || !model.AdmittedFrom(from, t.Sources) {
		return model.Caller{}, false
	}
	who := model.Caller{Tenant: t.Tenant, Actor: t.Actor, Role: t.Role}
	var maker *model.Caller
	switch {
	case t.Parent != "":
		parent := table.Get[table.TokenRow](v.txn, table.Tokens, "id", t.Parent)
		if parent == nil || parent.Parent != "" {
			return who, false
		}
		made, ok := v.caller(&parent.Token, now, from)
		if !ok {
			return who, false
		}
		maker = &made
	default:
		switch u := v.user(t.Tenant, t.Actor); {
		case u == nil && t.Role == "":
			return who, false
		case u == nil: // a token in the name of somebody who cannot log in
		case !u.HasAccess():
			return who, false
		default:
			made := callerOf(&u.User)
			maker = &made
		}
	}
	if maker != nil {
		who = bounded(t.Role, maker)
	}
	who.Token, who.Session, who.Expires, who.Child = t.ID, t.Session, t.Expires, t.Parent != ""
	who.Sources, who.Used = t.Sources, t.Used
	return who, true
}

// bounded returns a caller with a role who may do no more than its maker. Without a role it is the maker itself.
func bounded(role model.Role, maker *model.Caller) model.Caller {
	who := *maker
	if role == "" {
		return who
	}
	who.Groups, who.Maker = nil, maker
	if maker.Role.AtLeast(role) {
		who.Role = role
	}
	return who
}

// callerOf returns a user as a caller, who has no rights if the user has no access.
func callerOf(u *model.User) model.Caller {
	who := model.Caller{Tenant: u.Tenant, Actor: u.Name, Account: u.Method == model.MethodAccount}
	if !u.HasAccess() {
		return who
	}
	who.Role = u.Role
	for _, g := range u.Groups {
		who.Groups = append(who.Groups, access.GroupID(u.Tenant, g))
	}
	slices.Sort(who.Groups)
	return who
}
