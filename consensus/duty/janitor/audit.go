package janitor

import (
	"maps"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	pb "github.com/coopr/coopr/rpc/proto"
)

// audit returns the removals of audit records that are due. Records that a sink has not taken stay for longer, up to a bound.
// There are none as long as the mesh has voters of an older build: see plainExcess.
func (j *Janitor) audit(v *state.View, now time.Time) (out []*pb.PruneAudit) {
	if !v.Understands(logformat.AuditLevel) {
		return nil
	}
	trail := v.Audit()
	s, taken := trail.Stats(), uint64(0)
	if len(j.cfg.Sinks) > 0 {
		at := v.Sinks()
		taken = at[j.cfg.Sinks[0]]
		for _, name := range j.cfg.Sinks {
			taken = min(taken, at[name])
		}
		if taken > s.Anchor.Seq {
			if p := j.excess(trail, s, 100, now); p != nil {
				p.UpTo = taken
				out = append(out, p)
			}
		}
		if p := j.excess(trail, s, 100+j.cfg.AuditWait, now); p != nil {
			p.Sinks = j.cfg.Sinks
			out = append(out, p)
		}
		return out
	}
	if p := j.excess(trail, s, 100, now); p != nil {
		out = append(out, p)
	}
	return out
}

// excess returns what removes the records of a trail that are too old or too many by some percent of the limits, or nil. Tenants that
// have most lose records first. A small excess is tolerated. Otherwise a busy mesh would prune in every sweep, and each pruning makes
// an audit record of its own.
func (j *Janitor) excess(trail *audit.Trail, s audit.Stats, percent uint64, now time.Time) *pb.PruneAudit {
	records, bytes := j.cfg.AuditRecords*percent/100, j.cfg.AuditMemory*percent/100
	age := j.cfg.Audit / 100 * time.Duration(percent)
	p := &pb.PruneAudit{BeforeMs: now.Add(-age).UnixMilli()}
	old := s.Records > 0 && s.Oldest < p.BeforeMs-(age/100).Milliseconds()
	many := s.Records > records+records/10 || s.Bytes > bytes+bytes/10
	if !old && !many {
		return nil
	}
	if !many {
		return p
	}
	usage := trail.Usage()
	if uint64(len(usage)) > records {
		p.Records = records
		return p
	}
	gaps := s.Bytes
	for _, u := range usage {
		gaps -= u.Bytes
	}
	keep := audit.Share(usage, records, bytes-min(gaps, bytes/2))
	for _, tenant := range slices.Sorted(maps.Keys(keep)) {
		p.Keep = append(p.Keep, &pb.TenantRecords{Tenant: tenant, Records: keep[tenant]})
	}
	if len(p.Keep) == 0 && !old {
		return nil
	}
	return p
}

// plainExcess returns what removes the oldest records of the log if they are too old or too many, or nil. Voters of all builds understand
// it.
func (j *Janitor) plainExcess(s audit.Stats, now time.Time) *pb.Prune {
	keep := j.cfg.AuditRecords
	if s.Bytes > j.cfg.AuditMemory {
		keep = min(keep, uint64(float64(s.Records)*float64(j.cfg.AuditMemory)/float64(s.Bytes)))
	}
	before := now.Add(-j.cfg.Audit).UnixMilli()
	old := s.Records > 0 && s.Oldest < before-(j.cfg.Audit/100).Milliseconds()
	if !old && s.Records <= keep+keep/10 {
		return nil
	}
	return &pb.Prune{AuditBeforeMs: before, AuditKeep: max(keep, 1)}
}
