package raftgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// Report is what the disk of a stopped agent holds of the group.
type Report struct {
	ID  string `json:"id"`
	Dir string `json:"dir"` // of the stores
	logstore.Survey
	// Watermark is what the agent has acknowledged; nil if that is not known.
	Watermark *logstore.Watermark `json:"watermark,omitempty"`
	// Servers are the group's members as the agent knows them.
	Servers []Server `json:"servers,omitempty"`
}

// ReadReport reads the stores in dir, of the stopped agent id. It changes nothing.
func ReadReport(ctx context.Context, id, dir string) (Report, error) {
	r := Report{ID: id, Dir: dir}
	var err error
	if r.Survey, err = logstore.ReadSurvey(ctx, dir); err != nil {
		return r, err
	}
	for _, s := range r.Members {
		r.Servers = append(r.Servers, Server{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	switch w, err := logstore.ReadWatermark(dir); {
	case err == nil:
		r.Watermark = &w
	case !errors.Is(err, fs.ErrNotExist):
		r.Damage = append(r.Damage, err.Error())
	}
	return r, nil
}

// acknowledged returns the last entry that the agent has acknowledged to others. ok is false if that is not known.
func (r *Report) acknowledged() (last logstore.Place, ok bool) {
	if w := r.Watermark; w != nil {
		last, ok = w.Last, true
		if last.Index > 0 && last.Term == 0 { // not later than the term that the agent was in
			last.Term = w.Term
			if r.Last.Index >= last.Index {
				last.Term = min(last.Term, r.Last.Term)
			}
		}
	}
	if len(r.Damage) == 0 && r.Last.Index > 0 {
		last, ok = furthest(last, r.Last), true
	}
	return last, ok
}

// Intact reports whether the agent has every entry that it has acknowledged.
func (r *Report) Intact() bool {
	if len(r.Damage) > 0 || r.Last.Index == 0 {
		return false
	}
	last, _ := r.acknowledged()
	return last == r.Last
}

// before reports whether a log that ends at a is less up to date than one that ends at b, as in an election.
func before(a, b logstore.Place) bool {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Index, b.Index)) < 0
}

func furthest(a, b logstore.Place) logstore.Place {
	if before(a, b) {
		return b
	}
	return a
}

// Verdict compares the reports of the agents that survived the loss of a majority.
type Verdict struct {
	// Best is the agent to recover from: the one whose log is most up to date. "" if no agent has a whole log.
	Best string         `json:"best,omitempty"`
	Last logstore.Place `json:"last"` // the end of its log
	// Servers are the members of the group as Best knows them.
	Servers []Server `json:"servers,omitempty"`
	// Majority is set if a majority of the voters has everything that it has acknowledged. Nothing is lost then, and
	// the agents need only be started.
	Majority bool `json:"majority"`
	// Complete is set if Best has every entry that can have been committed.
	Complete bool `json:"complete"`
	// From and To are the entries that Best may lack if it is not complete. To is 0 if it is not known how many. If
	// Replaced is set, Best may have other entries in their place.
	From     uint64 `json:"from,omitempty"`
	To       uint64 `json:"to,omitempty"`
	Replaced bool   `json:"replaced,omitempty"`
	// Unknown are the voters of which it is not known what they have acknowledged.
	Unknown []string `json:"unknown,omitempty"`
}

// Judge compares reports. An entry is committed when a majority of the voters has acknowledged it. From then on each of
// them has a log that ends at this entry or at one that is later in the sense of an election, and each log of such an
// end has the entry. So a log is complete if it ends where, or after where, a majority of the voters can have ended.
func Judge(reports []Report) Verdict {
	var v Verdict
	var best *Report
	known := map[string]*Report{}
	for i := range reports {
		r := &reports[i]
		known[r.ID] = r
		if len(r.Damage) == 0 && r.Last.Index > 0 && len(r.Servers) > 0 && (best == nil || before(best.Last, r.Last)) {
			best = r
		}
	}
	if best == nil {
		return v
	}
	v.Best, v.Last, v.Servers = best.ID, best.Last, best.Servers
	var ends []logstore.Place
	intact := 0
	for _, s := range best.Servers {
		if !s.Voter {
			continue
		}
		end, ok := logstore.Place{Index: math.MaxUint64, Term: math.MaxUint64}, false
		if r := known[s.ID]; r != nil {
			if last, known := r.acknowledged(); known {
				end, ok = last, true
			}
			if r.Intact() {
				intact++
			}
		}
		if !ok {
			v.Unknown = append(v.Unknown, s.ID)
		}
		ends = append(ends, end)
	}
	if len(ends) == 0 {
		return v
	}
	majority := len(ends)/2 + 1
	slices.SortFunc(ends, func(a, b logstore.Place) int {
		return cmp.Or(cmp.Compare(b.Term, a.Term), cmp.Compare(b.Index, a.Index))
	})
	end := ends[majority-1]
	v.Majority = intact >= majority
	// With an even number of voters, half of them can have an end that all others have passed: the next entry may have changed
	// the voters.
	enough := len(ends)-len(v.Unknown) >= majority
	if v.Complete = enough && !before(v.Last, end); v.Complete {
		return v
	}
	// Unless the terms are known to be equal, entries after the snapshot may have been replaced.
	v.From, v.To, v.Replaced = v.Last.Index+1, end.Index, end.Term > v.Last.Term
	if v.Replaced {
		v.From, v.To = best.Snapshot.Index+1, max(end.Index, best.Snapshot.Index+1)
	}
	if !enough || len(v.Unknown) > 0 && end.Index == math.MaxUint64 {
		v.From, v.To, v.Replaced = best.Snapshot.Index+1, 0, true
	}
	return v
}

// String returns the verdict in words.
func (v Verdict) String() string {
	switch {
	case v.Best == "":
		return "no agent has a whole log: nothing can be recovered from these disks"
	case v.Complete:
		return "complete"
	case v.To == 0:
		return fmt.Sprintf("entries from %d on may be missing; how many is not known", v.From)
	}
	return fmt.Sprintf("entries %d to %d may be missing", v.From, v.To)
}
