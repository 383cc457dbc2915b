package identity

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
)

// JoinToken lets agents join a mesh: until a time, for a number of uses, and with one role, as the mesh has it on record. It
// prints as "<redacted>", like a Secret.
type JoinToken struct {
	masked
	id, secret  []byte
	fingerprint []byte
	addrs       []string
}

const (
	joinVersion     = "2"
	joinIDSize      = 8
	joinSecretSize  = 20
	fingerprintSize = sha256.Size
	joinFixedSize   = joinIDSize + joinSecretSize + fingerprintSize
)

// NewJoinToken returns a random join token. It names the CA by a fingerprint of its certificate (in DER), and the peer addresses
// ("host:port") of voters that admit the newcomer.
func NewJoinToken(ca []byte, addrs []string) (JoinToken, error) {
	sum := sha256.Sum256(ca)
	t := JoinToken{id: make([]byte, joinIDSize), secret: make([]byte, joinSecretSize), fingerprint: sum[:], addrs: addrs}
	rand.Read(t.id) // never fails
	rand.Read(t.secret)
	if len(addrs) == 0 {
		return JoinToken{}, fmt.Errorf("a join token needs the peer address of a voter")
	}
	for _, a := range addrs {
		if _, _, err := net.SplitHostPort(a); err != nil || strings.ContainsAny(a, ", \n") {
			return JoinToken{}, fmt.Errorf("%q is no peer address: it is HOST:PORT", a)
		}
	}
	return t, nil
}

// ID returns the name of the token in records.
func (t JoinToken) ID() string { return hex.EncodeToString(t.id) }

// Hash returns what records keep of the secret.
func (t JoinToken) Hash() []byte { return HashJoinSecret(t.secret) }

// HashJoinSecret returns what records keep of a join token's secret.
func HashJoinSecret(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return sum[:]
}

// Secret returns the secret, which only a voter of the mesh may see.
func (t JoinToken) Secret() []byte { return t.secret }

// Addrs returns the peer addresses of voters.
func (t JoinToken) Addrs() []string { return t.addrs }

// Text returns the token as operators copy it, with a checksum.
func (t JoinToken) Text() string {
	b := bytes.Join([][]byte{t.id, t.secret, t.fingerprint, []byte(strings.Join(t.addrs, ","))}, nil)
	sum := joinChecksum(b)
	return tokenPrefix + joinVersion + "-" + tokenEncoding.EncodeToString(append(b, sum...))
}

func joinChecksum(b []byte) []byte {
	sum := sha256.Sum256(append([]byte(tokenPrefix+joinVersion), b...))
	return sum[:checksumSize]
}

// IsJoinToken reports whether a text is meant as a join token of this format, and not as a mesh's secret.
func IsJoinToken(text string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(text)), tokenPrefix+joinVersion+"-")
}

// ParseJoinToken parses a join token. It ignores space around the token and the case of letters. The error wraps one of the
// ErrToken values and never quotes the token.
func ParseJoinToken(text string) (JoinToken, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	body, ok := strings.CutPrefix(text, tokenPrefix+joinVersion+"-")
	if !ok {
		return JoinToken{}, fmt.Errorf("%w: it has to begin with %q", ErrTokenMalformed, tokenPrefix+joinVersion+"-")
	}
	raw, err := tokenEncoding.DecodeString(body)
	if err != nil {
		return JoinToken{}, fmt.Errorf("%w: it is cut short, or has a character that is not a-z or 2-7", ErrTokenMalformed)
	}
	if len(raw) <= joinFixedSize+checksumSize {
		return JoinToken{}, fmt.Errorf("%w: it ends after %d characters", ErrTokenTruncated, len(text))
	}
	b, sum := raw[:len(raw)-checksumSize], raw[len(raw)-checksumSize:]
	if !bytes.Equal(joinChecksum(b), sum) {
		return JoinToken{}, fmt.Errorf("%w: the checksum does not match, copy it again", ErrTokenChecksum)
	}
	t := JoinToken{id: b[:joinIDSize], secret: b[joinIDSize:][:joinSecretSize], fingerprint: b[joinIDSize+joinSecretSize:][:fingerprintSize],
		addrs: strings.Split(string(b[joinFixedSize:]), ",")}
	if t.Text() != text {
		return JoinToken{}, fmt.Errorf("%w: the checksum does not match, copy it again", ErrTokenChecksum)
	}
	return t, nil
}

// CheckToken returns an error for a text that is neither a join token nor a mesh's secret.
func CheckToken(text string) error {
	if IsJoinToken(text) {
		_, err := ParseJoinToken(text)
		return err
	}
	_, err := ParseToken(text)
	return err
}
