package member

import (
	"log/slog"

	"github.com/coopr/coopr/consensus/logstore"
)

// StoresIn returns the functions Config.OpenStores and Config.PutAside for stores of a kind in a folder.
func StoresIn(dir, kind string, log *slog.Logger) (open func() (*logstore.Stores, error), putAside func(error) (string, error)) {
	open = func() (*logstore.Stores, error) {
		k, err := logstore.ParseKind(kind)
		if err != nil {
			return nil, err
		}
		return logstore.Open(dir, k, logstore.Options{Logger: log})
	}
	return open, func(reason error) (string, error) { return logstore.PutAside(dir, reason) }
}
