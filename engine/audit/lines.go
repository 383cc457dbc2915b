package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/signing"
)

// lineFormat is the version of the exported form.
const lineFormat = 1

// Lead is the first line of an export. It describes the records that follow and the ends of
// their chain.
type Lead struct {
	Coopr  string `json:"coopr"` // "audit"
	Format int    `json:"format"`
	// Tenant owns the records; absent: the records of all tenants.
	Tenant string `json:"tenant,omitempty"`
	// Anchor is the place before the first record of the file, Head the place of its last
	// record.
	Anchor Place `json:"anchor"`
	Head   Place `json:"head"`
	// Part is true if a filter selected the records, so that they do not form a chain.
	Part bool `json:"part,omitempty"`
}

// hidden is the line of a record that the reader may not see. It has only what is needed to
// verify the records after it.
type hidden struct {
	Seq    uint64 `json:"seq"`
	Digest *Hash  `json:"digest"`
	Hash   Hash   `json:"hash"`
}

// dropped is the line of records between others that were dropped because their tenants had too many.
type dropped struct {
	Seq     uint64 `json:"seq"`     // of the last of them
	Dropped uint64 `json:"dropped"` // how many
	Hash    Hash   `json:"hash"`
}

// Export writes the records after the given number (0: all) as lines of JSON: a Lead, then one
// Record per line. VerifyLines can verify the file if the filter selects by tenant only; the
// records of other tenants are written as digests.
func (t *Trail) Export(out io.Writer, f Filter, after uint64) error {
	from := t.anchor
	if after > 0 {
		var err error
		if from, err = t.place(after); err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(out, 64<<10)
	enc := json.NewEncoder(w)
	lead := Lead{Coopr: "audit", Format: lineFormat, Tenant: f.Tenant, Anchor: from, Head: t.head(), Part: !f.Whole()}
	if err := enc.Encode(lead); err != nil {
		return err
	}
	var failed error
	write := func(v any) bool {
		failed = enc.Encode(v)
		return failed == nil
	}
	if !f.Whole() {
		if err := t.Each(&f, false, Cursor{Seq: from.Seq, Item: 1 << 30}, func(r Record) bool { return write(r) }); err != nil || failed != nil {
			return errors.Join(err, failed)
		}
		return w.Flush()
	}
	for _, c := range t.chunks() {
		if c.last.Seq <= from.Seq {
			continue
		}
		var fault error
		err := c.walk(func(e entry) bool {
			if e.at.Seq <= from.Seq {
				return true
			}
			fault = c.lines(e, f.Tenant, write)
			return fault == nil && failed == nil
		})
		if err := errors.Join(err, fault, failed); err != nil {
			return err
		}
	}
	return w.Flush()
}

// lines writes the lines of one entry.
func (c *chunk) lines(e entry, tenant string, write func(any) bool) error {
	change, tasks, err := c.decode(e.body, true)
	if err != nil {
		return fmt.Errorf("record %d: %w", e.at.Seq, err)
	}
	switch {
	case change != nil && fits(tenant, change.Tenant):
		write(change.record(e.at))
	case change != nil:
		digest := Hash(sha256.Sum256(change.canonical(nil)))
		write(hidden{Seq: e.at.Seq, Digest: &digest, Hash: e.at.Hash})
	case tasks == nil:
		g, _ := gapOf(e.body)
		write(dropped{Seq: e.at.Seq, Dropped: g.records, Hash: e.at.Hash})
	case fits(tenant, tasks.Plan.Tenant):
		for i := range tasks.Items {
			if !write(tasks.record(e.at, i)) {
				break
			}
		}
	default:
		digest := Hash(sha256.Sum256(tasks.canonical(nil)))
		write(hidden{Seq: e.at.Seq, Digest: &digest, Hash: e.at.Hash})
	}
	return nil
}

// place returns the place of the record with this number.
func (t *Trail) place(seq uint64) (Place, error) {
	if head := t.head(); seq >= head.Seq {
		return head, nil
	}
	if seq == t.anchor.Seq {
		return t.anchor, nil
	}
	for _, c := range t.chunks() {
		if seq > c.prev.Seq && seq <= c.last.Seq {
			var at Place
			err := c.walk(func(e entry) bool { at = e.at; return e.at.Seq < seq })
			return at, err
		}
	}
	return Place{}, fmt.Errorf("%w: records up to %d are not kept any more", ErrPruned, t.anchor.Seq)
}

// Reasons why a file cannot be verified at all.
var (
	ErrNoExport = errors.New("this is not an export of the audit log: its first line is not the header of an export")
	ErrPart     = errors.New("a filter picked these records: export the log without one to verify it")
)

// VerifyLines verifies a file that Export wrote. The chain must also contain the known places,
// kept from earlier exports, that lie in its range. A file can be forged from beginning to
// end, but not so that it contains those. Signed heads must match the chain; without keys, their signatures are not verified.
func VerifyLines(in io.Reader, keys signing.Chain, known ...Place) (Verification, error) {
	v := &verifier{known: known, heads: heads{keys: keys}}
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return v.rep, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if n == 1 {
				if err := v.lead(line); err != nil {
					return v.rep, err
				}
			} else if v.bad = v.line(line); v.bad != nil {
				v.bad.Line = n
				break
			}
		} else if n == 1 {
			return v.rep, ErrNoExport
		}
		if err != nil {
			v.bad = v.finish()
			break
		}
	}
	v.rep.Bad, v.rep.OK = v.bad, v.bad == nil
	if v.rep.OK {
		v.rep.Head = v.at
	}
	return v.rep, nil
}

// verifier verifies a file line by line.
type verifier struct {
	rep   Verification
	known []Place
	heads heads
	at    Place // the last correct record
	end   Place // the end, according to the file
	bad   *Flaw
	// tenant is whose export it is, "" for one of all. said is how many records the latest pruning left in gaps.
	tenant string
	said   uint64
	// group are the lines of the current batch, and texts are these lines as they are in the
	// file.
	group []Record
	texts [][]byte
	buf   []byte
}

func (v *verifier) lead(line []byte) error {
	var l Lead
	if err := strict(line, &l); err != nil || l.Coopr != "audit" {
		return ErrNoExport
	}
	if l.Format != lineFormat {
		return fmt.Errorf("the export has format %d, this build reads %d: use a newer coopr", l.Format, lineFormat)
	}
	if l.Part {
		return ErrPart
	}
	v.at, v.end, v.tenant = l.Anchor, l.Head, l.Tenant
	v.rep.Anchor, v.rep.Head = l.Anchor, l.Head
	v.heads.pass(v.at)
	if bad := v.meet(); bad != nil {
		return fmt.Errorf("the export begins after record %d: %s", bad.Seq, bad.Reason)
	}
	return nil
}

func strict(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return errors.New("unexpected data after the JSON value")
	}
	return nil
}

// meet compares the current place with the known place of the same number.
func (v *verifier) meet() *Flaw {
	for _, k := range v.known {
		if k.Seq == v.at.Seq && k.Hash != v.at.Hash {
			return &Flaw{Seq: k.Seq, Reason: "its hash is " + v.at.Hash.String() + ", and not the known one: this is another chain"}
		}
	}
	return nil
}

func (v *verifier) line(line []byte) *Flaw {
	want := v.at.Seq + 1
	fault := func(format string, args ...any) *Flaw { return &Flaw{Seq: want, Reason: fmt.Sprintf(format, args...)} }
	var probe struct {
		Seq    uint64          `json:"seq"`
		Digest json.RawMessage `json:"digest"`
		// Dropped is a number in the line of dropped records.
		Dropped uint64 `json:"dropped"`
	}
	if err := json.Unmarshal(line, &probe); err != nil {
		return fault("it cannot be read: %v", err)
	}
	if n := probe.Dropped; n > 0 && probe.Seq-v.at.Seq == n && probe.Seq > v.at.Seq && len(v.group) == 0 {
		return v.gap(line, fault)
	}
	switch {
	case probe.Seq > want && len(v.group) > 0:
		return fault("%d of its %d changes of tasks are missing", v.group[0].Items-len(v.group), v.group[0].Items)
	case probe.Seq > want:
		return fault("it is missing: record %d is in its place", probe.Seq)
	case probe.Seq < want:
		return fault("record %d is in its place: it is out of order, or occurs twice", probe.Seq)
	}
	if probe.Digest != nil {
		return v.hidden(line, fault)
	}
	var r Record
	if err := strict(line, &r); err != nil {
		return fault("it cannot be read: %v", err)
	}
	if r.Items == 0 && r.Item == 0 && len(v.group) == 0 {
		return v.change(r, line)
	}
	switch {
	case r.Item != len(v.group)+1 || r.Item > r.Items:
		return fault("its change of a task %d is in the place of %d", r.Item, len(v.group)+1)
	case len(v.group) > 0 && r.Items != v.group[0].Items:
		return fault("it has %d changes of tasks by one line, %d by another", v.group[0].Items, r.Items)
	}
	v.group = append(v.group, r)
	v.texts = append(v.texts, bytes.Clone(line))
	if r.Item == r.Items {
		return v.batch()
	}
	return nil
}

func (v *verifier) hidden(line []byte, fault func(string, ...any) *Flaw) *Flaw {
	var h hidden
	if err := strict(line, &h); err != nil || h.Digest == nil || len(v.group) > 0 {
		return fault("it cannot be read")
	}
	v.rep.Hidden++
	next := v.at.next(*h.Digest)
	return v.step(next, []any{hidden{Seq: next.Seq, Digest: h.Digest, Hash: next.Hash}}, [][]byte{line})
}

// gap goes on after dropped records. Their hash is taken on trust, as that before the first record is.
func (v *verifier) gap(line []byte, fault func(string, ...any) *Flaw) *Flaw {
	var d dropped
	if err := strict(line, &d); err != nil {
		return fault("it cannot be read")
	}
	v.rep.Dropped += d.Dropped
	v.at = Place{Seq: d.Seq, Hash: d.Hash}
	v.heads.gaps = true
	v.heads.pass(v.at)
	return v.meet()
}

// droppedBy returns how many records the record of a pruning says to be in gaps.
func droppedBy(after json.RawMessage) uint64 {
	var doc struct{ Dropped uint64 }
	_ = json.Unmarshal(after, &doc) // without the field there are none
	return doc.Dropped
}

func (v *verifier) change(r Record, line []byte) *Flaw {
	c := Change{
		Index: r.Index, Time: r.Time, Type: r.Type, Tenant: r.Tenant, Actor: r.Actor, Request: r.Request,
		Source: r.Source, Agent: r.Agent, Cluster: r.Cluster, Operation: r.Operation, Node: r.Node, Subject: r.Subject, Message: r.Message,
	}
	var err1, err2 error
	if r.Before != nil {
		c.Before, err1 = Canonical(r.Before)
	}
	if r.After != nil {
		c.After, err2 = Canonical(r.After)
	}
	if err1 != nil || err2 != nil {
		return &Flaw{Seq: r.Seq, Reason: "it cannot be read"}
	}
	v.buf = c.canonical(v.buf[:0])
	next := v.at.next(sha256.Sum256(v.buf))
	v.rep.Records++
	if c.Type == TypePruned {
		v.said = droppedBy(c.After)
	}
	if bad := v.step(next, []any{c.record(next)}, [][]byte{line}); bad != nil || c.Type != TypeSigned {
		return bad
	}
	if reason := v.heads.record(c.After, v.rep.Anchor, &v.rep); reason != "" {
		return &Flaw{Seq: r.Seq, Reason: reason}
	}
	return nil
}

// batch verifies a batch of changes of tasks, once all of its lines have been read.
func (v *verifier) batch() *Flaw {
	first := v.group[0]
	b := canonicalHead(
		v.buf[:0],
		first.Index,
		first.Time,
		[...]string{first.Tenant, first.Actor, first.Request, first.Cluster, first.Operation},
		len(v.group),
	)
	steps := make([]TaskChange, len(v.group))
	for i := range v.group {
		r := &v.group[i]
		if err := steps[i].read(r); err != nil {
			return &Flaw{Seq: first.Seq, Reason: fmt.Sprintf("its change of a task %d cannot be read: %v", i+1, err)}
		}
		b = steps[i].canonical(b, r.Action, r.Node, r.Service)
	}
	v.buf = b
	next := v.at.next(sha256.Sum256(b))
	want := make([]any, len(v.group))
	for i := range v.group {
		r := v.group[i]
		r.Index, r.Time, r.Tenant, r.Actor = first.Index, first.Time, first.Tenant, first.Actor
		r.Request, r.Cluster, r.Operation = first.Request, first.Cluster, first.Operation
		r.Message, r.Subject, r.Hash = "", "", next.Hash.String()
		steps[i].describe(&r)
		want[i] = r
	}
	v.rep.Records += uint64(len(v.group))
	texts := v.texts
	v.group, v.texts = v.group[:0], nil
	return v.step(next, want, texts)
}

// read decodes a step from its record.
func (t *TaskChange) read(r *Record) error {
	var before, after taskState
	if err := errors.Join(strict(r.Before, &before), strict(r.After, &after)); err != nil {
		return err
	}
	op, v, err := model.TaskID(r.Task).Split()
	if err != nil || string(op) != r.Operation {
		return fmt.Errorf("task %q does not belong to operation %q", r.Task, r.Operation)
	}
	*t = TaskChange{Vertex: v, From: before.Status, To: after.Status, Attempt: after.Attempt, Fence: after.Fence, Agent: after.Agent}
	if after.Outcome != "" || r.Message != "" {
		t.End = &End{Outcome: after.Outcome, Message: r.Message}
	}
	return nil
}

// step moves to the next place if the lines match the expected ones exactly.
func (v *verifier) step(next Place, want []any, lines [][]byte) *Flaw {
	for i, w := range want {
		b, err := json.Marshal(w)
		if err != nil {
			return &Flaw{Seq: next.Seq, Reason: err.Error()}
		}
		if !bytes.Equal(b, lines[i]) && !same(b, lines[i]) {
			return &Flaw{Seq: next.Seq, Reason: changed}
		}
	}
	v.at = next
	v.heads.pass(next)
	return v.meet()
}

// same reports whether two texts are the same JSON.
func same(a, b []byte) bool {
	x, err1 := Canonical(a)
	y, err2 := Canonical(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

func (v *verifier) finish() *Flaw {
	next := v.at.Seq + 1
	switch {
	case len(v.group) > 0:
		return &Flaw{Seq: next, Reason: fmt.Sprintf("%d of its %d changes of tasks are missing", v.group[0].Items-len(v.group), v.group[0].Items)}
	case v.at.Seq < v.end.Seq:
		return &Flaw{Seq: next, Reason: fmt.Sprintf("it is missing: the file ends before record %d", v.end.Seq)}
	case v.tenant == "" && v.rep.Dropped > v.said:
		return &Flaw{Seq: v.at.Seq, Reason: fmt.Sprintf(
			"the file has gaps of %d records, and the mesh has removed %d: the others were taken out of it",
			v.rep.Dropped, v.said)}
	case v.at != v.end:
		return &Flaw{Seq: v.at.Seq, Reason: "the file's first line has another end of the chain"}
	}
	return nil
}
