package logins

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
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
// let the person in, other codes if they are for the person, and none if the directory could not be asked.
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
	Ring        *keyring.Ring // encrypts pending logins
	Box         *sealed.Box   // encrypts what is kept of logins on pages
	Directories map[Source]Directory
	Logger      *slog.Logger
	// Every is the time between two sweeps over all users; default 15 minutes.
	Every time.Duration
}

// Controller keeps the rows of users as their directories have them.
type Controller struct {
	cfg  Config
	turn *semaphore.Weighted // of a change of a user
	asks singleflight.Group  // of directories with pages, by user
	mu   sync.Mutex
	last map[Source]string // the user about whom a sweep has asked last
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	cfg.Every = cmp.Or(cfg.Every, 15*time.Minute)
	return &Controller{cfg: cfg, turn: semaphore.NewWeighted(1), last: map[Source]string{}}
}

// Name returns the name of the duty in logs.
func (c *Controller) Name() string { return "logins" }

// Restore does nothing: the users are part of the state.
func (c *Controller) Restore(context.Context) error { return nil }

// Run asks the directories again and again until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	return loop.Repeat(ctx, c.cfg.Every, func(ctx context.Context, _ time.Time) { c.Sweep(ctx) })
}

// silence is the number of questions in a row without an answer after which a sweep asks a directory no more.
const silence = 3

// Sweep asks about all users of the directories that are configured and have no pages. Those without tokens have rights, too: by
// schedules, queued operations and grants. A directory that answers slowly delays no other. What is kept of logins on pages, and not
// needed any more, is removed.
func (c *Controller) Sweep(ctx context.Context) {
	users := map[Source][]string{}
	for _, u := range c.cfg.Machine.View().Users("") {
		at := Source{u.Tenant, u.Method}
		if _, ok := c.cfg.Directories[at].(Passwords); ok && u.FromDirectory() {
			users[at] = append(users[at], u.Name)
		}
	}
	var all sync.WaitGroup
	for at, names := range users {
		all.Go(func() { c.sweep(ctx, at, names) })
	}
	all.Wait()
	if err := c.forget(ctx); err != nil {
		c.cfg.Logger.Warn("what was kept of logins is not removed", "error", err)
	}
}

// sweep asks a directory about users, beginning after the last one about whom it was asked before: some of them may be the reason
// why it was given up.
func (c *Controller) sweep(ctx context.Context, at Source, names []string) {
	slices.Sort(names)
	c.mu.Lock()
	first, _ := slices.BinarySearch(names, c.last[at]+"\x00")
	c.mu.Unlock()
	for i, failed := 0, 0; i < len(names) && failed < silence && ctx.Err() == nil; i++ {
		name := names[(first+i)%len(names)]
		failed++
		if err := c.Refresh(ctx, at.Tenant, name); err == nil || problem.CodeOf(err) == problem.Unauthorized {
			failed = 0
		}
		c.mu.Lock()
		c.last[at] = name
		c.mu.Unlock()
	}
}

// refused is the answer to everybody who is not let in. It does not say why.
func refused() error {
	return problem.New(problem.Unauthorized, "you are not let in: a name or the password is wrong, or an operator can say why")
}

// Login returns the user of a directory who has a name and a password. It creates the user at the first login. It fails with
// problem.Unauthorized, without a reason, if the directory or an administrator does not let the person in.
func (c *Controller) Login(ctx context.Context, at Source, name, password string) (model.User, error) {
	d, ok := c.cfg.Directories[at].(Passwords)
	if !ok {
		return model.User{}, refused()
	}
	for try := 1; ; try++ {
		before := c.cfg.Machine.View()
		p, err := d.Login(ctx, name, password)
		if err != nil {
			return model.User{}, c.explain(at, err)
		}
		if u, err := c.admit(ctx, at, p, before); !errors.Is(err, problem.Stale) || try == tries {
			return u, err
		}
	}
}

// tries is how often a directory is asked if the user is changed while it answers.
const tries = 3

// explain returns the error of a login for the person, and logs what only operators may know.
func (c *Controller) explain(at Source, err error) error {
	switch problem.CodeOf(err) {
	case problem.Unauthorized:
		c.cfg.Logger.Info("a directory does not let somebody in", "directory", at.Method, "tenant", at.Tenant, "error", err)
		return refused()
	case problem.Internal:
		c.cfg.Logger.Warn("a directory cannot be asked", "directory", at.Method, "tenant", at.Tenant, "error", err)
		return problem.New(problem.Busy, "%s does not answer: try again later, or ask an operator of the mesh", at.Method)
	}
	return err
}

// Refresh asks the directory of a user and writes what has changed. It fails with problem.Unauthorized if the directory does
// not let the user in, and for a user whose directory is not configured.
func (c *Controller) Refresh(ctx context.Context, tenant, name string) error {
	for try := 1; ; try++ {
		u, ok := c.cfg.Machine.View().User(tenant, name)
		if !ok || !u.FromDirectory() {
			return nil
		}
		if err := c.refresh(ctx, u); !errors.Is(err, problem.Stale) || try == tries {
			return err
		}
	}
}

func (c *Controller) refresh(ctx context.Context, u model.User) error {
	at, next := Source{u.Tenant, u.Method}, u
	if pages, ok := c.cfg.Directories[at].(Pages); ok {
		return c.renew(ctx, pages, u)
	}
	d, ok := c.cfg.Directories[at].(Passwords)
	if !ok {
		return refused()
	}
	p, err := d.Find(ctx, u.Subject)
	switch {
	case err == nil:
		next.Role, next.Groups, next.Left = p.Role, p.Groups, 0
	case problem.CodeOf(err) != problem.Unauthorized:
		return c.explain(at, err)
	case u.Left == 0:
		next.Left = time.Now().UnixMilli()
	}
	if werr := c.update(ctx, u, next); werr != nil {
		return werr
	}
	if err != nil || u.Disabled {
		return refused()
	}
	return nil
}

// admit returns the user that a person is, whom it creates if there is none. before is the state when the directory was asked.
func (c *Controller) admit(ctx context.Context, at Source, p Person, before *state.View) (model.User, error) {
	if p.Subject == "" || len(p.Subject) > maxSubject {
		return model.User{}, c.explain(at, fmt.Errorf("the id of %q has %d bytes, and not 1 to %d", p.Name, len(p.Subject), maxSubject))
	}
	for {
		v := c.cfg.Machine.View()
		u, ok := v.UserOf(at.Tenant, at.Method, p.Subject)
		if !ok {
			var err error
			u = model.User{Tenant: at.Tenant, Method: at.Method, Subject: p.Subject, Role: p.Role, Groups: p.Groups}
			if u.Name, err = free(v, at, p); err == nil {
				err = c.put(ctx, u, &pb.PutUser{CreateOnly: true})
			}
			if problem.CodeOf(err) == problem.Conflict && ctx.Err() == nil {
				continue // somebody else has taken the name meanwhile, or the same person logs in twice
			}
			return u, err
		}
		next := u
		next.Role, next.Groups, next.Left = p.Role, p.Groups, 0
		if u.Deleted == 0 {
			if asked, ok := before.UserOf(at.Tenant, at.Method, p.Subject); ok {
				u = asked
			}
			if err := c.update(ctx, u, next); err != nil {
				return u, err
			}
		}
		if next.Disabled || next.Deleted != 0 {
			return u, refused()
		}
		return next, nil
	}
}

// maxSubject bounds the id of a person in a directory, in bytes.
const maxSubject = 512

// update writes a user as the directory has it. It fails with problem.Stale if the user was changed after the directory was asked:
// what the answer says may be older than what is on record.
func (c *Controller) update(ctx context.Context, asked, next model.User) error {
	same := func(a, b model.User) bool {
		return a.Role == b.Role && a.Left == b.Left && slices.Equal(a.Groups, b.Groups)
	}
	if err := c.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.turn.Release(1)
	now, ok := c.cfg.Machine.View().User(asked.Tenant, asked.Name)
	switch {
	case !ok || same(now, next):
		return nil
	case !same(now, asked):
		return problem.New(problem.Stale, "user %s was changed meanwhile: try again", next.Name)
	case next.Left != 0:
		c.cfg.Logger.Info("a directory does not let a user in any more", "directory", next.Method, "tenant", next.Tenant, "user", next.Name)
	}
	return c.put(ctx, next, &pb.PutUser{Change: []string{"role", "groups", "left"}})
}

// free returns the name of a new user: the directory's name and the person's, in small letters and with a dot for what names
// cannot have. Names of a directory never meet those of others, in records, owners or policies, even if these are gone by now.
// For a second person it ends with a part of the hash of the subject.
func free(v *state.View, at Source, p Person) (string, error) {
	clean := strings.Map(func(r rune) rune {
		if model.CheckName("a"+string(r)) != "" {
			return '.' // as for the @ of a mail address
		}
		return r
	}, strings.ToLower(p.Name))
	name := at.Method + "." + clean
	sum := sha256.Sum256([]byte(p.Subject))
	for _, name := range []string{name, name + "-" + hex.EncodeToString(sum[:4])} {
		taken := slices.ContainsFunc(v.AllUsers(), func(u model.User) bool {
			return strings.EqualFold(u.Name, name) && (u.Tenant == at.Tenant || u.Role == model.RoleSuperadmin)
		}) || slices.ContainsFunc(v.Tokens(""), func(t model.Token) bool {
			return strings.EqualFold(t.Actor, name) && (t.Tenant == at.Tenant || t.Role == model.RoleSuperadmin)
		})
		if model.CheckName(name) == "" && !taken {
			return name, nil
		}
	}
	return "", problem.New(problem.Invalid, "%q cannot be the name of a user here", name)
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
