package raftgroup_test

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// forgetful is a transport that loses the answer to the first entries that a member receives after a
// snapshot.
type forgetful struct {
	*raft.InmemTransport
	lost      *atomic.Bool
	installed atomic.Int32 // number of installed snapshots
}

func (f *forgetful) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := f.InmemTransport.InstallSnapshot(id, target, args, resp, data)
	if err == nil && resp.Success {
		f.installed.Add(1)
	}
	return err
}

func (f *forgetful) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	err := f.InmemTransport.AppendEntries(id, target, args, resp)
	if err == nil && resp.Success && len(args.Entries) > 0 && f.installed.Load() > 0 && f.lost.CompareAndSwap(false, true) {
		return errors.New("the answer is lost")
	}
	return err
}

// TestLostAnswerBehindASnapshot: after a lost answer the library alone would send the snapshot again and
// again.
func TestLostAnswerBehindASnapshot(t *testing.T) {
	var lost atomic.Bool
	transports := map[string]*forgetful{}
	box(t, 3, grouptest.Options{
		Timing: raftgroup.Timing{TrailingLogs: 1},
		Transport: func(id string, t *raft.InmemTransport) raft.Transport {
			transports[id] = &forgetful{InmemTransport: t, lost: &lost}
			return transports[id]
		},
	}, func(t *testing.T, c *grouptest.Cluster) {
		c.Apply("before")
		c.Agree()
		lead := c.Leader()
		rest := others(c, lead.ID)
		c.Partition([]string{lead.ID, rest[0]}, rest[1:])
		for range 5 {
			c.Apply("meanwhile")
		}
		_, rc, err := lead.Group().Snapshot(bg)
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			c.Apply("behind the snapshot")
		}
		if now := c.Leader(); now != lead {
			t.Fatal("the leader has changed")
		}
		want := lead.Journal().Entries()
		c.Heal()
		c.Until("the member that was away to have everything", func() bool {
			return slices.Equal(c.Member(rest[1]).Journal().Entries(), want)
		})
		if !lost.Load() {
			t.Error("no answer was lost: this test does not test")
		}
		c.Until("the leader to know it", func() bool {
			return lead.Group().Progress(rest[1]).LastIndex == lead.Group().Stats().LastIndex
		})
		c.Apply("after")
		c.Agree()
		if n := transports[lead.ID].installed.Load(); n != 1 {
			t.Errorf("the snapshot was installed %d times", n)
		}
	})
}
