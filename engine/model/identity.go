package model

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/coopr/coopr/internal/words"
)

const (
	// MaxIdentityTTL is how long a token of a task is valid at most, and unless its definition says less.
	MaxIdentityTTL = time.Hour
	// MinIdentityTTL is the shortest time that a definition may ask for: clocks differ by some seconds.
	MinIdentityTTL = time.Minute
	// maxAudience bounds an audience, in bytes. The longest in use are resource names of clouds.
	maxAudience = 512
)

// Identity asks for tokens with which tasks identify themselves to a cloud or a vault (docs/security.md, "Tokens of tasks").
type Identity struct {
	// Audience is the claim aud: whom the token is for.
	Audience string `json:"audience"`
	// TTL is a duration such as "10m"; empty means MaxIdentityTTL.
	TTL string `json:"ttl,omitempty"`
}

// Lifetime returns how long a token is valid. It is never more than MaxIdentityTTL.
func (i *Identity) Lifetime() time.Duration {
	if d, err := time.ParseDuration(i.TTL); err == nil && d > 0 {
		return min(d, MaxIdentityTTL)
	}
	return MaxIdentityTTL
}

// Check adds the faults of an identity below a path. Nil has none.
func (i *Identity) Check(fs *Faults, path string) {
	if i == nil {
		return
	}
	odd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	switch a := i.Audience; {
	case a == "":
		fs.Add(path+".audience", "is missing: say whom the tokens are for, such as \"https://vault.example.com\"")
	case len(a) > maxAudience:
		fs.Addf(path+".audience", "has %d bytes: at most %d are allowed", len(a), maxAudience)
	case strings.ContainsFunc(a, odd):
		fs.Addf(path+".audience", "must have no spaces or control characters, but is %q", words.Shorten(a))
	case strings.Contains(a, "${") || strings.Contains(a, "%"):
		fs.Addf(path+".audience", "is taken as it is: it must have no macro or reference, but is %q", words.Shorten(a))
	case len(SealedRefs([]byte(a))) > 0:
		fs.Add(path+".audience", "must not refer to an encrypted value")
	}
	if i.TTL == "" {
		return
	}
	if d, err := time.ParseDuration(i.TTL); err != nil || d < MinIdentityTTL || d > MaxIdentityTTL {
		fs.Add(path+".ttl", fmt.Sprintf("must be a duration from \"1m\" to \"1h\", but is %q", words.Shorten(i.TTL)))
	}
}
