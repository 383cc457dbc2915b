package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Scope says whose fields of a plugin are meant.
type Scope string

// The scopes: what the administrator sets once, and what the user of a cluster
// sets when making it.
const (
	ScopeAdmin Scope = "admin"
	ScopeUser  Scope = "user"
)

func (t PluginType) fields(s Scope) PluginFields {
	if s == ScopeUser {
		return t.Parameters.User
	}
	return t.Parameters.Admin
}

// MissingFields returns what is missing among the given values: nil when one of the
// alternative sets of required fields is complete (or none is required), else for each set the
// missing fields with their schemas, as the answer "missingFields" of the API has them
// (docs/spec/coopr.md 2.3). A field with a default is never missing; an empty text is.
func MissingFields(t PluginType, scope Scope, given map[string]any) []map[string]FieldSchema {
	fields := t.fields(scope)
	var all []map[string]FieldSchema
	for _, set := range fields.Required {
		missing := map[string]FieldSchema{}
		for _, name := range set {
			schema := fields.Fields[name]
			if v := given[name]; (v == nil || v == "") && schema.Default == nil {
				missing[name] = schema
			}
		}
		if len(missing) == 0 {
			return nil
		}
		all = append(all, missing)
	}
	return all
}

// Judge returns what is wrong with a value of the field; "" when it is right.
func (f FieldSchema) Judge(v any) string {
	switch v.(type) {
	case nil:
		return ""
	case map[string]any, []any:
		return "must be one value, not a list or an object"
	}
	text := fmt.Sprint(v)
	switch f.Type {
	case "select":
		if text != "" && !slices.Contains(f.Options, text) {
			return fmt.Sprintf("%q is not one of the options%s", shorten(text), didYouMeanOrOneOf(text, f.Options))
		}
	case "checkbox":
		if _, err := strconv.ParseBool(text); err != nil && text != "" {
			return fmt.Sprintf("must be true or false, but is %q", shorten(text))
		}
	}
	return ""
}

// odd is Judge for what a definition gives: there the value of a text may be a list or
// an object, such as variables, which its plugin reads and judges.
func (f FieldSchema) odd(v any) string {
	switch v.(type) {
	case map[string]any, []any:
		if f.Type == "text" {
			return ""
		}
	}
	return f.Judge(v)
}

// Secret reports whether the field's values are sensitive: where the schema says so, and for
// every password.
func (f FieldSchema) Secret() bool { return f.Sensitive || f.Type == "password" }

// Sensitive returns the names among the given values that must not be shown, in order: those
// whose schema says so (in either scope), those of values of type Secret, and, since a type
// may be unknown (its zero value), those that sound like secrets and have no schema that says
// otherwise.
func Sensitive(t PluginType, values map[string]any) []string {
	var names []string
	for _, name := range sorted(values) {
		_, secret := values[name].(Secret)
		known := false
		for _, scope := range []Scope{ScopeAdmin, ScopeUser} {
			if f, ok := t.fields(scope).Fields[name]; ok {
				known = true
				secret = secret || f.Secret()
			}
		}
		if secret || !known && SoundsSecret(name) {
			names = append(names, name)
		}
	}
	return names
}

// RedactFields returns a copy of the values with Redacted in place of what is sensitive, at
// every depth.
func RedactFields(t PluginType, values map[string]any) map[string]any {
	if values == nil {
		return nil
	}
	out := make(map[string]any, len(values))
	for k, v := range values {
		out[k] = redactInner(v)
	}
	for _, name := range Sensitive(t, values) {
		out[name] = Redacted
	}
	return out
}

func redactInner(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return RedactFields(PluginType{}, v)
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = redactInner(x)
		}
		return out
	}
	return v
}

// separators makes one of the signs that part the words of a name.
var separators = strings.NewReplacer("-", "_", ".", "_")

// SoundsSecret reports whether a name is one that secrets usually have.
func SoundsSecret(name string) bool {
	name = strings.ToLower(separators.Replace(name))
	for _, resource := range []string{"_resource", "_keypair", "_file", "_path", "_id", "_name"} {
		if strings.HasSuffix(name, resource) && !strings.Contains(name, "password") {
			return false
		}
	}
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "private_key", "access_key", "credential"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return name == "pass" || strings.HasSuffix(name, "_pass")
}
