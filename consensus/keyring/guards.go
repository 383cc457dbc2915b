package keyring

import (
	"bytes"
	"encoding/base64"
	"fmt"
)

// guard protects the content of a keyring's file. Each kind but the kind file has one. It is used by one goroutine at a time.
type guard interface {
	// ready returns an error if nothing could be encrypted. It is called before there is a file.
	ready() error
	// seal returns the lines that follow the first one.
	seal(s Set) ([]byte, error)
	// open returns the keys in what seal has returned. Its errors never have a part of the content.
	open(lines []byte) (Set, error)
}

// sealLine returns the content of a keyring, encrypted with a local key and bound to a purpose, as a line.
func sealLine(local Key, purpose []byte, s Set) []byte {
	return line(NewCipher(local).Seal(purpose, encode(s)))
}

// openLine returns the keys in what sealLine has returned.
func openLine(local Key, purpose, text []byte) (Set, error) {
	sealed, err := unline(text)
	if err != nil {
		return Set{}, err
	}
	plain, err := NewCipher(local).Open(purpose, sealed)
	if err != nil {
		return Set{}, fmt.Errorf("%w: the local key is another one than that with which it was written, or the file is damaged", ErrLocked)
	}
	return decode(plain)
}

// line returns data in base64, as a line.
func line(data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(nil, data), '\n')
}

// unline returns the data of the only line of a text.
func unline(text []byte) ([]byte, error) {
	body, ok := bytes.CutSuffix(text, []byte("\n"))
	data, err := base64.StdEncoding.Strict().DecodeString(string(body))
	if err != nil || !ok || bytes.ContainsAny(body, "\r\n") {
		return nil, fmt.Errorf("%w: its last line is not whole", ErrDamaged)
	}
	return data, nil
}

// credential is the guard of the kind systemd-creds.
type credential struct{ dir string }

func (c credential) ready() error {
	_, err := fromCredential(c.dir)
	return err
}

func (c credential) seal(s Set) ([]byte, error) {
	local, err := fromCredential(c.dir)
	if err != nil {
		return nil, err
	}
	return sealLine(local, Bind("keyring", KindSystemd), s), nil
}

func (c credential) open(lines []byte) (Set, error) {
	local, err := fromCredential(c.dir)
	if err != nil {
		return Set{}, err
	}
	return openLine(local, Bind("keyring", KindSystemd), lines)
}

// unknown is the guard of a kind that there is not.
type unknown struct{ kind string }

func (u unknown) ready() error             { return fmt.Errorf("there is no kind of keyring %q", u.kind) }
func (u unknown) seal(Set) ([]byte, error) { return nil, u.ready() }
func (u unknown) open([]byte) (Set, error) { return Set{}, u.ready() }
