package instance

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Tags identify the node of a machine.
type Tags struct {
	Tenant, Mesh, Cluster, Node string
	Fence                       uint64
	// Key is the fingerprint of the key that can log in.
	Key string
}

// The names of the tags, in clouds whose tags have names and values.
const (
	TagTenant  = "coopr-tenant"
	TagMesh    = "coopr-mesh"
	TagCluster = "coopr-cluster"
	TagNode    = "coopr-node"
	TagFence   = "coopr-fence"
	TagKey     = "coopr-key"
)

// Map returns the tags by name.
func (t Tags) Map() map[string]string {
	return map[string]string{
		TagTenant: t.Tenant, TagMesh: t.Mesh, TagCluster: t.Cluster, TagNode: t.Node,
		TagFence: strconv.FormatUint(t.Fence, 10), TagKey: t.Key,
	}
}

// TagsOf decodes tags. It returns false if they are not Coopr's.
func TagsOf(m map[string]string) (Tags, bool) {
	fence, _ := strconv.ParseUint(m[TagFence], 10, 64)
	t := Tags{m[TagTenant], m[TagMesh], m[TagCluster], m[TagNode], fence, m[TagKey]}
	return t, t.Node != "" && t.Cluster != ""
}

// Fits reports whether the tags match a filter.
func (t Tags) Fits(filter Tags) bool {
	fits := func(want, have string) bool { return want == "" || want == have }
	return t.Mesh == filter.Mesh && fits(filter.Tenant, t.Tenant) && fits(filter.Cluster, t.Cluster) && fits(filter.Node, t.Node)
}

// Escape encodes a text with small letters, digits and dashes, and underscores before two
// hexadecimal digits for all other bytes, for clouds whose tags allow no other characters. Unescape
// decodes it.
func Escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// Unescape decodes the result of Escape. It returns false for any other text.
func Unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '_' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 > len(s) {
			return "", false
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), true
}

// EscapedMap is Map with escaped values.
func (t Tags) EscapedMap() map[string]string {
	m := t.Map()
	for k, v := range m {
		m[k] = Escape(v)
	}
	return m
}

// TagsOfEscaped decodes the result of EscapedMap.
func TagsOfEscaped(m map[string]string) (Tags, bool) {
	plain := map[string]string{}
	for k, v := range m {
		if s, ok := Unescape(v); ok {
			plain[k] = s
		}
	}
	return TagsOf(plain)
}

// name returns a machine's name. A name that is too long, or has other characters, ends with a hash
// of the whole name.
func name(mesh, cluster string, number int) string {
	full := fmt.Sprintf("coopr-%s-%s-%d", cmp.Or(mesh, "0"), cluster, number)
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(full)) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			c = '-'
		}
		b.WriteByte(c)
	}
	s := b.String()
	if s == full && len(s) <= 63 {
		return s
	}
	sum := sha256.Sum256([]byte(full))
	return strings.TrimRight(s[:min(len(s), 52)], "-") + "-" + hex.EncodeToString(sum[:5])
}

// token returns the same text for the same machine with the same key.
func token(name string, t Tags) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{name, t.Tenant, t.Mesh, t.Cluster, t.Node, t.Key}, "\x00")))
	return hex.EncodeToString(sum[:16])
}
