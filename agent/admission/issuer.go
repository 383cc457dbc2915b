package admission

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/identity"
)

// Ring opens and seals what the state keeps; *keyring.Ring implements it.
type Ring interface {
	Seal(aad, plaintext []byte) ([]byte, error)
	Open(aad, sealed []byte) ([]byte, error)
}

// ErrSealed is the error of a voter that cannot open the CA's key.
var ErrSealed = errors.New("this agent cannot sign certificates: it has not got the keys of the mesh")

// authority returns the mesh's CA with its key. While the CA is replaced, the key of the next one follows its own.
func authority(ring Ring, mesh string, ca, sealed []byte) (*identity.Authority, error) {
	if len(sealed) == 0 {
		return nil, ErrSealed
	}
	key, err := ring.Open(keyring.PurposeCA(mesh), sealed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return identity.LoadAuthority(key[:min(len(key), ed25519.SeedSize)], ca)
}

// issue signs the certificates of an agent as the mesh has it on record. api is the request for browsers, or empty. names are what the
// agent calls its API.
func issue(ring Ring, mesh *table.MeshIdentity, bundle identity.Bundle, who roster.Identity, csr, api []byte, names []string,
	now time.Time, lifetime time.Duration) (*identity.Admission, error) {
	ca, err := authority(ring, mesh.Mesh, mesh.CAs[0], mesh.SealedCA)
	if err != nil {
		return nil, err
	}
	s := identity.Subject{Mesh: mesh.Mesh, Role: identity.Role(who.Role), ID: who.Agent, Names: slices.Clone(who.Names)}
	for _, n := range names {
		if _, err := netip.ParseAddr(n); who.Role == roster.Voter && (err == nil || model.IsHostName(n)) {
			s.Names = append(s.Names, n)
		}
	}
	out := &identity.Admission{Mesh: mesh.Mesh, Role: s.Role, Zone: who.Zone, API: who.API || who.Role == roster.Voter,
		CAs: bundle.CAs, CAVersion: bundle.Version, Bridges: bundle.Bridges}
	if who.Role == roster.Voter {
		out.SealedCA = mesh.SealedCA
	}
	out.Certificates, err = ca.Issue(s, csr, api, now, lifetime)
	return out, err
}
