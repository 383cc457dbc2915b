package keyring

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"filippo.io/age/armor"
)

var (
	// ErrNotForUs means that a backup of a keyring was encrypted for somebody else.
	ErrNotForUs = errors.New("it cannot be decrypted with this identity or passphrase")
	// ErrNoBackup means that data is no backup of a keyring, or a part of one, or was altered.
	ErrNoBackup = errors.New("it is no whole backup of a keyring")
)

// Export writes a backup of a keyring, encrypted with age: whoever has the identity of one of the recipients can read it, with Import or
// with age itself. The content is that of a keyring's file of the kind file.
func Export(to io.Writer, s Set, recipients ...age.Recipient) error {
	text := armor.NewWriter(to)
	w, err := age.Encrypt(text, recipients...)
	if err != nil {
		return err
	}
	if _, err := w.Write(encode(s)); err != nil {
		return err
	}
	return errors.Join(w.Close(), text.Close())
}

// Import returns the keys in a backup that Export wrote. It checks the whole of it. It fails with ErrNotForUs if no identity fits,
// and with ErrNoBackup for everything else. The errors never have a part of the content.
func Import(from io.Reader, identities ...age.Identity) (Set, error) {
	in := bufio.NewReader(io.LimitReader(from, 2*maxFile)) // armor makes it larger
	var source io.Reader = in
	if head, _ := in.Peek(len(armor.Header)); string(head) == armor.Header {
		source = armor.NewReader(in)
	}
	plain, err := age.Decrypt(source, identities...)
	if other := (*age.NoIdentityMatchError)(nil); errors.As(err, &other) {
		return Set{}, ErrNotForUs
	}
	if err != nil { // which may have a part of the file
		return Set{}, fmt.Errorf("%w: it was not encrypted with age, or was cut or altered", ErrNoBackup)
	}
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.LimitReader(plain, maxFile+1)); err != nil {
		return Set{}, fmt.Errorf("%w: it was cut or altered", ErrNoBackup)
	}
	s, err := decode(data.Bytes())
	switch {
	case err != nil:
		return Set{}, fmt.Errorf("%w: what is encrypted in it is something else", ErrNoBackup)
	case len(s.Keys) == 0:
		return Set{}, fmt.Errorf("%w: it has no keys", ErrNoBackup)
	}
	if rest, err := io.Copy(io.Discard, source); err != nil || rest > 0 {
		return Set{}, fmt.Errorf("%w: something follows its end", ErrNoBackup)
	}
	return s, nil
}

// ActiveKey returns the active key. ok is false for an empty set.
func (s Set) ActiveKey() (k Key, ok bool) { return s.find(s.Active) }

// Join returns a set with the keys of both. Its active key is the newer one of theirs. It reports false if a number has another key in
// each of them: they are of different meshes then.
func (s Set) Join(other Set) (Set, bool) {
	for _, k := range other.Keys {
		if have, ok := s.find(k.Number); ok && !have.Same(k) {
			return Set{}, false
		}
	}
	out := s.with(other)
	out.Active = max(s.Active, other.Active)
	return out, true
}

// Contains reports whether the set has all keys of another one.
func (s Set) Contains(other Set) bool {
	for _, k := range other.Keys {
		if have, ok := s.find(k.Number); !ok || !have.Same(k) {
			return false
		}
	}
	return true
}
