package logins

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Person is somebody whom a directory lets in.
type Person struct {
	// Subject never changes and never becomes another person's. Name is what the person types.
	Subject, Name string
	Role          model.Role
	Groups        []string // in order, each once
}

// Directory knows people: it is Passwords or Pages. The errors of its methods have the code problem.Unauthorized if it does not
// let the person in, and another code if it could not be asked.
type Directory any

// Passwords is a directory that compares passwords, and can be asked about people who are not there.
type Passwords interface {
	// Login returns the person who has a name and a password.
	Login(ctx context.Context, name, password string) (Person, error)
	// Find returns the person who is a subject.
	Find(ctx context.Context, subject string) (Person, error)
}

// Source names a directory by the tenant whose users it knows and by their method.
type Source struct{ Tenant, Method string }

// Config configures a Controller.
type Config struct {
	Machine     *state.Machine
	Propose     func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Directories map[Source]Directory
	Logger      *slog.Logger
	// Every is the time between two sweeps over all users with tokens; default 15 minutes.
	Every time.Duration
}

// Controller keeps the rows of users as their directories have them.
type Controller struct {
	cfg    Config
	sealer sealer
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	cfg.Every = cmp.Or(cfg.Every, 15*time.Minute)
	return &Controller{cfg, newSealer()}
}

// Name returns the name of the duty in logs.
func (c *Controller) Name() string { return "logins" }

// Restore does nothing: the users are part of the state.
func (c *Controller) Restore(context.Context) error { return nil }

// Run asks the directories again and again until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	if len(c.cfg.Directories) == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	return loop.Repeat(ctx, c.cfg.Every, func(ctx context.Context, now time.Time) { c.Sweep(ctx, now) })
}

// Sweep asks about all users of directories who have tokens. A directory that does not answer is not asked again in this
// sweep.
func (c *Controller) Sweep(ctx context.Context, now time.Time) {
	v := c.cfg.Machine.View()
	holds := map[[2]string]bool{} // the tenants and names of those who have tokens
	for _, t := range v.Tokens("") {
		if t.Expires == 0 || t.Expires > now.UnixMilli() {
			holds[[2]string{t.Tenant, t.Actor}] = true
		}
	}
	silent := map[Source]bool{}
	for _, u := range v.Users("") {
		at := Source{u.Tenant, u.Method}
		if _, ok := c.cfg.Directories[at].(Pages); ok || !u.FromDirectory() || !holds[[2]string{u.Tenant, u.Name}] || silent[at] {
			continue
		}
		if err := c.Refresh(ctx, u.Tenant, u.Name); err != nil && problem.CodeOf(err) != problem.Unauthorized {
			silent[at] = true
			c.cfg.Logger.Warn("a directory does not answer; its users stay as they are", "directory", u.Method, "tenant", u.Tenant, "error", err)
		}
	}
}

// refused is the answer to everybody who is not let in. It does not say why.
func refused() error {
	return problem.New(problem.Unauthorized, "the tenant, the user's name or the password is wrong, or the user is disabled")
}

// Login returns the user of a directory who has a name and a password. It creates the user at the first login. It fails with
// problem.Unauthorized, without a reason, if the directory or an administrator does not let the person in.
func (c *Controller) Login(ctx context.Context, at Source, name, password string) (model.User, error) {
	d, ok := c.cfg.Directories[at].(Passwords)
	if !ok {
		return model.User{}, refused()
	}
	p, err := d.Login(ctx, name, password)
	if err != nil {
		return model.User{}, c.explain(at, err)
	}
	return c.admit(ctx, at, p)
}

// explain returns the error of a login for the person, and logs what only operators may know.
func (c *Controller) explain(at Source, err error) error {
	if problem.CodeOf(err) != problem.Unauthorized {
		return err
	}
	c.cfg.Logger.Info("a directory does not let somebody in", "directory", at.Method, "tenant", at.Tenant, "error", err)
	return refused()
}

// Renews reports whether sessions of a method can be renewed: those of Pages end, as such a directory answers only people.
func (c *Controller) Renews(at Source) bool {
	_, ok := c.cfg.Directories[at].(Pages)
	return !ok
}

// Refresh asks the directory of a user and writes what has changed. It fails with problem.Unauthorized if the directory does
// not let the user in, and for a user whose directory is not configured any more.
func (c *Controller) Refresh(ctx context.Context, tenant, name string) error {
	u, ok := c.cfg.Machine.View().User(tenant, name)
	if !ok || !u.FromDirectory() {
		return nil
	}
	var p Person
	err := error(problem.New(problem.Unauthorized, "the directory %s of tenant %s is not configured", u.Method, tenant))
	switch d := c.cfg.Directories[Source{tenant, u.Method}].(type) {
	case Pages:
		return problem.New(problem.Forbidden, "sessions of the method %s are not renewed: log in again", u.Method)
	case Passwords:
		if p, err = d.Find(ctx, u.Subject); err == nil {
			_, err = c.update(ctx, u, p)
			return err
		}
	}
	if problem.CodeOf(err) != problem.Unauthorized || u.Left != 0 {
		return err
	}
	c.cfg.Logger.Info("a directory does not let a user in any more", "directory", u.Method, "tenant", tenant, "user", name, "error", err)
	u.Left = time.Now().UnixMilli()
	if werr := c.put(ctx, u, &pb.PutUser{Change: []string{"left"}}); werr != nil {
		return werr
	}
	return err
}

// admit returns the user that a person is, whom it creates if there is none.
func (c *Controller) admit(ctx context.Context, at Source, p Person) (model.User, error) {
	for {
		v := c.cfg.Machine.View()
		u, ok := v.UserOf(at.Tenant, at.Method, p.Subject)
		if ok {
			return c.update(ctx, u, p)
		}
		name, err := c.free(v, at, p.Name)
		if err != nil {
			return u, err
		}
		u = model.User{Name: name, Tenant: at.Tenant, Method: at.Method, Subject: p.Subject, Role: p.Role, Groups: p.Groups}
		err = c.put(ctx, u, &pb.PutUser{CreateOnly: true})
		if problem.CodeOf(err) == problem.Conflict && ctx.Err() == nil {
			continue // somebody else has taken the name meanwhile, or the same person logs in twice
		}
		return u, err
	}
}

// update returns a user with the role and the groups of a person, and writes them if they have changed.
func (c *Controller) update(ctx context.Context, u model.User, p Person) (model.User, error) {
	if u.Disabled || u.Deleted != 0 {
		return u, refused()
	}
	if u.Role == p.Role && slices.Equal(u.Groups, p.Groups) && u.Left == 0 {
		return u, nil
	}
	u.Role, u.Groups, u.Left = p.Role, p.Groups, 0
	return u, c.put(ctx, u, &pb.PutUser{Change: []string{"role", "groups", "left"}})
}

// free returns the name of a new user: the person's, in small letters and with a dot for what names cannot have, or with the
// directory's before it if somebody in the tenant or a superadmin has that name. Records must not show two people as one, so a
// name in another case is taken, too.
func (c *Controller) free(v *state.View, at Source, name string) (string, error) {
	taken := map[string]bool{}
	for _, u := range v.AllUsers() {
		taken[strings.ToLower(u.Name)] = taken[strings.ToLower(u.Name)] || u.Tenant == at.Tenant || u.Role == model.RoleSuperadmin
	}
	for _, t := range v.Tokens("") {
		taken[strings.ToLower(t.Actor)] = taken[strings.ToLower(t.Actor)] || t.Tenant == at.Tenant || t.Role == model.RoleSuperadmin
	}
	name = strings.Map(func(r rune) rune {
		if model.CheckName("a"+string(r)) != "" {
			return '.' // as for the @ of a mail address
		}
		return r
	}, strings.ToLower(name))
	for _, name := range []string{name, at.Method + "." + name} {
		if model.CheckName(name) == "" && !model.Reserved(name) && !taken[strings.ToLower(name)] {
			return name, nil
		}
	}
	return "", problem.New(problem.Conflict, "%q of directory %s cannot be a user here: this name and %[2]s.%[1]s belong to others", name,
		at.Method)
}

// put writes a user in the name of the mesh.
func (c *Controller) put(ctx context.Context, u model.User, put *pb.PutUser) (err error) {
	if put.User, err = logformat.EncodeUser(&u); err != nil {
		return err
	}
	answers, err := c.cfg.Propose(ctx, &pb.Command{Tenant: u.Tenant, Actor: model.Self, Change: &pb.Command_PutUser{PutUser: put}})
	if err != nil {
		return err
	}
	return answers[0].Err
}
