package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/internal/durable"
)

// Role is what an agent may be in its mesh. Its certificate names it.
type Role string

// The roles of agents. A voter may hold the replicated state and the mesh's keys; a worker never does.
const (
	Voter  Role = roster.Voter
	Worker Role = roster.Worker
)

func (r Role) valid() bool { return r == Voter || r == Worker }

// membershipFile begins with a line that has membershipHead and the SHA-256 of everything behind it, in hexadecimal.
const (
	membershipFile = "identity"
	membershipHead = "coopr-identity-1 "
)

// Membership is what an agent has of the mesh that it belongs to. The file identity of the data directory keeps it.
type Membership struct {
	// Mesh is the mesh's id. It is empty before the agent is admitted.
	Mesh string `json:"mesh,omitempty"`
	Role Role   `json:"role,omitempty"`
	Zone string `json:"zone,omitempty"`
	// API is true if the agent may serve the API to other machines.
	API bool `json:"api,omitempty"`
	// Key is the seed of the agent's private key, NextKey that of a renewal whose answer has not arrived.
	Key     []byte `json:"key,omitempty"`
	NextKey []byte `json:"next_key,omitempty"`
	// Certificate and APICertificate are in DER, and so are the certificates of the CAs that the agent trusts.
	Certificate    []byte   `json:"certificate,omitempty"`
	APICertificate []byte   `json:"api_certificate,omitempty"`
	Browser        [][]byte `json:"browser,omitempty"` // see Certificates; APICertificate stays for older builds
	CAs            [][]byte `json:"cas,omitempty"`
	// CAVersion grows with each change of the CAs; it is 0 for the CA with which the mesh began. Bridges are certificates (in DER) that lead
	// from earlier CAs to the first one of CAs, which is the one that signs.
	CAVersion uint64   `json:"ca_version,omitempty"`
	Bridges   [][]byte `json:"bridges,omitempty"`
	// Gossip is the key of gossip in use. Ring has all of them once they have changed; GossipRing returns them either way.
	Gossip []byte `json:"gossip,omitempty"`
	Ring   *Ring  `json:"ring,omitempty"`
	// Peers are peer addresses of voters, Seeds gossip addresses of agents, as of the latest answer.
	Peers []string `json:"peers,omitempty"`
	Seeds []string `json:"seeds,omitempty"`
	// Removed are the ids of agents that were removed from the mesh.
	Removed []string `json:"removed,omitempty"`
	// SealedCA is the CA's key as the state has it, for a voter that has to renew its certificate before it knows the state.
	SealedCA []byte `json:"sealed_ca,omitempty"`
	// Birth is what the first agent of a mesh brings into the state. It is nil on others, and after that.
	Birth *Birth `json:"birth,omitempty"`
	// Sealed is what is secret of the membership, as it was read from the disk of a voter: once for each key that opens it. Before Unseal,
	// the membership lacks it.
	Sealed [][]byte `json:"sealed,omitempty"`

	unsealed bool // by Unseal
}

// Unsealed reports whether the disk had the membership encrypted when it was read.
func (m *Membership) Unsealed() bool { return m.unsealed }

// Ring has the keys of gossip.
type Ring struct {
	// Version grows with each change of the keys. It is 0 for the key with which the mesh began.
	Version uint64 `json:"version"`
	// Keys are the keys: the first one encrypts, and all decrypt.
	Keys [][]byte `json:"keys"`
}

// gossipKeySize is the size of a key of gossip in bytes.
const gossipKeySize = 32

// check returns an error for a ring with which no agent can take part in gossip.
func (r *Ring) check() error {
	if len(r.Keys) == 0 || slices.ContainsFunc(r.Keys, func(k []byte) bool { return len(k) != gossipKeySize }) {
		return errors.New("the keys of gossip are not whole")
	}
	return nil
}

// Birth is what the first agent of a mesh writes into the state.
type Birth struct {
	CAKey    []byte      `json:"ca_key"`
	RootHash []byte      `json:"root_hash"` // SHA-256 of the root token
	Tokens   []BornToken `json:"tokens,omitempty"`
}

// BornToken is a join token that was made before the mesh.
type BornToken struct {
	ID      string    `json:"id"`
	Hash    []byte    `json:"hash"`
	Role    Role      `json:"role"`
	Uses    int       `json:"uses"`
	Expires time.Time `json:"expires"`
}

// Found returns the membership of the first agent of a new mesh, and the mesh's root token, which is kept nowhere. The agent
// completes it with Complete.
func Found() (*Membership, string, error) {
	ca, err := NewAuthority()
	if err != nil {
		return nil, "", err
	}
	root := "coopr-root-" + rand.Text()
	hash := sha256.Sum256([]byte(root))
	gossip := make([]byte, gossipKeySize)
	rand.Read(gossip) // never fails
	return &Membership{
		Mesh: newID(), Role: Voter, API: true, CAs: [][]byte{ca.Certificate()}, Gossip: gossip,
		Birth: &Birth{CAKey: ca.Key(), RootHash: hash[:]},
	}, root, nil
}

// Complete returns the membership of the first agent with a key and certificates, which are made on its own machine. names are the
// host names and addresses of its API.
func (m *Membership) Complete(agentID string, names []string, now time.Time, lifetime time.Duration) (*Membership, error) {
	if m.Birth == nil || m.Certificate != nil {
		return m, nil
	}
	ca, err := LoadAuthority(m.Birth.CAKey, m.CAs[0])
	if err != nil {
		return nil, err
	}
	next := *m
	next.Key = newKey()
	request, err := Request(next.Key)
	if err != nil {
		return nil, err
	}
	api, err := APIRequest(next.Key)
	if err != nil {
		return nil, err
	}
	certs, err := ca.Issue(Subject{Mesh: m.Mesh, Role: m.Role, ID: agentID, Names: names}, request, api, now, lifetime)
	next.Certificate, next.APICertificate, next.Browser = certs.Agent, certs.API, certs.Browser
	return &next, err
}

func newKey() []byte {
	key := make([]byte, ed25519.SeedSize)
	rand.Read(key) // never fails
	return key
}

// Request returns a certificate request (PKCS #10, in DER) for a key.
func Request(seed []byte) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, ed25519.NewKeyFromSeed(seed))
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return der, nil
}

// KeyID returns the name of a public key in records: its SHA-256 in hexadecimal.
func KeyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:])
}

// KeyID returns the name of the agent's present public key in records.
func (m *Membership) KeyID() (string, error) {
	if len(m.Key) != ed25519.SeedSize {
		return "", errors.New("identity: the agent has no key yet")
	}
	return KeyID(ed25519.NewKeyFromSeed(m.Key).Public().(ed25519.PublicKey)), nil
}

// NewMembership returns what an agent has before a mesh admits it: a key.
func NewMembership() *Membership { return &Membership{Key: newKey()} }

// LoadMembership returns the membership that a data directory keeps. The error wraps fs.ErrNotExist if there is none.
func LoadMembership(dir string) (*Membership, error) {
	path := filepath.Join(dir, membershipFile)
	m, err := ReadMembership(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w. Restore the file from a backup, or remove data_dir and join with a new token", err)
	}
	return m, err
}

// ReadMembership reads a membership from a file that only its owner may read.
func ReadMembership(path string) (*Membership, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("identity: %s can be read by others (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	m, err := decodeMembership(raw)
	if err != nil {
		return nil, fmt.Errorf("identity: %s: %w", path, err)
	}
	return m, nil
}

// decodeMembership reads a membership. Its errors quote nothing of it.
func decodeMembership(raw []byte) (*Membership, error) {
	head, body, ok := bytes.Cut(raw, []byte("\n"))
	if sum := sha256.Sum256(body); !ok || string(head) != membershipHead+hex.EncodeToString(sum[:]) {
		return nil, errors.New("the file is damaged: its checksum does not match")
	}
	m := &Membership{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, errors.New("the file is of another version of coopr-agent")
	}
	complete := m.Birth == nil || m.Certificate != nil
	if complete && len(m.Sealed) == 0 && !m.hasKeys() {
		return nil, errors.New("the file has no whole key")
	}
	if m.Ring != nil {
		if err := m.Ring.check(); err != nil {
			return nil, err
		}
	}
	if m.Mesh == "" {
		return m, nil
	}
	if !m.Role.valid() || len(m.CAs) == 0 {
		return nil, errors.New("the file has no role, or no CA")
	}
	if complete {
		if _, err := x509.ParseCertificate(m.Certificate); err != nil {
			return nil, errors.New("the agent's certificate is damaged")
		}
	}
	if _, err := m.roots(); err != nil {
		return nil, err
	}
	return m, nil
}

// roots returns the CAs that the agent trusts.
func (m *Membership) roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	for _, der := range m.CAs {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, errors.New("the certificate of a CA is damaged")
		}
		pool.AddCert(cert)
	}
	return pool, nil
}

// Save writes the membership to a data directory. What is secret of it is encrypted for each of the given keys; without one, it is not.
func (m *Membership) Save(dir string, with ...Sealer) error {
	return m.Write(filepath.Join(dir, membershipFile), with...)
}

// Write writes the membership to a file that only its owner may read; see Save.
func (m *Membership) Write(path string, with ...Sealer) error {
	sealed, err := m.seal(with)
	var raw []byte
	if err == nil {
		raw, err = sealed.encode()
	}
	if err == nil {
		err = durable.Replace(path, raw)
	}
	if err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return nil
}

// encode returns the file's content.
func (m *Membership) encode() ([]byte, error) {
	body, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return append([]byte(membershipHead+hex.EncodeToString(sum[:])+"\n"), body...), nil
}

// Bundle returns the certificates of the mesh's CAs in PEM, for clients of the API.
func (m *Membership) Bundle() []byte {
	var out []byte
	for _, der := range m.CAs {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return out
}

// Admission is a voter's answer to an agent that joins or renews its certificates.
type Admission struct {
	Mesh         string
	Role         Role
	Zone         string
	API          bool
	Certificates Certificates
	CAs          [][]byte
	CAVersion    uint64
	Bridges      [][]byte
	Gossip       []byte
	Ring         *Ring // nil: the voter has not answered it
	Peers, Seeds []string
	SealedCA     []byte
}

// with returns the membership after an admission for the key with a seed.
func (m *Membership) with(a *Admission, seed []byte) (*Membership, error) {
	cert, err := x509.ParseCertificate(a.Certificates.Agent)
	if err != nil {
		return nil, errors.New("the voter's answer has no certificate")
	}
	if !ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey).Equal(cert.PublicKey) {
		return nil, errors.New("the voter's answer is for another key")
	}
	next := *m
	next.Mesh, next.Role, next.Zone, next.API = a.Mesh, a.Role, a.Zone, a.API
	next.Key, next.NextKey = seed, nil
	next.Certificate, next.APICertificate, next.Browser = a.Certificates.Agent, a.Certificates.API, a.Certificates.Browser
	next.Trust(Bundle{Version: a.CAVersion, CAs: a.CAs, Bridges: a.Bridges})
	if len(a.Gossip) > 0 {
		next.Gossip = a.Gossip
	}
	if a.Ring != nil {
		if err := next.Follow(*a.Ring); err != nil {
			return nil, fmt.Errorf("the voter's answer: %w", err)
		}
	}
	if len(a.Peers) > 0 {
		next.Peers = a.Peers
	}
	if len(a.Seeds) > 0 {
		next.Seeds = a.Seeds
	}
	if len(a.SealedCA) > 0 {
		next.SealedCA = a.SealedCA
	}
	pool, err := next.roots()
	if err != nil {
		return nil, err
	}
	_, err = cert.Verify(x509.VerifyOptions{
		Roots: pool, CurrentTime: cert.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return nil, fmt.Errorf("the voter's answer: %w", err)
	}
	if err := next.checkBrowser(pool); err != nil {
		return nil, fmt.Errorf("the voter's answer: %w", err)
	}
	return &next, nil
}

// Admit returns the membership of an agent that a mesh has admitted.
func (m *Membership) Admit(a *Admission) (*Membership, error) { return m.with(a, m.Key) }

// Bundle has the CAs of a mesh.
type Bundle struct {
	Version      uint64
	CAs, Bridges [][]byte
}

// Trust takes the CAs of a bundle, unless the agent's own are newer.
func (m *Membership) Trust(b Bundle) {
	if len(b.CAs) > 0 && b.Version >= m.CAVersion {
		m.CAs, m.CAVersion, m.Bridges = b.CAs, b.Version, b.Bridges
	}
}

// GossipRing returns the keys of gossip that the agent has.
func (m *Membership) GossipRing() Ring {
	if m.Ring != nil {
		return *m.Ring
	}
	return Ring{Keys: [][]byte{m.Gossip}}
}

// Follow takes the keys of gossip from a ring, unless the agent's own are as new.
func (m *Membership) Follow(r Ring) error {
	if r.Version <= m.GossipRing().Version {
		return nil
	}
	if err := r.check(); err != nil {
		return err
	}
	m.Ring, m.Gossip = &r, r.Keys[0]
	return nil
}

// hasRemoved reports whether an agent was removed from the mesh.
func (m *Membership) hasRemoved(id string) bool { return slices.Contains(m.Removed, id) }
