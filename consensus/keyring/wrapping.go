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
var ErrAway = fmt.Errorf("%w: what decrypts its local key does not answer", ErrLocked)

// maxWrapped bounds a wrapped key, in bytes.
const maxWrapped = 64 << 10

// wrapping is the guard of the kinds transit and program. It has the local key once that was made or decrypted.
type wrapping struct {
	kind    string
	wrapper Wrapper
	wrapped string // "": there is none yet
	local   Key
}

// ready makes a local key, and has it encrypted and decrypted: this agent needs the right to both.
func (w *wrapping) ready() error {
	if w.wrapped != "" {
		return nil
	}
	if w.wrapper == nil {
		return w.unset()
	}
	local := NewKey(1)
	wrapped, err := w.wrapper.Wrap(local.Secret[:])
	if err != nil {
		return locked("encrypt the local key", err)
	}
	if !isWord(wrapped) {
		return fmt.Errorf("encrypt the local key: %w: the answer has %d bytes and is no word", ErrLocked, len(wrapped))
	}
	again, err := w.unwrap(wrapped)
	if err != nil {
		return err
	}
	if !again.Same(local) {
		return fmt.Errorf("%w: the answer is another key than the one that was encrypted", ErrLocked)
	}
	w.wrapped, w.local = wrapped, local
	return nil
}

// unset returns the error of a kind without its settings.
func (w *wrapping) unset() error { return fmt.Errorf("the kind %s needs keyring.%[1]s", w.kind) }

// locked returns an error of a wrapper as one of the keyring.
func locked(what string, err error) error {
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrLocked, err)
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

func (w *wrapping) unwrap(wrapped string) (Key, error) {
	if w.wrapper == nil {
		return Key{}, w.unset()
	}
	secret, err := w.wrapper.Unwrap(wrapped)
	if err != nil {
		return Key{}, locked("decrypt the local key", err)
	}
	if len(secret) != Size {
		return Key{}, fmt.Errorf("decrypt the local key: %w: the answer has %d bytes instead of %d", ErrLocked, len(secret), Size)
	}
	return Key{Number: 1, Secret: [Size]byte(secret)}, nil
}

// purpose is what a keyring with a wrapped local key is bound to.
func (w *wrapping) purpose() []byte { return Bind("keyring", w.kind, w.wrapped) }

func (w *wrapping) seal(s Set) ([]byte, error) {
	if err := w.ready(); err != nil {
		return nil, err
	}
	return append([]byte(w.wrapped+"\n"), sealLine(w.local, w.purpose(), s)...), nil
}

func (w *wrapping) open(lines []byte) (Set, error) {
	wrapped, rest, ok := bytes.Cut(lines, []byte("\n"))
	if !ok || !isWord(string(wrapped)) {
		return Set{}, fmt.Errorf("%w: its second line has no wrapped key", ErrDamaged)
	}
	if w.wrapped != string(wrapped) {
		local, err := w.unwrap(string(wrapped))
		if err != nil {
			return Set{}, err
		}
		w.wrapped, w.local = string(wrapped), local
	}
	return openLine(w.local, w.purpose(), rest)
}
