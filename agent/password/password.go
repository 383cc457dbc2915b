// Package password hashes passwords with argon2id and checks them, a few at a time.
package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/crypto/argon2"

	"github.com/coopr/coopr/engine/problem"
)

// The parameters of argon2id for new hashes (RFC 9106; the second choice of OWASP's list).
const (
	memory   = 19 << 10 // KiB
	passes   = 2
	saltSize = 16
	keySize  = 32
)

// How many hashes are computed at a time, and how many requests wait for one.
const (
	parallel = 4
	waiting  = 32
)

// Checker hashes and checks passwords. The zero value is ready for use, also by several goroutines at once.
type Checker struct {
	once  sync.Once
	slots chan struct{} // has an element for each hash that is computed
	queue chan struct{} // and for each request, those that wait included
}

// Hash returns the hash of a password with a new salt, in the form $argon2id$v=19$m=KiB,t=passes,p=1$salt$key. It fails with
// problem.Busy if too many requests wait.
func (c *Checker) Hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	h := hash{memory: memory, passes: passes, salt: salt}
	if err := c.compute(ctx, func() { h.key = h.of(password, keySize) }); err != nil {
		return "", err
	}
	return h.String(), nil
}

// Check reports whether a password has a hash. An empty hash takes as long as any other, and no password has it. It fails with
// problem.Busy if too many requests wait, and for a damaged hash.
func (c *Checker) Check(ctx context.Context, text, password string) (bool, error) {
	h := hash{memory: memory, passes: passes, salt: make([]byte, saltSize), key: make([]byte, keySize)}
	if text != "" {
		var err error
		if h, err = parse(text); err != nil {
			return false, err
		}
	}
	var same bool
	err := c.compute(ctx, func() { same = subtle.ConstantTimeCompare(h.of(password, len(h.key)), h.key) == 1 })
	return same && text != "", err
}

// compute runs fn once fewer than parallel others run.
func (c *Checker) compute(ctx context.Context, fn func()) error {
	c.once.Do(func() {
		c.slots, c.queue = make(chan struct{}, parallel), make(chan struct{}, parallel+waiting)
	})
	select {
	case c.queue <- struct{}{}:
		defer func() { <-c.queue }()
	default:
		return problem.New(problem.Busy, "too many passwords are being checked: try again in a few seconds")
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	fn()
	return nil
}

// hash is a parsed hash.
type hash struct {
	memory, passes uint32
	salt, key      []byte
}

func (h hash) of(password string, size int) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.passes, h.memory, 1, uint32(size))
}

var encoding = base64.RawStdEncoding

// String returns the hash as it is stored.
func (h hash) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, h.memory, h.passes, encoding.EncodeToString(h.salt),
		encoding.EncodeToString(h.key))
}

// parse is the inverse of String. It accepts other parameters than those of new hashes, within limits.
func parse(text string) (h hash, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return h, fmt.Errorf("the stored hash of a password is damaged")
	}
	var version int
	if _, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=1", &version, &h.memory, &h.passes); err != nil {
		return h, fmt.Errorf("the stored hash of a password is damaged: %w", err)
	}
	if h.salt, err = encoding.DecodeString(parts[4]); err == nil {
		h.key, err = encoding.DecodeString(parts[5])
	}
	if err != nil || version != argon2.Version || h.memory > 1<<20 || h.passes == 0 || h.passes > 100 || len(h.key) < 16 || len(h.key) > 64 {
		return h, fmt.Errorf("the stored hash of a password is damaged, or of another version")
	}
	return h, nil
}
