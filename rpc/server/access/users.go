package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func userRoutes(s *rest.Server) {
	const tag, path, one = "users", "/v1/users", "/v1/users/{name}"

	rest.List(s, rest.Route{ID: "listUsers", Order: "name", Path: path, Tag: tag, Summary: "List the tenant's users"},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]model.User, error) {
			return rest.Listed(c, access.TypeUser, v.Users(c.Who.Tenant), func(u model.User) string { return u.Name })
		})
	rest.Read(s, rest.Route{ID: "getUser", Path: one, Tag: tag, Summary: "Get a user"},
		func(_ context.Context, c *rest.Call, v rest.View, in *rest.ByName) (model.User, error) {
			u, ok := v.User(c.Who.Tenant, in.Name)
			if !ok {
				return u, noUser(c, in.Name)
			}
			return u, nil
		})
	rest.Write(
		s,
		rest.Route{
			ID: "createUser", Method: http.MethodPost, Path: path, Status: http.StatusCreated, Tag: tag,
			Summary:     "Create a user",
			Description: "A name is given once: that of a deleted user is not given again, because records still name that user.",
			Rule:        rest.Rule{Private: true},
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			Body rest.Raw[api.NewUser]
		}) (model.User, api.Written, error) {
			return createUser(ctx, s, c, in.Body)
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID: "putUser", Method: http.MethodPut, Path: one, Tag: tag, Summary: "Change a user", Rule: rest.Rule{Private: true},
			Description: "Absent fields stay as they are. Another role, other groups and disabling count at once, also for requests that wait.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByName
			Body rest.Raw[api.UserChange]
		}) (model.User, api.Written, error) {
			return changeUser(ctx, s, c, in.Name, in.Body)
		},
	)
	rest.Write(s, rest.Route{ID: "deleteUser", Method: http.MethodDelete, Path: one, Tag: tag, Summary: "Delete a user and end its tokens"},
		func(ctx context.Context, c *rest.Call, in *rest.ByName) (api.Deleted, api.Written, error) {
			v, done, err := s.Before(ctx, c)
			if err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			if done != nil {
				return api.Deleted{Name: in.Name}, *done, nil
			}
			if _, err := manageable(c, v, in.Name); err != nil {
				return api.Deleted{}, api.Written{}, err
			}
			w, err := s.Users.Delete(ctx, c.Who, in.Name)
			return api.Deleted{Name: in.Name}, w, err
		})
}

func noUser(c *rest.Call, name string) error {
	return rest.NotFound("there is no user %q in tenant %s", name, c.Who.Tenant)
}

func createUser(ctx context.Context, s *rest.Server, c *rest.Call, body rest.Raw[api.NewUser]) (u model.User, w api.Written, err error) {
	req, err := body.Value()
	if err != nil {
		return u, w, err
	}
	u = model.User{Name: req.Name, Tenant: c.Who.Tenant, Method: req.Method, Role: req.Role, Groups: req.Groups, Description: req.Description}
	if u.Method == "" {
		u.Method = model.MethodLocal
	}
	if u.Role == "" {
		u.Role = model.RoleUser
	}
	faults := faultsOf(c, &u)
	if why := model.CheckName(u.Name); why != "" {
		faults.Add("name", why)
	} else if model.Reserved(u.Name) {
		faults.Add("name", fmt.Sprintf("%q means the mesh itself in records: choose another name", u.Name))
	}
	if u.Method != model.MethodLocal && u.Method != model.MethodAccount {
		faults.Add("method", fmt.Sprintf("must be local or account, but is %q", u.Method))
	}
	if req.Password != "" {
		checkUsersPassword(&faults, &u, req.Password)
	}
	if len(faults) > 0 {
		return u, w, rest.Invalid(faults)
	}
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return u, w, err
	}
	if done != nil {
		u, err = rest.Wrote(*done, done.Effect.User)
		return u, *done, err
	}
	if err := mayGive(c, &u); err != nil {
		return u, w, err
	}
	if err := maySetPassword(c, req.Password); err != nil {
		return u, w, err
	}
	if err := mayName(v, c.Who, u.Name, u.Role); err != nil {
		return u, w, err
	}
	if w, err = s.Users.Create(ctx, c.Who, u, req.Password); err != nil {
		return u, w, err
	}
	u, err = rest.Wrote(w, w.Effect.User)
	return u, w, err
}

func changeUser(ctx context.Context, s *rest.Server, c *rest.Call, name string, body rest.Raw[api.UserChange]) (u model.User, w api.Written,
	err error) {
	req, err := body.Value()
	if err != nil {
		return u, w, err
	}
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return u, w, err
	}
	if done != nil {
		u, err = rest.Wrote(*done, done.Effect.User)
		return u, *done, err
	}
	if u, err = manageable(c, v, name); err != nil {
		return u, w, err
	}
	if u.FromDirectory() && (req.Role != nil || req.Groups != nil) {
		return u, w, rest.Forbidden("the directory %s decides on the role and the groups of %s: change them there", u.Method, name)
	}
	before := u.Role
	var fields []string
	set(&fields, "role", &u.Role, req.Role)
	set(&fields, "groups", &u.Groups, req.Groups)
	set(&fields, "description", &u.Description, req.Description)
	set(&fields, "disabled", &u.Disabled, req.Disabled)
	var faults model.Faults
	switch {
	case !u.FromDirectory():
		faults = faultsOf(c, &u)
	case len(u.Description) > 1000:
		faults.Add("description", "is longer than 1000 bytes")
	}
	secret := ""
	if req.Password != nil {
		secret = *req.Password
		checkUsersPassword(&faults, &u, secret)
		if name == c.Who.Actor {
			faults.Add("password", "is your own: change it with the old one (coopr password, PUT /v1/self/password)")
		}
	}
	if len(faults) > 0 {
		return u, w, rest.Invalid(faults)
	}
	if req.Role != nil || req.Groups != nil {
		if err := mayGive(c, &u); err != nil {
			return u, w, err
		}
	}
	if err := maySetPassword(c, secret); err != nil {
		return u, w, err
	}
	// A caller who sets the password of an equal, or takes the role of one, could act in that name.
	equal := before.AtLeast(c.Who.Role) && name != c.Who.Actor && c.Who.Role != model.RoleSuperadmin
	if equal && (secret != "" || u.Role != before) {
		return u, w, rest.Forbidden("%s and %s have the same role: only a superadmin changes the role or the password", c.Who.Actor, name)
	}
	if u.Role == model.RoleSuperadmin && before != u.Role {
		if err := mayName(v, c.Who, name, u.Role); err != nil {
			return u, w, err
		}
	}
	if w, err = s.Users.Change(ctx, c.Who, u, fields, secret, ""); err != nil {
		return u, w, err
	}
	u, err = rest.Wrote(w, w.Effect.User)
	return u, w, err
}

// set takes a value of a change, and notes the name of its field.
func set[T any](fields *[]string, name string, at *T, value *T) {
	if value != nil {
		*at = *value
		*fields = append(*fields, name)
	}
}

// manageable returns a user whom the caller may change: one whose role the caller's includes.
func manageable(c *rest.Call, v rest.View, name string) (model.User, error) {
	u, ok := v.User(c.Who.Tenant, name)
	switch {
	case !ok:
		return u, noUser(c, name)
	case !c.Who.Role.AtLeast(u.Role):
		return u, rest.Forbidden("%s has the role %s and cannot change %s, who has the role %s", c.Who.Actor, c.Who.Role, name, u.Role)
	}
	return u, nil
}

// mayGive returns why the caller cannot give a user its role or one of its groups, or nil.
func mayGive(c *rest.Call, u *model.User) error {
	if !c.Who.Role.AtLeast(u.Role) {
		return rest.Forbidden("%s has the role %s and cannot give the role %s", c.Who.Actor, c.Who.Role, u.Role)
	}
	if slices.Contains(u.Groups, "operator") && c.Who.Role != model.RoleSuperadmin {
		return rest.Forbidden("operators run the mesh: only a superadmin can put a user into the group operator")
	}
	return nil
}

// maySetPassword returns why a caller cannot set a password, or nil: somebody else could log in with it from anywhere.
func maySetPassword(c *rest.Call, password string) error {
	if password != "" && len(c.Who.Sources) > 0 {
		return rest.Forbidden("the token of %s is bound to networks, and a login with this password would not be: use another token", c.Who.Actor)
	}
	return nil
}

// maxGroups bounds the groups of one user.
const maxGroups = 50

// faultsOf returns the faults of a user's role and groups, and puts the groups in order.
func faultsOf(c *rest.Call, u *model.User) (faults model.Faults) {
	if !slices.Contains(model.Roles, u.Role) {
		faults.Add("role", fmt.Sprintf("must be one of %s, but is %q", roleNames(), u.Role))
	}
	slices.Sort(u.Groups)
	u.Groups = slices.Compact(u.Groups)
	if len(u.Groups) > maxGroups {
		faults.Add("groups", fmt.Sprintf("are %d: at most %d are allowed", len(u.Groups), maxGroups))
	}
	for _, g := range u.Groups {
		switch why := model.CheckName(g); {
		case why != "":
			faults.Add("groups", why)
		case g == "editor" || g == "operator":
		case access.GroupID(c.Who.Tenant, g) == g:
			faults.Add("groups", fmt.Sprintf("%q is what the user's role says: set the role instead", g))
		}
	}
	if len(u.Description) > 1000 {
		faults.Add("description", "is longer than 1000 bytes")
	}
	return faults
}

func roleNames() string {
	names := make([]string, len(model.Roles))
	for i, r := range model.Roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// checkUsersPassword adds the faults of a password that somebody else sets for a user.
func checkUsersPassword(faults *model.Faults, u *model.User, password string) {
	checkPassword(faults, "password", password)
	switch {
	case u.Method == model.MethodAccount:
		faults.Add("password", "a service account has tokens and no password")
	case u.FromDirectory():
		faults.Add("password", fmt.Sprintf("is in the directory %s: change it there", u.Method))
	}
}

func checkPassword(faults *model.Faults, path, password string) {
	switch n := utf8.RuneCountInString(password); {
	case n < 12:
		faults.Add(path, fmt.Sprintf("has %d characters: use at least 12, such as four random words", n))
	case len(password) > 1024:
		faults.Add(path, "is longer than 1024 bytes")
	}
}
