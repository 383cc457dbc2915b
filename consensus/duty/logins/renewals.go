package logins

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

const (
	// maxSecret bounds such a secret, in bytes.
	maxSecret = 16 << 10
	// renewTime bounds a renewal, which goes on if the caller gives up: the directory may have replaced the secret already.
	renewTime = 30 * time.Second
	// forgetAge is the age at which a secret of a user without a session is removed. A younger one may be of a session about to open.
	forgetAge = time.Hour
	// forgetMost is how many secrets one entry removes.
	forgetMost = 1000
)

// loginID returns the id of the encrypted value that has the secret of a user for Pages.Renew.
func loginID(u model.User) string { return table.LoginID(u.Tenant, u.Name) }

// Renews reports whether sessions of a user can be renewed. Those of Pages need a secret.
func (c *Controller) Renews(u model.User) bool {
	if _, ok := c.cfg.Directories[Source{u.Tenant, u.Method}].(Pages); !ok {
		return true
	}
	secret, _, err := c.kept(u)
	return err == nil && secret != ""
}

// kept returns the secret of a user and the version of its encrypted value, which is 0 if there is none.
func (c *Controller) kept(u model.User) (secret string, version uint32, err error) {
	v := c.cfg.Machine.View()
	row, ok := v.LatestSealed("", loginID(u))
	if !ok {
		return "", 0, nil
	}
	text, err := c.cfg.Box.Open(v.SealedView, row)
	return string(text), row.Version, err
}

// keep writes the secret of a user, or "" to end it, after a version. It fails with problem.Stale if there is a newer one.
func (c *Controller) keep(ctx context.Context, u model.User, secret string, after uint32) error {
	value, err := c.cfg.Box.Seal(ctx, "", loginID(u), after+1, []byte(secret))
	if err != nil {
		return err
	}
	answers, err := c.cfg.Propose(ctx, &pb.Command{Actor: model.Self, Change: &pb.Command_PutSealed{
		PutSealed: &pb.PutSealed{Values: []*pb.SealedValue{value}},
	}})
	if err == nil {
		err = answers[0].Err
	}
	if err == nil && after > 0 {
		_ = c.drop(ctx, &pb.SealedName{Id: loginID(u), Version: after}) // or the next sweep does
	}
	return err
}

// drop removes encrypted values of the mesh.
func (c *Controller) drop(ctx context.Context, values ...*pb.SealedName) error {
	answers, err := c.cfg.Propose(ctx, &pb.Command{Actor: model.Self, Change: &pb.Command_DropSealed{
		DropSealed: &pb.DropSealed{Values: values},
	}})
	if err == nil {
		err = answers[0].Err
	}
	return err
}

// begin keeps the secret of a login that has just been finished, in the place of any older one.
func (c *Controller) begin(ctx context.Context, u model.User, secret string) error {
	if _, ready := c.cfg.Machine.View().DataKey(""); !ready {
		return nil // the mesh encrypts no values yet
	}
	if n := len(secret); n > maxSecret {
		c.cfg.Logger.Warn("a refresh token is too large to be kept", "directory", u.Method, "tenant", u.Tenant, "bytes", n, "most", maxSecret)
		secret = ""
	}
	for try := 1; ; try++ {
		_, version, _ := c.kept(u) // one that cannot be decrypted is replaced, too
		if secret == "" && version == 0 {
			return nil
		}
		if err := c.keep(ctx, u, secret, version); !errors.Is(err, problem.Stale) || try == tries {
			return err
		}
	}
}

// renew asks a directory with pages about a user, and writes what has changed. Requests at the same time share a question, as a secret
// may count once.
func (c *Controller) renew(ctx context.Context, d Pages, u model.User) error {
	answer := c.asks.DoChan(loginID(u), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
		defer cancel()
		return nil, c.ask(ctx, d, u)
	})
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Controller) ask(ctx context.Context, d Pages, u model.User) error {
	before := c.cfg.Machine.View()
	secret, version, err := c.kept(u)
	if err != nil {
		return err
	}
	if secret == "" {
		return problem.New(problem.Forbidden, "sessions of the method %s are not renewed: log in again", u.Method)
	}
	p, replaced, err := d.Renew(ctx, u.Subject, secret)
	out := errors.Is(err, ErrEnded) || problem.CodeOf(err) == problem.Unauthorized
	if out {
		replaced = ""
	}
	if out || replaced != "" && replaced != secret {
		if werr := c.keep(ctx, u, replaced, version); werr != nil {
			return werr // a login in the meantime has a newer secret
		}
	}
	next := u
	switch {
	case err == nil:
		next.Role, next.Groups, next.Left = p.Role, p.Groups, 0
	case !out:
		return c.explain(Source{u.Tenant, u.Method}, err)
	case !errors.Is(err, ErrEnded) && u.Left == 0:
		next.Left = time.Now().UnixMilli()
	}
	if werr := c.update(ctx, u, next); werr != nil {
		return werr
	}
	switch {
	case out:
		c.cfg.Logger.Info("a directory ends the sessions of a user", "directory", u.Method, "tenant", u.Tenant, "user", u.Name, "error", err)
		if err := c.endSessions(ctx, before, u); err != nil {
			return err
		}
		return problem.New(problem.Unauthorized, "%s does not let you go on: log in again", u.Method)
	case u.Disabled:
		return refused()
	}
	return nil
}

// endSessions ends the sessions that a user has in a view.
func (c *Controller) endSessions(ctx context.Context, v *state.View, u model.User) error {
	var ends []*pb.Command
	for _, t := range v.Tokens(u.Tenant) {
		if t.Session && t.Actor == u.Name {
			ends = append(ends, &pb.Command{Tenant: u.Tenant, Actor: model.Self, Change: &pb.Command_DeleteToken{
				DeleteToken: &pb.DeleteToken{Id: t.ID},
			}})
		}
	}
	if len(ends) == 0 {
		return nil
	}
	_, err := c.cfg.Propose(ctx, ends...) // one that has ended meanwhile is not found
	return err
}

// forget removes secrets that newer ones have replaced, and those of users without a session.
func (c *Controller) forget(ctx context.Context) error {
	v := c.cfg.Machine.View()
	needed := map[string]bool{}
	for _, t := range v.Tokens("") {
		if t.Session {
			needed[loginID(model.User{Tenant: t.Tenant, Name: t.Actor})] = true
		}
	}
	old, unneeded := time.Now().Add(-forgetAge).UnixMilli(), []*pb.SealedName(nil)
	v.EachSealed(func(r table.SealedRow) bool {
		if r.Tenant != "" || !strings.HasPrefix(r.ID, table.LoginPrefix) {
			return true
		}
		latest, _ := v.LatestSealed("", r.ID)
		if r.Version != latest.Version || !needed[r.ID] && r.Created < old {
			unneeded = append(unneeded, &pb.SealedName{Id: r.ID, Version: r.Version})
		}
		return len(unneeded) < forgetMost
	})
	if len(unneeded) == 0 {
		return nil
	}
	return c.drop(ctx, unneeded...)
}
