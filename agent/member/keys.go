package member

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/duty/keys"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// putTimeout bounds the writing of keys into another agent's keyring, which waits for its disk.
const putTimeout = 5 * time.Second

// keys returns the duty that keeps the mesh's keys on its voters.
func (m *Member) keys() *keys.Controller {
	return keys.New(keys.Config{
		Machine: m.Machine, Propose: m.Propose, Box: m.Box, Ring: m.cfg.Keyring, ID: m.cfg.ID, Logger: m.cfg.Logger,
		Members: func() (out []keys.Member) {
			for _, s := range m.Group.Servers() {
				out = append(out, keys.Member{ID: s.ID, Voter: s.Voter})
			}
			return out
		},
		Ask: func(ctx context.Context, id string) (keys.Status, error) {
			addr, err := PeerAddr(m.cfg.Mesh, id)
			if err != nil {
				return keys.Status{}, err
			}
			st, err := askStatus(ctx, m.cfg.Peers, addr, "")
			return keyStatus(st), err
		},
		CA: authorities{}, Issues: m.cfg.Leader.Issuer != "", Put: m.putKeys, Retire: m.retireKeys, HandOver: m.Group.Transfer,
	})
}

// authorities makes CAs.
type authorities struct{}

func (authorities) New() (cert, key []byte, err error) {
	a, err := identity.NewAuthority()
	if err != nil {
		return nil, nil, err
	}
	return a.Certificate(), a.Key(), nil
}

func (authorities) Bridge(oldCert, oldKey, cert, key []byte, until time.Time) ([]byte, error) {
	old, err := identity.LoadAuthority(oldKey, oldCert)
	if err != nil {
		return nil, err
	}
	next, err := identity.LoadAuthority(key, cert)
	if err != nil {
		return nil, err
	}
	return old.Bridge(next, time.Now(), until)
}

// keyStatus returns what an agent's status says about its keyring.
func keyStatus(st *pb.StatusResponse) keys.Status {
	out := keys.Status{FeatureLevel: st.GetFeatureLevel(), Prints: map[uint32][]byte{}}
	for _, k := range st.GetKeys() {
		out.Prints[k.Number] = k.Print
	}
	if e := st.GetExported(); e != nil {
		out.Exported = keyring.Exported{Number: e.Number, Print: e.Print, At: time.UnixMilli(st.ExportedMs)}
	}
	return out
}

// putKeys writes keys into the keyring of another agent.
func (m *Member) putKeys(ctx context.Context, id string, set keyring.Set) error {
	c, err := m.peer(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	r := &pb.KeyringPutRequest{Active: set.Active, PublicHalf: m.cfg.Keyring.PublicHalf()}
	for _, k := range set.Keys {
		r.Keys = append(r.Keys, &pb.MeshKey{Number: k.Number, Secret: k.Secret[:]})
	}
	_, err = c.KeyringPut(ctx, r)
	return err
}

// KeyringPut writes the keys of the mesh into this agent's keyring. It is for the leader, if this agent knows one: an agent that
// is about to become a member knows none yet. A key whose fingerprint is in this agent's state stays, and so does the one that opens the
// key of the mesh's CA, which the state may have before it has fingerprints.
func (s Server) KeyringPut(ctx context.Context, r *pb.KeyringPutRequest) (*pb.KeyringPutResponse, error) {
	cfg := &s.Supervisor.cfg
	m := s.Supervisor.Member()
	switch {
	case !cfg.Eligible:
		return nil, status.Error(codes.FailedPrecondition, "this agent is not eligible as a voter, and keeps no keys of the mesh")
	case m == nil:
		return nil, status.Error(codes.Unavailable, "this agent's Raft member is not running")
	}
	leader, _ := m.Group.Leader()
	if caller, ok := wire.CallerID(ctx); ok && leader != "" && caller != leader {
		return nil, status.Error(codes.PermissionDenied, "only the leader may write into the keyring")
	}
	if len(r.Retired) > 0 {
		done, err := m.eraseKeys(r.Active, r.Retired, r.Index)
		if err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
		return &pb.KeyringPutResponse{Pending: !done}, nil
	}
	set := keyring.Set{Active: r.Active}
	v := m.Machine.View()
	named := v.MeshKeys()
	for _, k := range r.Keys {
		if len(k.Secret) != keyring.Size {
			return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("key %d has %d bytes", k.Number, len(k.Secret)))
		}
		key := keyring.Key{Number: k.Number, Secret: [keyring.Size]byte(k.Secret)}
		if want, ok := named[k.Number]; ok && !bytes.Equal(want, key.Print()) {
			return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("key %d is not the one that this mesh uses", k.Number))
		}
		if !opensCA(v.MeshIdentity(), key) {
			return nil, status.Error(codes.FailedPrecondition, fmt.Sprintf("key %d does not open the key of the mesh's CA, which is "+
				"encrypted with key %[1]d: restore the leader's keyring from a backup (docs/operations.md)", k.Number))
		}
		set.Keys = append(set.Keys, key)
	}
	err := cfg.Keyring.Adopt(r.PublicHalf)
	if err == nil {
		err = cfg.Keyring.Put(set)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	cfg.Logger.Info("this agent has got the keys of the mesh", "active", r.Active, "keys", len(r.Keys))
	return &pb.KeyringPutResponse{}, nil
}

// opensCA reports whether a key opens the key of a mesh's CA, if that is encrypted with a key of this number.
func opensCA(mesh *table.MeshIdentity, k keyring.Key) bool {
	if mesh == nil {
		return true
	}
	if n, err := keyring.NumberOf(mesh.SealedCA); err != nil || n != k.Number {
		return true
	}
	_, err := keyring.NewCipher(k).Open(keyring.PurposeCA(mesh.Mesh), mesh.SealedCA)
	return err == nil
}

// retireKeys erases keys from the keyring of an agent, which may be this one.
func (m *Member) retireKeys(ctx context.Context, id string, active uint32, numbers []uint32, index uint64) (done bool, err error) {
	if id == m.cfg.ID {
		return m.eraseKeys(active, numbers, index)
	}
	c, err := m.peer(id)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	answer, err := c.KeyringPut(ctx, &pb.KeyringPutRequest{Active: active, Retired: numbers, Index: index})
	return err == nil && !answer.Pending, err
}

// eraseKeys erases keys from this agent's keyring, once neither its log nor its snapshots have anything from before an index, and no
// content of a plugin resource needs them. Until then it has them replaced, and returns false. It fails if this agent's state needs one
// of the keys.
func (m *Member) eraseKeys(active uint32, numbers []uint32, index uint64) (done bool, err error) {
	v := m.Machine.View()
	if v.Index() < index {
		return false, nil
	}
	for _, n := range numbers {
		if keys.Needs(v, n) {
			return false, fmt.Errorf("key %d encrypts something in this agent's state", n)
		}
	}
	oldest, err := m.oldest()
	if err != nil {
		return false, err
	}
	if oldest < index {
		select {
		case m.resealed <- struct{}{}:
		default:
		}
		return false, nil
	}
	if err := m.cfg.Keyring.Drop(active); err != nil { // erases none: what is encrypted from now on needs none of the others
		return false, err
	}
	if m.cfg.ResourcesFollowed != nil {
		if done, err := m.cfg.ResourcesFollowed(); err != nil || !done {
			return false, err
		}
	}
	if err := m.cfg.Keyring.Drop(active, numbers...); err != nil {
		return false, err
	}
	m.cfg.Logger.Info("old keys of the mesh were erased", "keys", numbers, "active", active)
	return true, nil
}
