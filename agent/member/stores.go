package member

import (
	"errors"
	"log/slog"

	"github.com/coopr/coopr/consensus/logstore"
)

// StoresIn returns the functions Config.OpenStores and Config.PutAside for stores of a kind in a folder. If the disk has no
// room for the stores, open removes damaged copies that were put aside, the oldest first, until it has: a member that runs
// is worth more than they are, and it would otherwise stay down until a person came.
func StoresIn(dir, kind string, log *slog.Logger) (open func() (*logstore.Stores, error), putAside func(error) (string, error)) {
	open = func() (*logstore.Stores, error) {
		k, err := logstore.ParseKind(kind)
		if err != nil {
			return nil, err
		}
		for {
			stores, err := logstore.Open(dir, k, logstore.Options{Logger: log})
			if !errors.Is(err, logstore.ErrDiskFull) {
				return stores, err
			}
			was, failed := logstore.DropAside(dir)
			if was == "" || failed != nil {
				return nil, errors.Join(err, failed)
			}
			log.Warn("a damaged copy of the Raft log was removed, because the disk is full", "copy", was)
		}
	}
	return open, func(reason error) (string, error) { return logstore.PutAside(dir, reason) }
}
