package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/coopr/coopr/engine/signing"
)

// Verification is the result of a verification.
type Verification struct {
	// OK is true if every record is unchanged and in its place.
	OK bool `json:"ok"`
	// Records counts the verified records, each change of a task by itself. Hidden counts the
	// records of other tenants, of which only the digests were verified.
	Records uint64 `json:"records"`
	Hidden  uint64 `json:"hidden,omitempty"`
	// Dropped counts the records of the chain between others that were dropped because their tenants had too many. What they said
	// cannot be verified any more.
	Dropped uint64 `json:"dropped,omitempty"`
	// Anchor is the place before the first record, Head the last one.
	Anchor Place `json:"anchor"`
	Head   Place `json:"head"`
	// Signed is the number of the last record that a signed head covers, 0 if there is none, and Heads is how many there are.
	Signed uint64 `json:"signed,omitempty"`
	Heads  uint64 `json:"heads,omitempty"`
	// Bad is the first wrong record.
	Bad *Flaw `json:"bad,omitempty"`
}

// Flaw is a record that was changed or moved.
type Flaw struct {
	Seq uint64 `json:"seq"`
	// Line is the number of its line in a file, from 1.
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"`
}

const changed = "it differs from what was written: it was changed, or a record before it was changed or removed"

// Verify recomputes the chain and compares it with the stored hashes and the signed heads. Without keys, the signatures are not
// verified.
func (t *Trail) Verify(keys signing.Chain) Verification {
	rep := Verification{Anchor: t.anchor, Head: t.head()}
	at := t.anchor
	bad := func(seq uint64, reason string) Verification {
		rep.Bad = &Flaw{Seq: seq, Reason: reason}
		return rep
	}
	marks := heads{keys: keys}
	marks.pass(at)
	var buf []byte
	for _, c := range t.chunks() {
		if c.prev != at {
			return bad(at.Seq+1, fmt.Sprintf("it does not follow: records up to %d were removed or added", c.prev.Seq))
		}
		var fault error
		whole := c.walk(func(e entry) bool {
			var change *Change
			var tasks *Tasks
			if change, tasks, fault = c.decode(e.body, true); fault != nil {
				return false
			}
			if g, ok := gapOf(e.body); ok {
				at = e.at
				rep.Dropped += g.records
				marks.gaps = true
				marks.pass(at)
				return true
			}
			n := uint64(1)
			if change != nil {
				buf = change.canonical(buf[:0])
			} else {
				buf, n = tasks.canonical(buf[:0]), uint64(len(tasks.Items))
			}
			if at.next(sha256.Sum256(buf)) != e.at {
				fault = errors.New(changed)
				return false
			}
			if change != nil && change.Type == TypeSigned {
				if reason := marks.record(change.After, t.anchor, &rep); reason != "" {
					fault = errors.New(reason)
					return false
				}
			}
			at = e.at
			marks.pass(at)
			rep.Records += n
			return true
		})
		switch {
		case fault != nil:
			return bad(at.Seq+1, fault.Error())
		case whole != nil:
			return bad(at.Seq+1, whole.Error())
		case at != c.last:
			return bad(at.Seq+1, "it is missing")
		}
	}
	rep.OK = true
	return rep
}
