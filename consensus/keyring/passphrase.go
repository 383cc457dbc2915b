package keyring

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/argon2"
)

var (
	// ErrSealed means that a keyring is locked until Unlock is called with its passphrase.
	ErrSealed = fmt.Errorf("%w: it is locked with a passphrase", ErrLocked)
	// ErrPassphrase means that a passphrase is not that of the keyring.
	ErrPassphrase = errors.New("the passphrase is wrong")
	// ErrNoPassphrase means that nothing can be encrypted, as no passphrase was set.
	ErrNoPassphrase = errors.New("no passphrase is set for this agent's keyring: stop the agent, run coopr-agent keyring passphrase, " +
		"and start it again")
)

// MinPassphrase and MaxPassphrase bound a passphrase, in bytes.
const (
	MinPassphrase = 12
	MaxPassphrase = 1024
)

// cost has the parameters of argon2id.
type cost struct {
	passes, memory uint32 // memory is in KiB
	lanes          uint8
}

// usual is the cost of new passphrases: 64 MiB and some tenths of a second.
var usual = cost{passes: 3, memory: 64 << 10, lanes: 4}

// possible reports whether a file may have these parameters.
func (c cost) possible() bool {
	return c.passes >= 1 && c.passes <= 64 && c.lanes >= 1 && c.lanes <= 64 && c.memory >= 8*uint32(c.lanes) && c.memory <= 4<<20
}

// saltSize is the size of the salt of a passphrase, in bytes.
const saltSize = 16

// head is the public half of a passphrase: what it takes to derive the private half, and the key to which a keyring is encrypted.
// It suffices to encrypt, without the passphrase.
type head struct {
	cost
	salt, public []byte
}

// The parts of HPKE (RFC 9180) that encrypt to a head.
var (
	kem  = hpke.DHKEM(ecdh.X25519())
	kdf  = hpke.HKDFSHA256()
	aead = hpke.AES256GCM()
)

// derive returns the private half of a passphrase.
func (h head) derive(phrase []byte) (hpke.PrivateKey, error) {
	return kem.DeriveKeyPair(argon2.IDKey(phrase, h.salt, h.passes, h.memory, h.lanes, Size))
}

// newHead returns the halves of a new passphrase.
func newHead(phrase []byte, c cost) (head, hpke.PrivateKey, error) {
	if len(phrase) < MinPassphrase || len(phrase) > MaxPassphrase {
		return head{}, nil, fmt.Errorf("the passphrase has %d bytes, and needs %d to %d", len(phrase), MinPassphrase, MaxPassphrase)
	}
	h := head{cost: c, salt: make([]byte, saltSize)}
	rand.Read(h.salt) // never fails
	key, err := h.derive(phrase)
	if err != nil {
		return head{}, nil, err
	}
	h.public = key.PublicKey().Bytes()
	return h, key, nil
}

// text returns the head as a line without its end.
func (h head) text() string {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("argon2id %d %d %d %s %s", h.passes, h.memory, h.lanes, b64(h.salt), b64(h.public))
}

// parseHead returns the head in a line without its end. It accepts only what text returns.
func parseHead(text string) (head, error) {
	words := strings.Split(text, " ")
	damaged := fmt.Errorf("%w: its line about the passphrase is not whole", ErrDamaged)
	if len(words) != 6 {
		return head{}, damaged
	}
	var numbers [3]uint64
	var errs [5]error
	for i := range numbers {
		numbers[i], errs[i] = strconv.ParseUint(words[i+1], 10, 32)
	}
	h := head{cost: cost{passes: uint32(numbers[0]), memory: uint32(numbers[1]), lanes: uint8(min(numbers[2], 255))}}
	h.salt, errs[3] = base64.StdEncoding.Strict().DecodeString(words[4])
	h.public, errs[4] = base64.StdEncoding.Strict().DecodeString(words[5])
	switch {
	case errors.Join(errs[:]...) != nil || len(h.salt) != saltSize || h.text() != text:
		return head{}, damaged
	case !h.possible():
		return head{}, fmt.Errorf("%w: its parameters of argon2id are out of bounds", ErrDamaged)
	}
	if _, err := kem.NewPublicKey(h.public); err != nil {
		return head{}, damaged
	}
	return h, nil
}

// purpose is what a keyring with this head is bound to.
func (h head) purpose() []byte { return Bind("keyring", KindPassphrase, h.text()) }

// Passphrase is the store of the kind passphrase: the keyring's file is encrypted to the public half of a passphrase. The file has that
// half, so that keys can be saved without the passphrase, and are loaded only after Unlock. It is safe for concurrent use.
type Passphrase struct {
	dirStore
	cost cost // of new passphrases

	mu     sync.Mutex
	own    *phrase
	opened bool
	wrong  int
}

// phrase is the guard of the kind passphrase.
type phrase struct {
	head *head
	key  hpke.PrivateKey // nil while it is locked
}

func (p *phrase) ready() error { return nil } // a newcomer gets the head from the leader

func (p *phrase) seal(s Set) ([]byte, error) {
	if p.head == nil {
		return nil, ErrNoPassphrase
	}
	lines := []byte(p.head.text() + "\n")
	if len(s.Keys) == 0 {
		return lines, nil // there is nothing to lock
	}
	to, err := kem.NewPublicKey(p.head.public)
	if err != nil {
		return nil, err
	}
	sealed, err := hpke.Seal(to, kdf, aead, p.head.purpose(), encode(s))
	if err != nil {
		return nil, err
	}
	return append(lines, line(sealed)...), nil
}

func (p *phrase) open(lines []byte) (Set, error) {
	text, rest, _ := bytes.Cut(lines, []byte("\n"))
	h, err := parseHead(string(text))
	if err != nil {
		return Set{}, err
	}
	p.head = &h
	if len(rest) == 0 {
		return Set{}, nil
	}
	sealed, err := unline(rest)
	if err != nil {
		return Set{}, err
	}
	if p.key == nil {
		return Set{}, ErrSealed
	}
	plain, err := hpke.Open(p.key, kdf, aead, h.purpose(), sealed)
	if err != nil {
		return Set{}, fmt.Errorf("%w: the passphrase fits, and what it locks was altered", ErrDamaged)
	}
	return decode(plain)
}

// WithPassphrase returns the store of the kind passphrase in a folder; see InDir.
func WithPassphrase(dir string) *Passphrase {
	own := &phrase{}
	return &Passphrase{dirStore: dirStore{dir: dir, kind: KindPassphrase, guard: own}, cost: usual, own: own}
}

// Load reads the file. It fails with ErrSealed before Unlock, unless the keyring is empty.
func (p *Passphrase) Load() (Set, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dirStore.Load()
}

// Save replaces the file. It fails with ErrNoPassphrase if none was set.
func (p *Passphrase) Save(s Set) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dirStore.Save(s)
}

// Unlock has Load decrypt the file with a passphrase. It fails with ErrPassphrase. It takes 64 MiB and some tenths of a second, one call
// at a time.
func (p *Passphrase) Unlock(passphrase []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.dirStore.Load(); err != nil && !errors.Is(err, ErrSealed) {
		return err
	}
	if p.own.head == nil {
		return ErrNoPassphrase
	}
	if len(passphrase) > MaxPassphrase {
		p.wrong++
		return ErrPassphrase
	}
	key, err := p.own.head.derive(passphrase)
	if err != nil {
		return err
	}
	if !bytes.Equal(key.PublicKey().Bytes(), p.own.head.public) {
		p.wrong++
		return ErrPassphrase
	}
	p.own.key, p.opened = key, true
	return nil
}

// Unlocks reports whether Unlock has got the passphrase, and returns how often it got a wrong one.
func (p *Passphrase) Unlocks() (opened bool, wrong int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened, p.wrong
}

// Change makes another passphrase that of the keyring, from the next Save on.
func (p *Passphrase) Change(passphrase []byte) error {
	h, key, err := newHead(passphrase, p.cost)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own.head, p.own.key = &h, key
	return nil
}

// PublicHalf returns the public half of the passphrase, or "" if none was set. It is not secret.
func (p *Passphrase) PublicHalf() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own.head == nil {
		return ""
	}
	return p.own.head.text()
}

// Adopt makes the passphrase with a public half that of a keyring that has none: what PublicHalf has returned on another agent. The next
// Save uses it.
func (p *Passphrase) Adopt(half string) error {
	h, err := parseHead(half)
	if err != nil {
		return errors.New("the public half of the passphrase is not whole")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own.head == nil {
		p.own.head = &h
	}
	return nil
}

// PublicHalf returns the public half of the passphrase of a keyring of the kind passphrase, or "". It is not secret.
func (r *Ring) PublicHalf() string {
	if p, ok := r.store.(*Passphrase); ok {
		return p.PublicHalf()
	}
	return ""
}

// Adopt makes the passphrase of another agent's keyring, whose public half is given, that of this keyring if it is of the kind passphrase
// and has none yet.
func (r *Ring) Adopt(half string) error {
	if p, ok := r.store.(*Passphrase); ok && half != "" {
		return p.Adopt(half)
	}
	return nil
}
