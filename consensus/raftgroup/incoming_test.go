package raftgroup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/testing/doubles/grouptest"
)

// recorded is a transport that keeps the entries which the library has sent.
type recorded struct {
	*raft.InmemTransport
	mu   sync.Mutex
	sent []*raft.AppendEntriesRequest
}

func (r *recorded) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (r *recorded) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	if len(args.Entries) > 0 {
		r.mu.Lock()
		r.sent = append(r.sent, args)
		r.mu.Unlock()
	}
	return r.InmemTransport.AppendEntries(id, target, args, resp)
}

// recording starts three members, and returns the leader, another member and the leader's transport.
func recording(t *testing.T, f func(t *testing.T, c *grouptest.Cluster, lead, other *grouptest.Member, wire *recorded)) {
	t.Helper()
	transports := map[string]*recorded{}
	box(t, 3, grouptest.Options{
		Timing: raftgroup.Timing{TrailingLogs: 1},
		Transport: func(id string, t *raft.InmemTransport) raft.Transport {
			transports[id] = &recorded{InmemTransport: t}
			return transports[id]
		},
	}, func(t *testing.T, c *grouptest.Cluster) {
		for i := range 5 {
			c.Apply(fmt.Sprint("early ", i))
		}
		c.Agree()
		lead := c.Leader()
		f(t, c, lead, c.Member(others(c, lead.ID)[0]), transports[lead.ID])
	})
}

// TestOlderSnapshot: a leader's snapshot that is older than the member's log changes neither the state
// nor the configuration of the member.
func TestOlderSnapshot(t *testing.T) {
	recording(t, func(t *testing.T, c *grouptest.Cluster, lead, other *grouptest.Member, wire *recorded) {
		meta, data, err := lead.Group().Snapshot(bg)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := data.Close(); err != nil {
			t.Fatal(err)
		}
		if err := lead.Group().Demote(bg, other.ID, 0); err != nil {
			t.Fatal(err)
		}
		c.Apply("late")
		want := c.Agree()
		conf := lead.Group().Servers()
		wire.mu.Lock()
		header := wire.sent[0].RPCHeader
		wire.mu.Unlock()
		req := &raft.InstallSnapshotRequest{
			RPCHeader:       header,
			SnapshotVersion: raft.SnapshotVersionMax,
			Term:            lead.Group().Term(), LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
			Size: meta.Size,
		}
		var resp raft.InstallSnapshotResponse
		err = wire.InstallSnapshot(raft.ServerID(other.ID), raft.ServerAddress(other.Addr), req, &resp, bytes.NewReader(content))
		if err != nil || !resp.Success || resp.Term != req.Term {
			t.Errorf("the answer is %+v, %v", resp, err)
		}
		if got := other.Journal().Entries(); !slices.Equal(got, want) {
			t.Errorf("the member holds %q, not %q", got, want)
		}
		if got := other.Group().Servers(); !slices.Equal(got, conf) {
			t.Errorf("the member knows the configuration %v, not %v", got, conf)
		}
		c.Apply("after")
		c.Agree()
	})
}

// TestSnapshotDuringEntries: the snapshot arrives while the member still stores the entries that make it old.
func TestSnapshotDuringEntries(t *testing.T) {
	wires := map[string]*raft.InmemTransport{}
	box(t, 3, grouptest.Options{
		Timing: raftgroup.Timing{TrailingLogs: 100},
		Transport: func(id string, t *raft.InmemTransport) raft.Transport {
			wires[id] = t
			return t
		},
	}, func(t *testing.T, c *grouptest.Cluster) {
		c.Apply("early")
		c.Agree()
		lead := c.Leader()
		other := c.Member(others(c, lead.ID)[0])
		c.Partition(others(c, other.ID))
		c.Apply("missed")
		meta, data, err := lead.Group().Snapshot(bg)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(data)
		if err = errors.Join(err, data.Close()); err != nil {
			t.Fatal(err)
		}
		if err := lead.Group().Demote(bg, other.ID, 0); err != nil {
			t.Fatal(err)
		}
		other.Disk.Hang()
		c.Heal()
		c.Until("the member to store the entries", func() bool { return other.Disk.Waiting() > 0 })
		var resp raft.InstallSnapshotResponse
		req := &raft.InstallSnapshotRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(lead.ID), Addr: []byte(lead.Addr)},
			Term:      lead.Group().Term(), SnapshotVersion: raft.SnapshotVersionMax, LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex, Size: meta.Size,
		}
		sent := make(chan error, 1)
		go func() {
			sent <- wires[lead.ID].InstallSnapshot(raft.ServerID(other.ID), raft.ServerAddress(other.Addr), req, &resp, bytes.NewReader(content))
		}()
		synctest.Wait()
		other.Disk.Heal()
		if err := <-sent; err != nil || !resp.Success || resp.Term != req.Term {
			t.Errorf("the answer is %+v, %v", resp, err)
		}
		c.Apply("late")
		c.Agree()
		if got, want := other.Group().Servers(), lead.Group().Servers(); !slices.Equal(got, want) {
			t.Errorf("the member knows the configuration %v, not %v", got, want)
		}
	})
}

// TestEntriesBeforeTheLog: a member whose log begins later accepts entries that it has applied.
func TestEntriesBeforeTheLog(t *testing.T) {
	recording(t, func(t *testing.T, c *grouptest.Cluster, lead, other *grouptest.Member, wire *recorded) {
		wire.mu.Lock()
		first := *wire.sent[slices.IndexFunc(wire.sent, func(r *raft.AppendEntriesRequest) bool { return r.PrevLogEntry > 0 })]
		for _, r := range wire.sent { // all entries after the first message's, in one
			for _, e := range r.Entries {
				if e.Index == first.Entries[len(first.Entries)-1].Index+1 {
					first.Entries = append(slices.Clip(first.Entries), e)
				}
			}
		}
		wire.mu.Unlock()
		if _, rc, err := other.Group().Snapshot(bg); err != nil {
			t.Fatal(err)
		} else if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
		c.Apply("late")
		want := c.Agree()
		var resp raft.AppendEntriesResponse
		if err := wire.InmemTransport.AppendEntries(raft.ServerID(other.ID), raft.ServerAddress(other.Addr), &first, &resp); err != nil {
			t.Fatal(err)
		}
		if !resp.Success {
			t.Errorf("%d entries after %d are refused: %+v", len(first.Entries), first.PrevLogEntry, resp)
		}
		if got := other.Journal().Entries(); !slices.Equal(got, want) {
			t.Errorf("the member holds %q, not %q", got, want)
		}
	})
}
