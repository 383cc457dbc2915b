package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
)

// Secret is the mesh secret. It is enough to join the mesh and to do everything in it. It prints as
// "<redacted>".
type Secret struct {
	masked
	bytes [secretSize]byte
}

const (
	secretSize   = 32
	checksumSize = 4
	tokenPrefix  = "coopr-join-"
	tokenVersion = "1"
	redacted     = "<redacted>"
)

// The faults of a join token. Errors of ParseToken wrap one of them.
var (
	ErrTokenMalformed = errors.New("not a join token")
	ErrTokenVersion   = errors.New("join token of another format version")
	ErrTokenTruncated = errors.New("join token is cut short")
	ErrTokenChecksum  = errors.New("join token has a wrong character")
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Token returns the secret as the join token that operators copy: coopr-join-1-<58 characters>, with
// a checksum.
func (s Secret) Token() string {
	sum := s.checksum()
	return tokenPrefix + tokenVersion + "-" + tokenEncoding.EncodeToString(append(s.bytes[:], sum[:]...))
}

func (s Secret) checksum() (sum [checksumSize]byte) {
	h := sha256.New()
	io.WriteString(h, tokenPrefix+tokenVersion)
	h.Write(s.bytes[:])
	copy(sum[:], h.Sum(nil))
	return sum
}

// ParseToken parses a join token. It ignores space around the token and the case of letters. The
// error wraps one of the ErrToken values and never quotes the token.
func ParseToken(text string) (Secret, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		if text != "" && strings.HasPrefix(tokenPrefix, text) {
			return Secret{}, fmt.Errorf("%w: it ends after %d characters", ErrTokenTruncated, len(text))
		}
		return Secret{}, fmt.Errorf("%w: it has to begin with %q", ErrTokenMalformed, tokenPrefix)
	}
	version, body, ok := strings.Cut(rest, "-")
	if !ok {
		return Secret{}, fmt.Errorf("%w: it ends after %d characters", ErrTokenTruncated, len(text))
	}
	if version != tokenVersion {
		if _, err := strconv.ParseUint(version, 10, 16); err != nil { // it may be a part of a secret
			version = "unknown"
		}
		return Secret{}, fmt.Errorf("%w: %s, this build reads %s: use a coopr-agent of the mesh's version", ErrTokenVersion,
			version, tokenVersion)
	}
	want := tokenEncoding.EncodedLen(secretSize + checksumSize)
	switch {
	case len(body) < want:
		return Secret{}, fmt.Errorf("%w: %d of %d characters after the version", ErrTokenTruncated, len(body), want)
	case len(body) > want:
		return Secret{}, fmt.Errorf("%w: %d characters after the version, expected %d", ErrTokenMalformed, len(body), want)
	}
	raw, err := tokenEncoding.DecodeString(body)
	if err != nil {
		return Secret{}, fmt.Errorf("%w: characters are a-z and 2-7", ErrTokenMalformed)
	}
	var s Secret
	copy(s.bytes[:], raw)
	// The comparison of the text also checks the two unused bits of the last character.
	if sum := s.checksum(); !bytes.Equal(sum[:], raw[secretSize:]) || s.Token() != text {
		return Secret{}, fmt.Errorf("%w: the checksum does not match, copy it again", ErrTokenChecksum)
	}
	return s, nil
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s == Secret{} }

// derive returns key material for one purpose. Labels never change, because another label results
// in another key.
func (s Secret) derive(label string, size int) []byte {
	return derive(s.bytes[:], "coopr mesh 1 "+label, size)
}

func derive(secret []byte, label string, size int) []byte {
	key, err := hkdf.Key(sha256.New, secret, nil, label, size)
	if err != nil {
		panic(err) // only for sizes over 255 hashes
	}
	return key
}

// GossipKey returns the 32-byte key that gossip starts with. It is never rotated.
func (s Secret) GossipKey() []byte { return s.derive("gossip key", 32) }

// RootToken returns the API token that has all rights. It is derived and never stored.
func (s Secret) RootToken() string {
	return "coopr-root-1-" + tokenEncoding.EncodeToString(s.derive("root token", 32))
}

func (s Secret) caKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(s.derive("ca key", ed25519.SeedSize))
}

// masked keeps a value in which it is embedded out of text, logs, JSON and YAML.
type masked struct{}

func (masked) String() string { return redacted }

// GoString prints a fixed word in place of the value.
func (masked) GoString() string { return redacted }

// Format prints a fixed word in place of the value.
func (masked) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue logs a fixed word in place of the value.
func (masked) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText writes a fixed word in place of the value.
func (masked) MarshalText() ([]byte, error) { return []byte(redacted), nil }
