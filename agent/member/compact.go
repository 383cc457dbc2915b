package member

import (
	"context"
	"time"

	"github.com/coopr/coopr/consensus/raftgroup"
)

// compactDelay is the pause between the last entry that encrypts values and the compaction, as there may be more.
const compactDelay = 5 * time.Second

// compact removes values in the clear, or under an old key, from this member's log and snapshots after others took their places
// in the state. It serves until ctx ends. Pages of the log's file that are free now may have the values still
// (docs/security.md).
func (m *Member) compact(ctx context.Context) error {
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.resealed:
			timer.Reset(compactDelay)
		case <-timer.C:
			switch err := raftgroup.ReplaceLog(m.Group); {
			case err == nil:
				m.cfg.Logger.Info("the log was replaced by a snapshot, as it had values in the clear or under an old key")
			case ctx.Err() == nil:
				m.cfg.Logger.Warn("old entries of this agent's log still have values in the clear or under an old key", "error", err)
				timer.Reset(compactDelay)
			}
		}
	}
}

// oldest returns the index of the oldest entry that this member's log has, or of its oldest snapshot if that is older.
func (m *Member) oldest() (uint64, error) {
	oldest, err := m.stores.Guard().FirstIndex()
	if err != nil {
		return 0, err
	}
	list, err := m.stores.Snapshots.List()
	if err != nil {
		return 0, err
	}
	for _, s := range list {
		if oldest == 0 || s.Index < oldest {
			oldest = s.Index
		}
	}
	return oldest, nil
}
