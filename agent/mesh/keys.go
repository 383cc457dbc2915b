package mesh

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
)

// loadKeyring returns the keys with which gossip starts: those in the file if it exists, else the given key. Without a key
// it returns nil.
func loadKeyring(path string, key []byte) (*memberlist.Keyring, error) {
	if len(key) == 0 {
		return nil, nil
	}
	if path != "" {
		raw, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("gossip keyring: %w", err)
		default:
			ring, err := decodeKeyring(raw)
			if err != nil {
				return nil, fmt.Errorf("gossip keyring %s: %w: restore it, or delete it to start with the mesh's first key", path, err)
			}
			return ring, nil
		}
	}
	return memberlist.NewKeyring(nil, key)
}

// decodeKeyring reads serf's keyring file: a JSON list of keys in base64, the one in use first.
func decodeKeyring(raw []byte) (*memberlist.Keyring, error) {
	var keys [][]byte
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, errors.New("the file is not a list of keys") // the error of the library could quote a key
	}
	if len(keys) == 0 {
		return nil, errors.New("the file holds no key")
	}
	return memberlist.NewKeyring(keys, keys[0])
}

// Keys has the gossip keys that the agents hold.
type Keys struct {
	Agents int            // alive agents, this one included
	Holds  map[string]int // key in base64 → agents that hold it
	Uses   map[string]int // key in base64 → agents that encrypt with it
	Faults map[string]string
}

// KeyError is returned when a change of keys did not reach every agent. Agents that were reached keep the change. Repeating
// it is safe.
type KeyError struct {
	Answered, Agents int
	Faults           map[string]string // agent id → its error
	Err              error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("gossip keys: %d of %d agents answered, and %d refused; repeat the change when all agents are alive: %v",
		e.Answered, e.Agents, len(e.Faults), e.Err)
}

func (e *KeyError) Unwrap() error { return e.Err }

// Keyring changes the gossip keys of all agents. A rotation is Install(new), Use(new), Remove(old), each only after the
// previous step has succeeded, so that at all times every agent can read what every other sends.
type Keyring struct{ m *Mesh }

// Keyring returns the gossip keys of the mesh.
func (m *Mesh) Keyring() Keyring { return Keyring{m} }

// List asks every agent which keys it holds.
func (k Keyring) List(ctx context.Context) (Keys, error) {
	return k.query(ctx, (*serf.KeyManager).ListKeys)
}

// Install adds a key (16, 24 or 32 bytes) on every agent, for decryption.
func (k Keyring) Install(ctx context.Context, key []byte) error {
	return k.change(ctx, key, (*serf.KeyManager).InstallKey)
}

// Use makes every agent encrypt with a key that was installed before.
func (k Keyring) Use(ctx context.Context, key []byte) error {
	return k.change(ctx, key, (*serf.KeyManager).UseKey)
}

// Remove removes a key from every agent. It fails for the key in use.
func (k Keyring) Remove(ctx context.Context, key []byte) error {
	return k.change(ctx, key, (*serf.KeyManager).RemoveKey)
}

func (k Keyring) change(ctx context.Context, key []byte, change func(*serf.KeyManager, string) (*serf.KeyResponse, error)) error {
	if err := memberlist.ValidateKey(key); err != nil {
		return fmt.Errorf("gossip keys: %w", err)
	}
	_, err := k.query(ctx, func(manager *serf.KeyManager) (*serf.KeyResponse, error) {
		return change(manager, base64.StdEncoding.EncodeToString(key))
	})
	return err
}

func (k Keyring) query(ctx context.Context, query func(*serf.KeyManager) (*serf.KeyResponse, error)) (Keys, error) {
	m := k.m
	if m.keyring == nil {
		return Keys{}, errors.New("gossip keys: gossip is not encrypted in this simulated mesh")
	}
	if err := m.ready(ctx); err != nil {
		return Keys{}, err
	}
	answers := make(chan *serf.KeyResponse, 1)
	err := m.background(ctx, func() error {
		answer, err := query(m.now().serf.KeyManager())
		answers <- answer
		return err
	})
	var answer *serf.KeyResponse
	select {
	case answer = <-answers:
	default:
		return Keys{}, err
	}
	keys := Keys{Agents: answer.NumNodes, Holds: answer.Keys, Uses: answer.PrimaryKeys, Faults: answer.Messages}
	if err != nil {
		return keys, &KeyError{Answered: answer.NumResp, Agents: answer.NumNodes, Faults: answer.Messages, Err: err}
	}
	return keys, nil
}
