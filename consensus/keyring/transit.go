package keyring

import (
	"bytes"
	"errors"
	"fmt"
)

// Wrapper encrypts and decrypts small secrets somewhere else. Its errors wrap ErrAway if it is worth a later try.
type Wrapper interface {
	// Wrap returns an encrypted secret as a word.
	Wrap(secret []byte) (string, error)
	// Unwrap returns the secret in what Wrap has returned.
	Unwrap(wrapped string) ([]byte, error)
}

// ErrAway means that what decrypts the local key of a keyring does not answer.
var ErrAway = fmt.Errorf("%w: the service that decrypts its local key does not answer", ErrLocked)

// maxWrapped bounds a wrapped key, in bytes.
const maxWrapped = 64 << 10

// transit is the guard of the kind transit. It has the local key once that was made or decrypted.
type transit struct {
	wrapper Wrapper
	wrapped string // "": there is none yet
	local   Key
}

// ready makes a local key, and has it encrypted and decrypted: this agent needs the right to both.
func (t *transit) ready() error {
	if t.wrapped != "" {
		return nil
	}
	if t.wrapper == nil {
		return errors.New("the kind transit needs keyring.transit")
	}
	local := NewKey(1)
	wrapped, err := t.wrapper.Wrap(local.Secret[:])
	if err != nil {
		return fmt.Errorf("encrypt the local key: %w", err)
	}
	if !isWord(wrapped) {
		return fmt.Errorf("encrypt the local key: %w: the service has answered %d bytes that are no word", ErrLocked, len(wrapped))
	}
	again, err := t.unwrap(wrapped)
	if err != nil {
		return err
	}
	if !again.Same(local) {
		return fmt.Errorf("%w: the service returns another key than the one that it has encrypted", ErrLocked)
	}
	t.wrapped, t.local = wrapped, local
	return nil
}

// isWord reports whether a text is a word of printed ASCII characters that fits on a line of a file.
func isWord(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return text != "" && len(text) <= maxWrapped
}

func (t *transit) unwrap(wrapped string) (Key, error) {
	if t.wrapper == nil {
		return Key{}, errors.New("the kind transit needs keyring.transit")
	}
	secret, err := t.wrapper.Unwrap(wrapped)
	if err != nil {
		return Key{}, fmt.Errorf("decrypt the local key: %w", err)
	}
	if len(secret) != Size {
		return Key{}, fmt.Errorf("decrypt the local key: %w: the service has answered %d bytes instead of %d", ErrLocked, len(secret), Size)
	}
	return Key{Number: 1, Secret: [Size]byte(secret)}, nil
}

// purpose is what a keyring with a wrapped local key is bound to.
func (t *transit) purpose() []byte { return Bind("keyring", KindTransit, t.wrapped) }

func (t *transit) seal(s Set) ([]byte, error) {
	if err := t.ready(); err != nil {
		return nil, err
	}
	return append([]byte(t.wrapped+"\n"), sealLine(t.local, t.purpose(), s)...), nil
}

func (t *transit) open(lines []byte) (Set, error) {
	wrapped, rest, ok := bytes.Cut(lines, []byte("\n"))
	if !ok || !isWord(string(wrapped)) {
		return Set{}, fmt.Errorf("%w: its second line has no wrapped key", ErrDamaged)
	}
	if t.wrapped != string(wrapped) {
		local, err := t.unwrap(string(wrapped))
		if err != nil {
			return Set{}, err
		}
		t.wrapped, t.local = string(wrapped), local
	}
	return openLine(t.local, t.purpose(), rest)
}
