package model

import (
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
