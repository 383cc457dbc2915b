package raftgroup

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// time returns when the newest snapshot was made, or when it arrived from the leader. It is the zero time if that is
// unknown.
func (w *watchedSnapshots) time() time.Time {
	if ms := w.latest.Load(); ms > 0 {
		return time.UnixMilli(ms)
	}
	return time.Time{}
}

// firstMillis is a time in the year 2001. Every snapshot is younger.
const firstMillis = 1e12

// recall takes the time of the newest snapshot from its id. In a store of files, the id ends with the time; a store in
// memory counts its snapshots there.
func (w *watchedSnapshots) recall() {
	list, err := w.List()
	if err != nil || len(list) == 0 {
		return
	}
	var term, index uint64
	var ms int64
	if n, _ := fmt.Sscanf(list[0].ID, "%d-%d-%d", &term, &index, &ms); n == 3 && ms > firstMillis {
		w.latest.Store(ms)
	}
}

// Create returns a sink that notes the time when the snapshot is complete.
func (w *watchedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64,
	trans raft.Transport) (raft.SnapshotSink, error) {
	sink, err := w.SnapshotStore.Create(version, index, term, c, at, trans)
	if err != nil {
		return nil, err
	}
	return &watchedSink{sink, w, false}, nil
}

type watchedSink struct {
	raft.SnapshotSink
	of        *watchedSnapshots
	cancelled bool
}

func (s *watchedSink) Cancel() error {
	s.cancelled = true
	return s.SnapshotSink.Cancel()
}

func (s *watchedSink) Close() error {
	err := s.SnapshotSink.Close()
	if err == nil && !s.cancelled {
		s.of.latest.Store(time.Now().UnixMilli())
	}
	return err
}

// ReplaceLog replaces the whole log of a member, and all its snapshots, by new snapshots.
func ReplaceLog(g *Group) (err error) {
	keep := func(entries uint64) error {
		return g.waits.configure(g.raft, func(c *raft.ReloadableConfig) { c.TrailingLogs = entries })
	}
	if err := keep(0); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, keep(g.timing.TrailingLogs)) }()
	for range logstore.DefaultRetainSnapshots { // so that no older one is kept
		if err := g.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
			return err
		}
	}
	return nil
}
