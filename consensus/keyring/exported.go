package keyring

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coopr/coopr/internal/durable"
)

// exportFile has the latest backup of a keyring, in the keyring's folder: the number and the fingerprint of the key that was active, and
// when it was written. It has nothing secret.
const exportFile = "exported"

// Exported is what is on record of the latest backup of a keyring. The zero value means that there was none.
type Exported struct {
	Number uint32
	Print  []byte
	At     time.Time
}

// NoteExport puts a backup on record in the folder of a keyring. The agent of that keyring tells the mesh.
func NoteExport(dir string, e Exported) error {
	return durable.WriteFile(filepath.Join(dir, exportFile), fmt.Appendf(nil, "%d %x %d\n", e.Number, e.Print, e.At.UnixMilli()))
}

// Exported returns the latest backup that NoteExport has put on record.
func (d dirStore) Exported() (Exported, error) {
	path := filepath.Join(d.dir, exportFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Exported{}, nil
	}
	if err != nil {
		return Exported{}, err
	}
	var e Exported
	var hexed string
	var ms int64
	if _, err := fmt.Sscanf(string(data), "%d %s %d\n", &e.Number, &hexed, &ms); err != nil {
		return Exported{}, fmt.Errorf("%s is damaged: remove it, and export the keyring again", path)
	}
	if e.Print, err = hex.DecodeString(hexed); err != nil {
		return Exported{}, fmt.Errorf("%s is damaged: remove it, and export the keyring again", path)
	}
	e.At = time.UnixMilli(ms)
	return e, nil
}

// Exported returns the latest backup of the keyring.
func (r *Ring) Exported() (Exported, error) { return r.store.Exported() }
