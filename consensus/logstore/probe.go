package logstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Probe says whether dir takes writes again: it writes and syncs a small file.
// The owner of a member whose store was sick asks before it opens the store
// anew. A disk that hangs is answered for by ctx; the attempt itself stays
// behind until the disk lets it go, so ask again only after it has.
func Probe(ctx context.Context, dir string) error {
	result := make(chan error, 1)
	go func() { result <- probe(dir) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("try the disk under %s: %w: %w", dir, ErrStuck, ctx.Err())
	}
}

func probe(dir string) (err error) {
	path := filepath.Join(dir, "probe.tmp")
	defer func() {
		if err != nil {
			err = fmt.Errorf("try the disk under %s: %w", dir, explain(err))
		}
	}()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// A few pages, so that a file system with only crumbs left is found out.
	_, werr := f.Write(make([]byte, 64<<10))
	return errors.Join(werr, f.Sync(), f.Close(), os.Remove(path))
}
