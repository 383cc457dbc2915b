package service

import (
	"context"
	"errors"
	"time"

	"github.com/coopr/coopr/agent/password"
	"github.com/coopr/coopr/consensus/duty/logins"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// A session lasts sessionTime from its beginning and from each renewal, and renewals do not go beyond loginTime.
const (
	sessionTime = 8 * time.Hour
	loginTime   = 7 * 24 * time.Hour
)

// clock returns the time of a clock, or of the host's without one.
func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// Users writes users and grants, and opens sessions.
type Users struct {
	Supervisor Supervisor
	// Passwords hashes and checks passwords.
	Passwords password.Checker
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Create creates a user.
func (u *Users) Create(ctx context.Context, who model.Caller, user model.User, secret string) (api.Written, error) {
	return u.put(ctx, who, user, secret, &pb.PutUser{CreateOnly: true})
}

// Change changes the named fields of a user, and the password unless that is "".
func (u *Users) Change(ctx context.Context, who model.Caller, user model.User, fields []string, secret, keep string) (api.Written, error) {
	return u.put(ctx, who, user, secret, &pb.PutUser{Change: fields, Keep: keep})
}

func (u *Users) put(ctx context.Context, who model.Caller, user model.User, secret string, put *pb.PutUser) (api.Written, error) {
	var err error
	if put.User, err = logformat.EncodeUser(&user); err != nil {
		return api.Written{}, err
	}
	if secret != "" {
		if put.Password, err = u.Passwords.Hash(ctx, secret); err != nil {
			return api.Written{}, err
		}
	}
	return write(ctx, u.Supervisor, who, &pb.Command{Change: &pb.Command_PutUser{PutUser: put}})
}

// Delete deletes a user and ends its tokens.
func (u *Users) Delete(ctx context.Context, who model.Caller, name string) (api.Written, error) {
	return write(ctx, u.Supervisor, who, &pb.Command{Change: &pb.Command_DeleteUser{DeleteUser: &pb.DeleteUser{Name: name}}})
}

// Verify checks a user's password.
func (u *Users) Verify(ctx context.Context, tenant, name, secret string) error {
	_, err := u.verify(ctx, tenant, name, secret)
	return err
}

// verify returns the user whose password is right. Whatever is wrong has the same error, after the same time.
func (u *Users) verify(ctx context.Context, tenant, name, secret string) (model.User, error) {
	m, _, err := leader(u.Supervisor)
	if err != nil {
		return model.User{}, err
	}
	v := m.Machine.View()
	user, ok := v.User(tenant, name)
	right, err := u.Passwords.Check(ctx, v.Password(tenant, name), secret)
	if err != nil {
		return model.User{}, err
	}
	if !ok || !right || !user.HasAccess() {
		return model.User{}, problem.New(problem.Unauthorized, "the tenant, the user's name or the password is wrong, or the user is disabled")
	}
	return user, nil
}

// Login opens a session. The password is checked by the mesh, or by the directory that a method names.
func (u *Users) Login(ctx context.Context, tenant, method, name, secret string) (string, api.Written, error) {
	user, err := u.identify(ctx, logins.Source{Tenant: tenant, Method: method}, name, secret)
	if err != nil {
		return "", api.Written{}, err
	}
	return u.open(ctx, user)
}

// BeginLogin starts a login on the pages of the provider that a method names.
func (u *Users) BeginLogin(ctx context.Context, tenant, method, redirect string) (api.LoginPrompt, error) {
	_, l, err := leader(u.Supervisor)
	if err != nil {
		return api.LoginPrompt{}, err
	}
	p, id, err := l.Logins.Begin(ctx, logins.Source{Tenant: tenant, Method: method}, redirect)
	out := api.LoginPrompt{Login: id, URL: p.URL, Code: p.Code, Interval: p.Interval.Milliseconds()}
	if id != "" {
		out.Lasts = max(time.Until(p.Ends).Milliseconds(), 1)
	}
	return out, err
}

// FinishLogin opens the session of a login that BeginLogin has started. Its token is "" as long as nobody has logged in; slower
// is set if the caller asks too often.
func (u *Users) FinishLogin(ctx context.Context, login, state, code string) (token string, slower bool, w api.Written, err error) {
	_, l, err := leader(u.Supervisor)
	if err != nil {
		return "", false, w, err
	}
	user, err := l.Logins.Finish(ctx, login, state, code)
	switch {
	case errors.Is(err, logins.ErrPending):
		return "", errors.Is(err, logins.ErrSlowDown), w, nil
	case err != nil:
		return "", false, w, err
	}
	token, w, err = u.open(ctx, user)
	return token, false, w, err
}

// open opens a session of a user.
func (u *Users) open(ctx context.Context, user model.User) (string, api.Written, error) {
	_, l, err := leader(u.Supervisor)
	if err != nil {
		return "", api.Written{}, err
	}
	now := clock(u.Now)
	t := model.Token{Actor: user.Name, Tenant: user.Tenant, Session: true, Expires: now.Add(sessionTime).UnixMilli()}
	t.Renewable = now.Add(loginTime).UnixMilli()
	if !l.Logins.Renews(user) {
		t.Renewable = t.Expires
	}
	token, put := newToken(t)
	put.PasswordSetMs = user.PasswordSet
	who := model.Caller{Tenant: user.Tenant, Actor: user.Name}
	w, err := write(ctx, u.Supervisor, who, &pb.Command{Change: &pb.Command_PutToken{PutToken: put}})
	return token, w, err
}

// identify returns the user who has a name and a password.
func (u *Users) identify(ctx context.Context, at logins.Source, name, secret string) (model.User, error) {
	if at.Method == "" || at.Method == model.MethodLocal {
		return u.verify(ctx, at.Tenant, name, secret)
	}
	_, l, err := leader(u.Supervisor)
	if err != nil {
		return model.User{}, err
	}
	return l.Logins.Login(ctx, at, name, secret)
}

// PutGrant shares a resource.
func (u *Users) PutGrant(ctx context.Context, who model.Caller, g model.Grant) (api.Written, error) {
	m, err := logformat.EncodeGrant(&g)
	if err != nil {
		return api.Written{}, err
	}
	return write(ctx, u.Supervisor, who, &pb.Command{Change: &pb.Command_PutGrant{PutGrant: &pb.PutGrant{Grant: m}}})
}

// DeleteGrant removes a grant of the caller's tenant.
func (u *Users) DeleteGrant(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	return write(ctx, u.Supervisor, who, &pb.Command{Change: &pb.Command_DeleteGrant{DeleteGrant: &pb.DeleteGrant{Id: id}}})
}
