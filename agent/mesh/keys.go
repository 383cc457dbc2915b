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

// loadKeyring gives the keys gossip starts with: those in the file if there is one, else the given key. No key: nil.
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
				return nil, fmt.Errorf("gossip keyring %s: %w: restore it, or delete it to start with the key of the join token", path, err)
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
		return nil, errors.New("it is no list of keys") // the library's error could quote a key
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no key")
	}
	return memberlist.NewKeyring(keys, keys[0])
}

// Keys tells which gossip keys the agents hold.
type Keys struct {
	Agents int            // alive agents, this one included
	Holds  map[string]int // key in base64 → agents that hold it
	Uses   map[string]int // key in base64 → agents that encrypt with it
	Faults map[string]string
}

// KeyError says that a change of keys did not reach every agent. The change stands where it arrived; repeating it is
// safe.
type KeyError struct {
	Answered, Agents int
	Faults           map[string]string // agent id → what it said
	Err              error
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("gossip keys: %d of %d agents answered, %d refused: repeat it when all agents are alive: %v",
		e.Answered, e.Agents, len(e.Faults), e.Err)
}

func (e *KeyError) Unwrap() error { return e.Err }

// A rotation is: InstallKey(new) everywhere, UseKey(new), RemoveKey(old); each only after the one before succeeded, so
// that at every moment every agent can read what every other sends.

// ListKeys asks every agent which keys it holds.
func (m *Mesh) ListKeys(ctx context.Context) (Keys, error) {
	return m.keyQuery(ctx, (*serf.KeyManager).ListKeys)
}

// InstallKey gives every agent another key (16, 24 or 32 bytes) to read with.
func (m *Mesh) InstallKey(ctx context.Context, key []byte) error {
	return m.keyChange(ctx, key, (*serf.KeyManager).InstallKey)
}

// UseKey lets every agent write with a key that was installed before.
func (m *Mesh) UseKey(ctx context.Context, key []byte) error {
	return m.keyChange(ctx, key, (*serf.KeyManager).UseKey)
}

// RemoveKey lets every agent forget a key. The one in use is refused.
func (m *Mesh) RemoveKey(ctx context.Context, key []byte) error {
	return m.keyChange(ctx, key, (*serf.KeyManager).RemoveKey)
}

func (m *Mesh) keyChange(ctx context.Context, key []byte, change func(*serf.KeyManager, string) (*serf.KeyResponse, error)) error {
	if err := memberlist.ValidateKey(key); err != nil {
		return fmt.Errorf("gossip keys: %w", err)
	}
	_, err := m.keyQuery(ctx, func(k *serf.KeyManager) (*serf.KeyResponse, error) {
		return change(k, base64.StdEncoding.EncodeToString(key))
	})
	return err
}

func (m *Mesh) keyQuery(ctx context.Context, query func(*serf.KeyManager) (*serf.KeyResponse, error)) (Keys, error) {
	if m.keyring == nil {
		return Keys{}, errors.New("gossip keys: gossip is not encrypted in dev mode")
	}
	if err := m.ready(ctx); err != nil {
		return Keys{}, err
	}
	answers := make(chan *serf.KeyResponse, 1)
	err := m.behind(ctx, func() error {
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
