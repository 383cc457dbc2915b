package profile

import (
	"fmt"
	"regexp"
	"strings"
)

// secure matches a reference to a secret in a value. Nothing else is expanded.
var secure = regexp.MustCompile(`\$\{secure\(([^(){}]*)\)\}`)

// Secure reports whether a value refers to secrets.
func Secure(value string) bool { return secure.MatchString(value) }

// Reveal replaces references to secrets in values. It is called when a provisioner or a worker
// gets the values, and its result is never stored (docs/spec/profiles.md §12). It fails if a
// secret does not exist.
func Reveal(values map[string]string, lookup func(name string) (string, bool)) (map[string]string, error) {
	out := make(map[string]string, len(values))
	for k, v := range values {
		var missing []string
		out[k] = secure.ReplaceAllStringFunc(v, func(m string) string {
			name := secure.FindStringSubmatch(m)[1]
			s, ok := lookup(name)
			if !ok {
				missing = append(missing, fmt.Sprintf("%q", name))
			}
			return s
		})
		if len(missing) > 0 {
			return nil, fmt.Errorf("%s refers to the secret %s, which the tenant does not have", k, strings.Join(missing, ", "))
		}
	}
	return out, nil
}
