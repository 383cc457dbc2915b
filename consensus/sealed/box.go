// Package sealed encrypts values for the state, and decrypts them where they are used. It stands between the
// state, which has the encrypted values and data keys, and the keyring of a voter.
package sealed

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Box encrypts and decrypts with the keyring of a voter. It is safe for concurrent use.
type Box struct {
	machine *state.Machine
	propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	ring    *keyring.Ring

	making *semaphore.Weighted // of a new data key
	mu     sync.Mutex
	// ciphers are those of data keys, by their encrypted form. Values would otherwise need two decryptions.
	ciphers map[string]*keyring.Cipher
}

// maxCiphers bounds the data keys in memory. There is one for each tenant.
const maxCiphers = 4096

// NewBox returns the box of a voter. propose commits new data keys.
func NewBox(m *state.Machine, propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error), r *keyring.Ring) *Box {
	return &Box{machine: m, propose: propose, ring: r, making: semaphore.NewWeighted(1), ciphers: map[string]*keyring.Cipher{}}
}

// NewID returns the id of a new value. Ids are not used again.
func NewID() string { return strings.ToLower(rand.Text()) }

// place returns the additional data of a value: the place where it belongs.
func place(mesh, tenant, id string, version uint32) []byte {
	return keyring.Bind("value", mesh, tenant, id, strconv.FormatUint(uint64(version), 10))
}

// Seal encrypts a version of a value of a tenant, or of the mesh if tenant is "". The caller proposes it. Seal fails with
// problem.NoMajority as long as no majority of the voters has the mesh's keys. Leader only.
func (b *Box) Seal(ctx context.Context, tenant, id string, version uint32, value []byte) (*pb.SealedValue, error) {
	c, err := b.dataKey(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("encrypt a value: %w", err)
	}
	aad := place(b.machine.View().Mesh(), tenant, id, version)
	return &pb.SealedValue{Id: id, Version: version, Sealed: c.Seal(aad, value)}, nil
}

// Open decrypts a value of a view.
func (b *Box) Open(v view.SealedView, r table.SealedRow) ([]byte, error) {
	out, err := b.open(v, r)
	if err != nil {
		return nil, fmt.Errorf("decrypt a value: %w", err) // users see this: it must not say how documents refer to the value
	}
	return out, nil
}

func (b *Box) open(v view.SealedView, r table.SealedRow) ([]byte, error) {
	number, err := keyring.NumberOf(r.Sealed)
	if err != nil {
		return nil, err
	}
	k, ok := v.DataKeyOf(r.Tenant, number)
	if !ok {
		return nil, fmt.Errorf("there is no data key %d", number)
	}
	c, err := b.cipher(v.Mesh(), k)
	if err != nil {
		return nil, err
	}
	return c.Open(place(v.Mesh(), r.Tenant, r.ID, r.Version), r.Sealed)
}

// dataKey returns the cipher of a tenant's latest data key. It makes the first one.
func (b *Box) dataKey(ctx context.Context, tenant string) (*keyring.Cipher, error) {
	v := b.machine.View()
	if k, ok := v.DataKey(tenant); ok {
		return b.cipher(v.Mesh(), k)
	}
	// A new key takes as long as its commit, so whoever waits for another's can give up.
	if err := b.making.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer b.making.Release(1)
	v = b.machine.View()
	k, ok := v.DataKey(tenant)
	if !ok && tenant != "" {
		if _, ready := v.DataKey(""); !ready {
			return nil, problem.New(problem.NoMajority, "no majority of the voters has the keys of the mesh yet: try again in a moment")
		}
	}
	if !ok {
		if err := b.add(ctx, tenant); err != nil {
			return nil, err
		}
		if k, ok = b.machine.View().DataKey(tenant); !ok {
			return nil, errors.New("the new data key is not in the state")
		}
	}
	return b.cipher(v.Mesh(), k)
}

// makeTries is how often the box adds a data key again, because the mesh key in use was replaced meanwhile.
const makeTries = 3

// add adds a data key of a tenant, which follows the latest one.
func (b *Box) add(ctx context.Context, tenant string) (err error) {
	for range makeTries {
		v := b.machine.View()
		active, ok := v.ActiveMeshKey()
		if !ok {
			active = b.ring.Set().Active
		}
		latest, _ := v.DataKey(tenant)
		var put *pb.PutDataKey
		if put, err = b.wrap(v, tenant, keyring.NewKey(latest.Number+1), active); err != nil {
			return err
		}
		var answers []state.Answer
		answers, err = b.propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_PutDataKey{PutDataKey: put}})
		if err != nil {
			return fmt.Errorf("add a data key: %w", err)
		}
		if err = answers[0].Err; !errors.Is(err, problem.Stale) {
			return err
		}
	}
	return err
}

// wrap encrypts a data key of a tenant with a mesh key.
func (b *Box) wrap(v *state.View, tenant string, k keyring.Key, meshKey uint32) (*pb.PutDataKey, error) {
	key, err := b.ring.Key(meshKey)
	if err != nil {
		return nil, err
	}
	wrapped, err := b.ring.SealWith(meshKey, keyPlace(v.Mesh(), tenant, k.Number), k.Secret[:])
	return &pb.PutDataKey{Tenant: tenant, Number: k.Number, MeshKey: meshKey, MeshPrint: key.Print(), Wrapped: wrapped}, err
}

// MakeMeshKey adds the first data key of the mesh, unless there is one. From then on the state names the active
// key of the keyring. Leader only.
func (b *Box) MakeMeshKey(ctx context.Context) error {
	_, err := b.dataKey(ctx, "")
	return err
}

// keyPlace returns the additional data of an encrypted data key.
func keyPlace(mesh, tenant string, number uint32) []byte {
	return keyring.Bind("data key", mesh, tenant, strconv.FormatUint(uint64(number), 10))
}

// cipher returns the cipher of a data key.
func (b *Box) cipher(mesh string, k table.DataKeyRow) (*keyring.Cipher, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.ciphers[string(k.Wrapped)]; c != nil {
		return c, nil
	}
	key, err := b.unwrap(mesh, k)
	if err != nil {
		return nil, err
	}
	if len(b.ciphers) >= maxCiphers {
		clear(b.ciphers)
	}
	c := keyring.NewCipher(key)
	b.ciphers[string(k.Wrapped)] = c
	return c, nil
}

// unwrap decrypts a data key.
func (b *Box) unwrap(mesh string, k table.DataKeyRow) (keyring.Key, error) {
	if err := Has(b.ring, k.MeshKey, k.MeshPrint); err != nil {
		return keyring.Key{}, err
	}
	secret, err := b.ring.Open(keyPlace(mesh, k.Tenant, k.Number), k.Wrapped)
	if err == nil && len(secret) != keyring.Size {
		err = fmt.Errorf("a data key of %d bytes", len(secret))
	}
	if err != nil {
		return keyring.Key{}, fmt.Errorf("data key %d: %w", k.Number, err)
	}
	return keyring.Key{Number: k.Number, Secret: [keyring.Size]byte(secret)}, nil
}

// Lacks returns the number of a mesh key that a state names and this voter's keyring does not have.
func (b *Box) Lacks(v *state.View) (number uint32, ok bool) {
	for number, print := range v.MeshKeys() {
		if Has(b.ring, number, print) != nil {
			return number, true
		}
	}
	return 0, false
}

// Has returns keyring.ErrNoKey unless a keyring has the mesh key with a number and a fingerprint.
func Has(r *keyring.Ring, number uint32, fingerprint []byte) error {
	k, err := r.Key(number)
	if err != nil {
		return fmt.Errorf("%w: restore this agent's keyring from a backup, or let another voter lead, which sends it", err)
	}
	if !bytes.Equal(k.Print(), fingerprint) {
		return fmt.Errorf("%w: its key %d is another one than this mesh's", keyring.ErrNoKey, number)
	}
	return nil
}
