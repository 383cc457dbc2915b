package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// Scope selects fields of a plugin: those of the administrator or of the user.
type Scope string

// The scopes: fields that the administrator sets once, and fields that a user sets when
// creating a cluster.
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

// MissingFields returns the required fields that the given values lack. It returns nil if one
// of the alternative sets of required fields is complete, or none is required. Otherwise it
// returns the missing fields of each set with their schemas, as in the answer "missingFields"
// of the API (docs/spec/coopr.md 2.3). A field with a default is never missing; an empty text
// is.
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

// Judge returns the fault of a value of the field, or "".
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
			return fmt.Sprintf("%q is not one of the options%s", words.Shorten(text), words.DidYouMeanOrOneOf(text, f.Options))
		}
	case "checkbox":
		if _, err := strconv.ParseBool(text); err != nil && text != "" {
			return fmt.Sprintf("must be true or false, but is %q", words.Shorten(text))
		}
	}
	return ""
}

// Secret reports whether the field's values are sensitive: if the schema says so, and for
// every password.
func (f FieldSchema) Secret() bool { return f.Sensitive || f.Type == "password" }

// Sensitive returns the names of the given values that must not be shown, in order: those that
// the schema of either scope marks, values of type Secret, names of encrypted values, and names that
// sound like secrets and have no schema that says otherwise. For an unknown type pass the zero value.
func Sensitive(t PluginType, values map[string]any) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		_, secret := values[name].(Secret)
		if _, sealed := ParseSealedRef(values[name]); sealed {
			secret = true
		}
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

// RedactFields returns a copy of the values in which sensitive ones are replaced by Redacted,
// at every depth.
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
	if _, sealed := ParseSealedRef(v); sealed {
		return Redacted
	}
	return v
}

// separators unifies the characters that separate the words of a name.
var separators = strings.NewReplacer("-", "_", ".", "_")

// SoundsSecret reports whether a name is one that secrets usually have.
func SoundsSecret(name string) bool {
	name = strings.ToLower(separators.Replace(name))
	for _, resource := range []string{"_resource", "_keypair", "_file", "_path", "_id", "_name"} {
		if strings.HasSuffix(name, resource) && !strings.Contains(name, "password") {
			return false
		}
	}
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "private_key", "access_key",
		"credential"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return name == "pass" || strings.HasSuffix(name, "_pass")
}

// receivers are words in the names of fields that determine where a provider's secrets are sent, for
// which account, and which servers the connection trusts.
var receivers = []string{"url", "uri", "endpoint", "host", "server", "address", "port", "socket", "engine", "daemon", "inventory", "jump",
	"proxy", "gateway", "user", "account", "login", "domain", "access_key", "application_credential", "insecure", "verify", "cert", "publish",
	"fingerprint", "known"}

// SoundsLikeReceiver reports whether a field's name is one that decides who receives a provider's
// secrets.
func SoundsLikeReceiver(name string) bool {
	name = strings.ToLower(separators.Replace(name))
	return name == "ca" || strings.HasPrefix(name, "ca_") || strings.HasSuffix(name, "_ca") ||
		slices.ContainsFunc(receivers, func(word string) bool { return strings.Contains(name, word) })
}
