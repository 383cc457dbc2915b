package keyring

import (
	"bytes"
	"errors"
	"slices"
)

// GossipKeySize is the size of a key of gossip in bytes.
const GossipKeySize = 32

// JoinGossip returns keys of gossip as one value, which Seal takes for PurposeGossip. The first key encrypts, all decrypt.
func JoinGossip(keys [][]byte) []byte { return bytes.Join(keys, nil) }

// SplitGossip is the inverse of JoinGossip.
func SplitGossip(value []byte) ([][]byte, error) {
	if len(value) == 0 || len(value)%GossipKeySize != 0 {
		return nil, errors.New("keyring: the keys of gossip are not whole")
	}
	return slices.Collect(slices.Chunk(value, GossipKeySize)), nil
}
