package mesh

import (
	"cmp"
	"time"
)

// Status is what is known of an agent.
type Status uint8

// The numbers are in the order of finality: in a tie between two sources the higher one holds (Merge).
const (
	StatusNone    Status = iota // this source does not know the agent
	StatusAlive                 // answers
	StatusLeaving               // is about to go for good (Self.Leaving), still answers
	StatusFailed                // stopped answering
	StatusLeft                  // said goodbye, or was removed by an operator
)

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
	}
	return "none"
}

// ParseStatus is the inverse of String; what it does not know is StatusNone.
func ParseStatus(text string) Status {
	for s := StatusAlive; s <= StatusLeft; s++ {
		if s.String() == text {
			return s
		}
	}
	return StatusNone
}

// Self is what an agent tells the others about itself. It travels in gossip tags: all of it together has to fit in 512
// bytes (New and SetSelf check). Values that are longer by nature go as a hash.
type Self struct {
	Name            string // for people; need not be unique
	RPCAddr         string // peer RPC and Raft, host:port
	APIAddr         string // HTTP API, host:port
	Build           string // version of the binary
	FeatureLevel    uint32 // highest log feature level this build reads
	Zone            string // failure zone, for spreading voters; empty: none
	Class           string // class of agent, for tasks that ask for one; empty: none
	Eligible        bool   // may become a voter
	PluginsHash     string // hash of the set of plugin types it offers
	BootstrapExpect int    // how many eligible agents the first Raft group waits for; 0: does not bootstrap
	Leaving         bool   // gives up its vote, then goes for good
}

// Member is one agent in the view.
type Member struct {
	ID string // persistent id, a UUID
	Self
	Addr string // gossip, host:port

	// Epoch orders what is said about an agent: it grows at every start of its process, and whenever it has to contradict
	// a record of its death. In milliseconds since 1970 where clocks are right.
	Epoch uint64

	Status Status    // merged
	Gossip Status    // as gossip alone sees it
	Record Status    // as the list of record has it
	Since  time.Time // when Status last changed in this view, by this agent's clock
}

// Alive says whether the agent can be talked to.
func (m Member) Alive() bool { return m.Status.Alive() }

// Alive says whether an agent of this status can be talked to.
func (s Status) Alive() bool { return s == StatusAlive || s == StatusLeaving }

// Merge is the entry of the view that follows from what gossip says of an agent and what the record says. Either may be
// absent (Status StatusNone). The rule, in this order:
//
//  1. Only one source knows the agent: that one holds.
//  2. The higher epoch holds: news of an earlier life of the process is no news.
//  3. Same epoch: the more final status holds (left over failed over leaving over alive), so that a death is believed
//     from whoever tells it first. An agent that is wrongly believed dead contradicts with a higher epoch.
//  4. Same epoch: addresses and the rest are gossip's, for they travel with the agent itself.
//
// Merge leaves Since alone.
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
