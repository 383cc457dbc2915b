package table

import (
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/audit"
)

// Sums are the digests of a state. Those of equal states are equal if one build computed them.
type Sums struct {
	// Tables has the SHA-256 of each table's records as they are in a snapshot.
	Tables map[string][sha256.Size]byte
	// Audit is the place of the audit log's last record.
	Audit audit.Place
}

// Digest returns the digests of a state.
func Digest(txn *memdb.Txn) (Sums, error) {
	out := Sums{Tables: map[string][sha256.Size]byte{}, Audit: Trail(txn).Stats().Head}
	for name := range Schema().Tables {
		w := &recordWriter{w: io.Discard, sum: sha256.New()}
		if err := w.table(txn, name); err != nil {
			return Sums{}, fmt.Errorf("digest of table %s: %w", name, err)
		}
		out.Tables[name] = [sha256.Size]byte(w.sum.Sum(nil))
	}
	return out, nil
}
