package keyring

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

var (
	// ErrNoKey means that a keyring does not have the key that is needed.
	ErrNoKey = errors.New("the keyring does not have the key")
	// ErrNotSealed means that data was not encrypted with this key for this place, or was altered since.
	ErrNotSealed = errors.New("the data was not encrypted with this key for this place, or was altered")
	// ErrForged means that an authentication code was not made with this key for this data.
	ErrForged = errors.New("the authentication code was not made with this key for this data")
)

// Size is the length of a key in bytes.
const Size = 32

// Key is a numbered key. Its printed forms have the number only.
type Key struct {
	Number uint32 // from 1
	Secret [Size]byte
}

// NewKey returns a random key with a number.
func NewKey(number uint32) Key {
	k := Key{Number: number}
	rand.Read(k.Secret[:]) // never fails
	return k
}

func (k Key) String() string { return fmt.Sprintf("key %d", k.Number) }

// GoString returns the same as String.
func (k Key) GoString() string { return k.String() }

// Print returns the fingerprint of the key: 16 bytes by which keys with the same number are told apart, and
// from which nobody learns the key.
func (k Key) Print() []byte {
	h := hmac.New(sha256.New, k.Secret[:])
	h.Write([]byte("coopr key fingerprint"))
	return h.Sum(nil)[:16]
}

// Same reports whether both keys have the same number and secret.
func (k Key) Same(other Key) bool {
	return k.Number == other.Number && bytes.Equal(k.Print(), other.Print())
}

// mac returns the authentication code of data for a purpose, under a key that is derived for it.
func (k Key) mac(purpose string, data []byte) []byte {
	derive := hmac.New(sha256.New, k.Secret[:])
	derive.Write(Bind("coopr mac", purpose))
	h := hmac.New(sha256.New, derive.Sum(nil))
	h.Write(data)
	return h.Sum(nil)
}

// For returns the key of a purpose, with the same number. Nobody learns this key from it, nor that of another purpose.
func (k Key) For(purpose string) Key {
	secret, err := hkdf.Key(sha256.New, k.Secret[:], nil, string(Bind("coopr key", purpose)), Size)
	if err != nil {
		panic(err) // only for a longer key
	}
	copy(k.Secret[:], secret)
	return k
}

// numberSize is the length of a key's number at the beginning of encrypted data, in bytes.
const numberSize = 4

// Cipher encrypts with one key. It is safe for concurrent use.
type Cipher struct {
	number uint32
	aead   cipher.AEAD
}

// NewCipher returns the cipher of a key.
func NewCipher(k Key) *Cipher {
	block, err := aes.NewCipher(k.Secret[:])
	if err != nil {
		panic(err) // only for a key of another size
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for a cipher of another block size
	}
	return &Cipher{number: k.Number, aead: aead}
}

// Seal encrypts a plaintext and binds it to additional data. The result begins with the key's number, a nonce
// follows, then the ciphertext.
func (c *Cipher) Seal(aad, plaintext []byte) []byte {
	out := make([]byte, numberSize, numberSize+len(plaintext)+c.aead.Overhead())
	binary.BigEndian.PutUint32(out, c.number)
	return c.aead.Seal(out, nil, plaintext, aad)
}

// Open returns the plaintext of what Seal returned for the same additional data. It fails with ErrNoKey for
// another key's number and with ErrNotSealed for everything else.
func (c *Cipher) Open(aad, sealed []byte) ([]byte, error) {
	number, err := NumberOf(sealed)
	if err != nil {
		return nil, err
	}
	if number != c.number {
		return nil, fmt.Errorf("%w: it is encrypted with key %d, and this is key %d", ErrNoKey, number, c.number)
	}
	out, err := c.aead.Open(nil, nil, sealed[numberSize:], aad)
	if err != nil {
		return nil, ErrNotSealed
	}
	return out, nil
}

// NumberOf returns the number of the key with which data is encrypted.
func NumberOf(sealed []byte) (uint32, error) {
	if len(sealed) < numberSize {
		return 0, fmt.Errorf("%w: it has %d bytes", ErrNotSealed, len(sealed))
	}
	return binary.BigEndian.Uint32(sealed), nil
}

// PurposeCA returns the additional data of the encrypted key of a mesh's CA.
func PurposeCA(mesh string) []byte { return Bind("ca", mesh) }

// PurposeGossip returns the additional data of the encrypted key of a mesh's gossip.
func PurposeGossip(mesh string) []byte { return Bind("gossip", mesh) }

// Bind returns additional data that consists of parts. Other parts never have the same.
func Bind(parts ...string) []byte {
	var out []byte
	for _, p := range parts {
		out = binary.AppendUvarint(out, uint64(len(p)))
		out = append(out, p...)
	}
	return out
}
