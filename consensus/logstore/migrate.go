package logstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft-wal/migrate"
)

// migrateBatch is how many bytes of entries go into one write while copying.
const migrateBatch = 4 << 20

// Migrate turns the log in dir into one of another kind, with the agent
// stopped. The old log is kept beside the new one under a name with ".old";
// remove it when the member has been seen to work. Snapshots stay as they are.
// A migration that was broken off is started over by calling Migrate again.
func Migrate(ctx context.Context, dir string, to Kind, o Options) (err error) {
	o = o.withDefaults()
	from, err := Detect(dir)
	switch {
	case err != nil:
		return err
	case from == "":
		return fmt.Errorf("migrate %s: there is no log", dir)
	case from == to:
		return fmt.Errorf("migrate %s: the log is of kind %s already", dir, to)
	case to != BoltDB && to != WAL:
		return fmt.Errorf("migrate %s: %q is not a kind of log that lives on disk", dir, to)
	}
	lock, err := lockDir(filepath.Join(dir, lockFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()

	work := filepath.Join(dir, "migrate.tmp")
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("clear an earlier migration: %w", err)
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return fmt.Errorf("make room for the migration: %w", explain(err))
	}
	if err := copyLog(ctx, dir, from, work, to, o); err != nil {
		return fmt.Errorf("migrate %s to %s: %w; nothing has been changed", dir, to, errors.Join(err, os.RemoveAll(work)))
	}
	oldName, newName := logName(from), logName(to)
	// In this order a crash between the two leaves two logs, which Open refuses
	// to choose from. The other order would leave none, which looks like a new
	// member.
	if err := os.Rename(filepath.Join(work, newName), filepath.Join(dir, newName)); err != nil {
		return fmt.Errorf("put the new log in place: %w", err)
	}
	if err := os.Rename(filepath.Join(dir, oldName), filepath.Join(dir, oldName+".old")); err != nil {
		return fmt.Errorf("put the old log aside: %w", err)
	}
	return errors.Join(os.RemoveAll(work), syncDir(dir))
}

func logName(k Kind) string {
	if k == WAL {
		return walDir
	}
	return boltFile
}

func copyLog(ctx context.Context, fromDir string, from Kind, toDir string, to Kind, o Options) (err error) {
	srcLog, srcStable, closeSrc, err := openLog(fromDir, from, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSrc()) }()
	dstLog, dstStable, closeDst, err := openLog(toDir, to, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeDst()) }()
	last, err := srcLog.LastIndex()
	if err != nil {
		return err
	}
	if last > 0 {
		if err := migrate.CopyLogs(ctx, dstLog, srcLog, migrateBatch, nil); err != nil {
			return explain(err)
		}
	}
	if err := migrate.CopyStable(ctx, dstStable, srcStable, nil, nil, nil); err != nil {
		return explain(err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
