package raftgroup

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Timing holds the time-outs and bounds of a member. All members of a group should use the same
// values. Zero fields take the defaults, which suit one site: a dead leader is replaced in about a
// third of a second.
type Timing struct {
	// HeartbeatTimeout is the silence of the leader after which a follower starts an election
	// (default 150 ms). The leader sends four heartbeats in this time.
	HeartbeatTimeout time.Duration
	// ElectionTimeout is how long a candidate waits for votes (default: HeartbeatTimeout).
	ElectionTimeout time.Duration
	// LeaderLeaseTimeout is how long a leader goes on without hearing from a majority (default:
	// HeartbeatTimeout, which it must not exceed). Lease reads are allowed for two thirds of it.
	LeaderLeaseTimeout time.Duration
	// CommitTimeout is how soon followers learn of the last commit when no entry follows it
	// (default 50 ms; a lower value costs messages and gains nothing).
	CommitTimeout time.Duration
	// Multiplier stretches the four above, for slow machines and wide networks (default 1).
	Multiplier float64

	// SnapshotThreshold is the number of new entries that triggers a snapshot (default 8192).
	SnapshotThreshold uint64
	// SnapshotInterval is how often the threshold is checked (default 30 s).
	SnapshotInterval time.Duration
	// TrailingLogs is how many entries stay in the log after a snapshot, so that a follower that was
	// away for a short time needs no snapshot (default 10240).
	TrailingLogs uint64
	// MaxAppendEntries bounds the entries in one message to a follower and in one append (default 512).
	MaxAppendEntries int
}

func (t Timing) withDefaults() Timing {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&t.HeartbeatTimeout, 150*time.Millisecond)
	def(&t.ElectionTimeout, t.HeartbeatTimeout)
	def(&t.LeaderLeaseTimeout, t.HeartbeatTimeout)
	def(&t.CommitTimeout, 50*time.Millisecond)
	def(&t.SnapshotInterval, 30*time.Second)
	if t.Multiplier == 0 {
		t.Multiplier = 1
	}
	if t.SnapshotThreshold == 0 {
		t.SnapshotThreshold = 8192
	}
	if t.TrailingLogs == 0 {
		t.TrailingLogs = 10240
	}
	if t.MaxAppendEntries == 0 {
		t.MaxAppendEntries = 512
	}
	return t
}

// Validate reports all faults of the settings in one error.
func (t Timing) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if t.Multiplier < 0 {
		fault("multiplier: %g is negative", t.Multiplier)
	}
	t = t.withDefaults()
	if t.HeartbeatTimeout < 5*time.Millisecond {
		fault("heartbeat_timeout: %s is below 5ms", t.HeartbeatTimeout)
	}
	if t.ElectionTimeout < t.HeartbeatTimeout {
		fault("election_timeout: %s is below heartbeat_timeout %s", t.ElectionTimeout, t.HeartbeatTimeout)
	}
	if t.LeaderLeaseTimeout < 5*time.Millisecond || t.LeaderLeaseTimeout > t.HeartbeatTimeout {
		fault("leader_lease_timeout: %s is not between 5ms and heartbeat_timeout %s", t.LeaderLeaseTimeout, t.HeartbeatTimeout)
	}
	if t.CommitTimeout < time.Millisecond {
		fault("commit_timeout: %s is below 1ms", t.CommitTimeout)
	}
	if t.SnapshotInterval < 5*time.Millisecond {
		fault("snapshot_interval: %s is below 5ms", t.SnapshotInterval)
	}
	if t.MaxAppendEntries < 1 || t.MaxAppendEntries > 1024 {
		fault("max_append_entries: %d is not between 1 and 1024", t.MaxAppendEntries)
	}
	return errors.Join(faults...)
}

// stretched returns the timing with defaults filled in and the multiplier applied.
func (t Timing) stretched() Timing {
	t = t.withDefaults()
	for _, d := range []*time.Duration{&t.HeartbeatTimeout, &t.ElectionTimeout, &t.LeaderLeaseTimeout, &t.CommitTimeout} {
		*d = time.Duration(float64(*d) * t.Multiplier)
	}
	t.Multiplier = 1
	return t
}

func (t Timing) apply(c *raft.Config) {
	t = t.stretched()
	c.HeartbeatTimeout = t.HeartbeatTimeout
	c.ElectionTimeout = t.ElectionTimeout
	c.LeaderLeaseTimeout = t.LeaderLeaseTimeout
	c.CommitTimeout = t.CommitTimeout
	c.SnapshotInterval = t.SnapshotInterval
	c.SnapshotThreshold = t.SnapshotThreshold
	c.TrailingLogs = t.TrailingLogs
	c.MaxAppendEntries = t.MaxAppendEntries
}

// never is a time-out that does not come.
const never = 10 * 365 * 24 * time.Hour
