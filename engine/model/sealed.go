package model

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sealedPrefix begins the text that stands in a document for an encrypted value. No document of a user may have it.
const sealedPrefix = "coopr-sealed:"

// SealedRef names a version of an encrypted value. The value is a row of its own; documents have the text of its name.
type SealedRef struct {
	ID      string
	Version uint32
}

func (r SealedRef) String() string { return fmt.Sprintf("%s%s@%d", sealedPrefix, r.ID, r.Version) }

// sealedRef matches the text of a SealedRef.
var sealedRef = regexp.MustCompile(sealedPrefix + `([a-z0-9]+)@([0-9]+)`)

// ParseSealedRef returns the encrypted value that a value of a document stands for.
func ParseSealedRef(v any) (SealedRef, bool) {
	text, ok := v.(string)
	if !ok || !strings.HasPrefix(text, sealedPrefix) {
		return SealedRef{}, false
	}
	found := SealedRefs([]byte(text))
	if len(found) != 1 || found[0].String() != text {
		return SealedRef{}, false
	}
	return found[0], true
}

// SealedRefs returns the encrypted values that an encoded document names.
func SealedRefs(body []byte) (out []SealedRef) {
	for _, m := range sealedRef.FindAllSubmatch(body, -1) {
		if n, err := strconv.ParseUint(string(m[2]), 10, 32); err == nil {
			out = append(out, SealedRef{ID: string(m[1]), Version: uint32(n)})
		}
	}
	return out
}

// HideSealedRefs returns a text with Redacted in place of the names of encrypted values.
func HideSealedRefs(text []byte) []byte {
	if !bytes.Contains(text, []byte(sealedPrefix)) {
		return text
	}
	return sealedRef.ReplaceAllLiteral(text, []byte(Redacted))
}

// HasSealedRef reports whether a value, or one within it, looks like the name of an encrypted value. Input of users must not.
func HasSealedRef(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, sealedPrefix)
	case map[string]any:
		for _, item := range v {
			if HasSealedRef(item) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, HasSealedRef)
	}
	return false
}

// RefusedRef returns why a value of a user's document is refused, or "": it looks like the name of an encrypted value.
func RefusedRef(v any) string {
	if !HasSealedRef(v) {
		return ""
	}
	return "contains " + sealedPrefix + ", which names values that this mesh has encrypted: write the value itself"
}

// CheckSealedRefs returns the faults of fields that look like names of encrypted values. path is that of the fields.
func CheckSealedRefs(path string, fields map[string]any) (faults Faults) {
	for name, v := range fields {
		if why := RefusedRef(v); why != "" {
			faults.Add(path+"."+name, why)
		}
	}
	return faults
}

// refsIn returns the encrypted values that values name.
func refsIn(values ...map[string]any) (out []SealedRef) {
	for _, fields := range values {
		_, _ = MapFields(fields, func(v any) (any, error) {
			if r, ok := ParseSealedRef(v); ok {
				out = append(out, r)
			}
			return nil, nil
		})
	}
	return out
}

// SealedRefs returns the encrypted values that the service's actions name, in any order.
func (s *Service) SealedRefs() (out []SealedRef) {
	for _, a := range s.Provisioner.Actions {
		out = append(out, refsIn(a.Fields)...)
	}
	return out
}

// SealedRefs returns the encrypted values that the defaults of the template name, in any order.
func (t *ClusterTemplate) SealedRefs() []SealedRef { return t.Defaults.sealedRefs() }

func (d *Defaults) sealedRefs() []SealedRef {
	out := refsIn(d.Config)
	for i := range d.Services {
		out = append(out, refsIn(d.Services[i].Config)...)
	}
	return out
}

// SealedRefs returns the encrypted values that the cluster names, in any order: in its provider, and in the configurations, services and
// template of its targets.
func (c *Cluster) SealedRefs() []SealedRef {
	out := append(refsIn(c.Provider.Provisioner, c.Config), c.Template.SealedRefs()...)
	services := func(definitions map[string]Service) {
		for _, d := range definitions {
			out = append(out, d.SealedRefs()...)
		}
	}
	services(c.Definitions)
	for i := range c.Earlier {
		services(c.Earlier[i].Definitions)
		out = append(out, refsIn(c.Earlier[i].Config)...)
	}
	return out
}
