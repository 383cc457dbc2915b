//go:build !unix

package logstore

import (
	"fmt"
	"os"
)

// lockDir only opens the file here: bbolt's own lock keeps a second process out.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	return f, nil
}
