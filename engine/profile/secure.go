package profile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// secure matches a reference to a secret in a value. Nothing else is expanded.
var secure = regexp.MustCompile(`\$\{secure\(([^(){}]*)\)\}`)

// Secure reports whether a value refers to secrets.
func Secure(value string) bool { return secure.MatchString(value) }

// Secret is a value that documents refer to, and the users whose documents may do so. Administrators'
// may always.
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
		return problem.New(problem.Forbidden, "nobody is known to have written this, so it may not use the secret %q: write it again", name)
	}
	return problem.New(problem.Forbidden, "%s may not use the secret %q: an administrator can store it again with --usable-by %s",
		who.Actor, name, who.Actor)
}

// Reveal replaces references to secrets in values. It is called when a provisioner or a worker
// gets the values, and its result is never stored (docs/spec/profiles.md §12). lookup returns a secret
// for the value under a key; its errors are those of Reveal.
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
