package mesh

import (
	"cmp"
	"time"
)

// Status is the state of an agent in the view.
type Status uint8

// The values are ordered by finality: of two sources with the same epoch, the higher status wins (Merge).
const (
	StatusNone    Status = iota // the source does not know the agent
	StatusAlive                 // it answers
	StatusLeaving               // it is about to leave for good (Self.Leaving), but still answers
	StatusFailed                // it stopped answering
	StatusLeft                  // it announced that it leaves, or an operator removed it
)

// String returns the name of a status in the API.
func (s Status) String() string {
	switch s {
	case StatusAlive:
		return "alive"
	case StatusLeaving:
		return "leaving"
	case StatusFailed:
		return "failed"
	case StatusLeft:
		return "left"
	default:
	}
	return "none"
}

// Self is what an agent announces about itself. It travels in gossip tags, which together must fit in 512 bytes; New and
// SetSelf check this.
type Self struct {
	Name            string // for people; not necessarily unique
	RPCAddr         string // peer RPC and Raft, host:port
	APIAddr         string // HTTP API, host:port
	Build           string // version of the binary
	FeatureLevel    uint32 // highest log feature level this build reads
	Zone            string // failure zone, for spreading voters; empty: none
	Class           string // class of agent, for tasks that require one; empty: none
	Eligible        bool   // may become a voter
	PluginsHash     string // hash of the set of plugin types it offers
	BootstrapExpect int    // how many eligible agents start the first Raft group; 0: the agent does not start one
	Leaving         bool   // the agent gives up its vote and then leaves for good
}

// Member is one agent in the view.
type Member struct {
	ID string // persistent id, a UUID
	Self
	Addr string // gossip, host:port

	// Epoch orders the news about an agent. It grows with every start of the agent's process, and whenever the agent
	// contradicts a record of its death. It is a time in milliseconds since 1970 if clocks are right.
	Epoch uint64

	Status Status    // merged
	Gossip Status    // according to gossip alone
	Record Status    // according to the agent registry
	Since  time.Time // when Status last changed in this view, by this agent's clock
}

// Alive reports whether the agent can be reached.
func (m Member) Alive() bool { return m.Status.Alive() }

// Alive reports whether an agent of this status can be reached.
func (s Status) Alive() bool { return s == StatusAlive || s == StatusLeaving }

// Merge returns the view's entry of an agent, from its entries in gossip and in the agent registry. Either may be absent
// (StatusNone). The rules, in this order:
//
//  1. If only one source knows the agent, its entry is used.
//  2. The entry with the higher epoch is used: the other is about an earlier life of the process.
//  3. With equal epochs, the more final status is used (left, failed, leaving, alive), so that a failure is believed from
//     the source that reports it first. An agent that wrongly counts as dead contradicts with a higher epoch.
//  4. With equal epochs, all other fields are gossip's, as they come from the agent itself.
//
// Merge does not set Since.
func Merge(gossip, record Member) Member {
	out := gossip
	switch {
	case gossip.Status == StatusNone:
		out = record
	case record.Status == StatusNone:
	case record.Epoch > gossip.Epoch:
		out = record
		if out.Addr == "" {
			out.Addr = gossip.Addr
		}
	case record.Epoch == gossip.Epoch:
		out.Status = max(gossip.Status, record.Status)
	}
	out.Gossip, out.Record = gossip.Status, record.Status
	return out
}

func byID(a, b Member) int { return cmp.Compare(a.ID, b.ID) }
