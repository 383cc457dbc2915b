package member

import (
	"context"
	"log/slog"

	"github.com/coopr/coopr/consensus/logstore"
)

// Stores opens and repairs the stores of a member: its log and its snapshots.
type Stores struct {
	// Open opens the stores. It is called for each life of the member, as a sick disk ends one.
	Open func() (*logstore.Stores, error)
	// PutAside puts damaged stores aside and returns where they are. nil means that they stay as they are.
	PutAside func(reason error) (string, error)
	// MakeRoom removes the oldest damaged stores that were put aside, if there are more than keep, and returns where they
	// were, or "". nil means that they stay as they are.
	MakeRoom func(keep int) (string, error)
}

// StoresIn returns the stores of a kind in a folder.
func StoresIn(dir, kind string, log *slog.Logger) Stores {
	return Stores{
		Open: func() (*logstore.Stores, error) {
			k, err := logstore.ParseKind(kind)
			if err != nil {
				return nil, err
			}
			return logstore.Open(dir, k, logstore.Options{Logger: log})
		},
		PutAside: func(reason error) (string, error) { return logstore.PutAside(dir, reason) },
		MakeRoom: func(keep int) (string, error) { return logstore.DropAside(dir, keep) },
	}
}

// makeRoom removes the oldest damaged copy of the Raft log from a full disk: a member that runs is worth more than it is.
// The newest copy may be the last one of an entry. It goes only if other voters lead without this one, as they have the
// state then.
func (s *Supervisor) makeRoom(ctx context.Context) {
	if s.cfg.Stores.MakeRoom == nil {
		return
	}
	was, err := s.cfg.Stores.MakeRoom(1)
	if was == "" && err == nil && s.othersLead(ctx) {
		was, err = s.cfg.Stores.MakeRoom(0)
	}
	switch {
	case err != nil:
		s.cfg.Logger.Error("no damaged copy of the Raft log can be removed from the full disk", "error", err)
	case was != "":
		s.cfg.Logger.Warn("a damaged copy of the Raft log was removed, because the disk is full", "copy", was)
	}
}
