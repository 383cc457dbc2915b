package profile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// secure matches a reference to a secret in a value.
var secure = model.SecretReference

// Secure reports whether a value refers to secrets.
func Secure(value string) bool { return secure.MatchString(value) }

// Secret is a value that documents refer to, and the users whose documents may do so. Documents of
// administrators may refer to every secret. If UsableBy is nil, the users stay as they are.
type Secret struct {
	Value    model.Secret
	UsableBy []string
}

// Everybody in the list of a secret's users means all users of the tenant.
const Everybody = "*"

// CheckUsableBy returns the faults of a list of a secret's users.
func CheckUsableBy(users []string) (fs model.Faults) {
	for i, name := range users {
		if name == Everybody {
			continue
		}
		if why := model.CheckName(name); why != "" {
			fs.Add(fmt.Sprintf("usableBy[%d]", i), why)
		}
	}
	return fs
}

// MayUse returns problem.Forbidden if documents of a user may not refer to a secret of this name. An
// administrator's may refer to all secrets of the tenant.
func MayUse(who model.Caller, name string, usableBy []string) error {
	switch {
	case who.Role == model.RoleAdmin, who.Role == model.RoleSuperadmin:
		return nil
	case who.Role == model.RoleUser && (slices.Contains(usableBy, who.Actor) || slices.Contains(usableBy, Everybody)):
		return nil
	case who.Actor == "":
		return problem.New(problem.Forbidden, "the author is unknown, so the secret %q cannot be used: store the program again", name)
	case who.Role != model.RoleUser:
		return problem.New(problem.Forbidden, "%s may not use the secret %q: no token of %s has the role user", who.Actor, name, who.Actor)
	}
	return problem.New(problem.Forbidden, "%s may not use the secret %q: an administrator can add %[1]s with --usable-by", who.Actor, name)
}

// Reveal replaces references to secrets in values. It is called when a provisioner or a worker
// gets the values, and its result is never stored (docs/spec/profiles.md §12). lookup returns a secret
// for the value under a key. If it fails, Reveal returns that error with the key before it.
func Reveal(values map[string]string, lookup func(key, name string) (string, error)) (map[string]string, error) {
	out := make(map[string]string, len(values))
	for k, v := range values {
		var fault error
		out[k] = secure.ReplaceAllStringFunc(v, func(m string) string {
			s, err := lookup(k, secure.FindStringSubmatch(m)[1])
			if err != nil && fault == nil {
				fault = fmt.Errorf("%s: %w", k, err)
			}
			return s
		})
		if fault != nil {
			return nil, fault
		}
	}
	return out, nil
}

// Refers reports whether a value of a document, or one within it, has a reference to a secret.
func Refers(v any) (found bool) {
	_, _ = model.MapValues(v, func(v any) (any, error) {
		text, ok := v.(string)
		found = found || ok && Secure(text)
		return v, nil
	})
	return found
}

// maxRevealed bounds the bytes of all secrets that the fields of one part of a document refer to.
const maxRevealed = 4 << 20

// Resolve returns a copy of the fields of a document in which model.Hidden stands in place of each text with references to secrets: the
// whole text, with the secrets in it. lookup returns a secret. If it fails, Resolve returns that error with the path before it. Fields
// without references are returned as they are.
func Resolve(fields map[string]any, lookup func(name string) (string, error)) (map[string]any, error) {
	if !Refers(fields) {
		return fields, nil
	}
	size := 0 // a short text can refer to a long secret many times
	bounded := func(name string) (s string, err error) {
		if size <= maxRevealed {
			if s, err = lookup(name); err != nil {
				return "", err
			}
			size += len(s)
		}
		if size > maxRevealed {
			return "", problem.New(problem.TooLarge, "the secrets that it refers to have more than %d bytes together: refer to fewer", maxRevealed)
		}
		return s, nil
	}
	return model.MapFields(fields, func(v any) (any, error) {
		text, ok := v.(string)
		if !ok || !Secure(text) {
			return v, nil
		}
		out, err := Reveal(map[string]string{"": text}, func(_, name string) (string, error) { return bounded(name) })
		if err != nil {
			return nil, errors.Unwrap(err)
		}
		return model.Hidden{Value: out[""]}, nil
	})
}

// UserSets reports whether a run's user determines what becomes of the secrets in a property: by setting the
// property, or, for a field of the provider, another such field. A user who sets the provider's address could
// have an administrator's password sent there.
func (r *Run) UserSets(name string) bool {
	sets := func(p Property) bool {
		_, ok := r.Runtime[PropertyPrefix+p.Name]
		return ok && !p.Locked()
	}
	field := strings.HasPrefix(name, PropField)
	return slices.ContainsFunc(r.Properties, func(p Property) bool {
		return sets(p) && (p.Name == name || field && strings.HasPrefix(p.Name, PropField))
	})
}

// References returns the names of the secrets that values refer to, sorted.
func References(values map[string]string) []string {
	var out []string
	for _, v := range values {
		for _, m := range secure.FindAllStringSubmatch(v, -1) {
			out = append(out, m[1])
		}
	}
	slices.SortFunc(out, strings.Compare)
	return slices.Compact(out)
}
