package table

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/engine/signing"
)

// The tables of data keys and encrypted values, of which tenant "" is the mesh itself, of signing keys, of keys for tokens
// of tasks and of rotations.
const (
	DataKeys    = "datakeys"
	Sealed      = "sealed"
	SigningKeys = "signingkeys"
	TaskKeys    = "taskkeys"
	Rotations   = "rotations"
)

// DataKeyRow is a data key, encrypted with a mesh key. The mesh key is named by its number and its fingerprint.
type DataKeyRow struct {
	Tenant    string
	Number    uint32
	MeshKey   uint32
	MeshPrint []byte
	Wrapped   []byte
}

// SealedRow is a version of an encrypted value.
type SealedRow struct {
	Tenant, ID string
	Version    uint32
	Sealed     []byte // with the number of the tenant's data key
	Created    int64  // in Unix milliseconds
}

// DataKeyNumber returns the number of the data key with which the value is encrypted.
func (r *SealedRow) DataKeyNumber() uint32 { return KeyNumber(r.Sealed) }

// KeyNumber returns the number of the key with which consensus/keyring has encrypted data, or 0.
func KeyNumber(sealed []byte) uint32 {
	if len(sealed) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(sealed)
}

// SigningKeyRow is a key with which the mesh signs. Its private half is the encrypted value PrivateID of the mesh.
type SigningKeyRow struct {
	signing.PublicKey
	Created int64 // in Unix milliseconds
}

// LoginPrefix begins the ids of the mesh's encrypted values that LoginID returns.
const LoginPrefix = "login/"

// LoginID returns the id of the encrypted value of the mesh with which an identity provider is asked about a user: a refresh token. No
// document names it.
func LoginID(tenant, user string) string { return LoginPrefix + tenant + "/" + user }

// PrivateID returns the id of the encrypted value that has the private half of a signing key.
func PrivateID(number uint32) string { return fmt.Sprintf("signing-key-%d", number) }

// TaskKeyRow is a key with which the mesh signs tokens of tasks. Its private half is version 1 of the encrypted value TaskPrivateID of the
// mesh.
type TaskKeyRow struct {
	signing.TaskKey
	Created int64 // in Unix milliseconds
}

// TaskPrivateID returns the id of the encrypted value that has the private half of a key for tokens of tasks.
func TaskPrivateID(number uint32) string { return fmt.Sprintf("task-key-%d", number) }

// sealedTables returns the tables of data keys, encrypted values, signing keys, keys for tokens of tasks and rotations.
func sealedTables() []*memdb.TableSchema {
	keys := index[DataKeyRow]("id", true, nil)
	keys.Indexer = key[DataKeyRow]{
		parts: func(r *DataKeyRow) []string { return []string{r.Tenant} },
		last:  func(r *DataKeyRow) (uint32, bool) { return r.Number, true },
	}
	values := index[SealedRow]("id", true, nil)
	values.Indexer = key[SealedRow]{
		parts: func(r *SealedRow) []string { return []string{r.Tenant, r.ID} },
		last:  func(r *SealedRow) (uint32, bool) { return r.Version, true },
	}
	signers := index[SigningKeyRow]("id", true, nil)
	signers.Indexer = key[SigningKeyRow]{
		parts: func(*SigningKeyRow) []string { return []string{} },
		last:  func(r *SigningKeyRow) (uint32, bool) { return r.Number, true },
	}
	tasks := index[TaskKeyRow]("id", true, nil)
	tasks.Indexer = key[TaskKeyRow]{
		parts: func(*TaskKeyRow) []string { return []string{} },
		last:  func(r *TaskKeyRow) (uint32, bool) { return r.Number, true },
	}
	return []*memdb.TableSchema{table(DataKeys, keys), table(Sealed, values), table(SigningKeys, signers), table(TaskKeys, tasks),
		table(Rotations, index("id", true, func(r *roster.Rotation) []string { return []string{r.Kind} }))}
}
