package signing

import (
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"time"
)

const (
	// TaskKeyBits is the size of the keys for tokens of tasks.
	TaskKeyBits = 2048
	// TaskTokenTime is how long a token of a task is valid at most.
	TaskTokenTime = time.Hour
	// TaskKeyNotice is how long a key is published before it signs, so that whoever keeps the published keys has it by then.
	TaskKeyNotice = 24 * time.Hour
)

// TaskKey is a numbered public key for tokens with which tasks identify themselves elsewhere. The signatures are RS256, because clouds
// take no Ed25519.
type TaskKey struct {
	Number uint32
	Public []byte // RSA, as PKIX in DER
	Signs  int64  // from when it signs, in Unix milliseconds
}

// RSA returns the public key. It fails unless that is an RSA key of TaskKeyBits.
func (k TaskKey) RSA() (*rsa.PublicKey, error) {
	key, err := x509.ParsePKIXPublicKey(k.Public)
	if err != nil {
		return nil, fmt.Errorf("key %d for tokens of tasks: %w", k.Number, err)
	}
	public, ok := key.(*rsa.PublicKey)
	if !ok || public.N.BitLen() != TaskKeyBits {
		return nil, fmt.Errorf("key %d for tokens of tasks is not an RSA key of %d bits", k.Number, TaskKeyBits)
	}
	return public, nil
}

// TaskKeys are the keys for tokens of tasks in the order of their numbers, each of which signs until the next one does.
type TaskKeys []TaskKey

// Latest returns the newest key, which may not sign yet, or the zero value.
func (c TaskKeys) Latest() TaskKey {
	if len(c) == 0 {
		return TaskKey{}
	}
	return c[len(c)-1]
}

// Published returns the keys that may have signed a token which is valid at a time in Unix milliseconds, or will sign one later.
func (c TaskKeys) Published(now int64) TaskKeys {
	for i := range c {
		if i+1 == len(c) || now < c[i+1].Signs+TaskTokenTime.Milliseconds() {
			return c[i:]
		}
	}
	return nil
}
