package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
)

func samplePlan(op, tenant string, n int) *Plan {
	p := &Plan{ID: op + "@1", Operation: op, Tenant: tenant, Cluster: "c-" + op, Services: []string{"db", "app"}}
	for i := range n {
		p.Nodes = append(p.Nodes, string(model.OperationID(op).Cluster().Node(1000+i)))
		p.Node = append(p.Node, int32(i), int32(i))
		p.Service = append(p.Service, -1, int16(i%2))
		p.Action = append(p.Action, model.Create, model.Install)
	}
	return p
}

// draw writes a random trail.
func draw(t *rapid.T, w *Writer, plans []*Plan, n int) {
	for i := range n {
		index := uint64(i + 10)
		if rapid.IntRange(0, 2).Draw(t, "kind") == 0 {
			c := &Change{Index: index, Time: int64(1000 + i), Type: rapid.SampledFrom([]string{"tenant.changed", "operation.order"}).Draw(t, "type"),
				Tenant: rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "tenant"), Actor: rapid.StringN(0, 4, -1).Draw(t, "actor"),
				Message: rapid.StringN(0, 9, -1).Draw(t, "message")}
			if rapid.Bool().Draw(t, "request") {
				c.Source, c.Agent = rapid.StringN(0, 3, -1).Draw(t, "source"), "a"
			}
			if rapid.Bool().Draw(t, "after") {
				c.After = json.RawMessage(`{"a":{"b":1},"c":"\u003cx\u003e"}`)
			}
			for _, s := range c.texts(kindRequest) {
				*s = strings.ToValidUTF8(*s, "?")
			}
			w.Change(c)
			continue
		}
		b := &Tasks{Plan: rapid.SampledFrom(plans).Draw(t, "plan"), Index: index, Time: int64(1000 + i), Actor: "coopr"}
		for range rapid.IntRange(1, 5).Draw(t, "items") {
			it := TaskChange{
				Vertex: uint32(rapid.IntRange(0, len(b.Plan.Action)-1).Draw(t, "vertex")),
				From:   model.TaskStatus(rapid.IntRange(0, 7).Draw(t, "from")), To: model.TaskStatus(rapid.IntRange(0, 7).Draw(t, "to")),
			}
			if rapid.Bool().Draw(t, "attempt") {
				it.Attempt, it.Fence, it.Agent = uint8(rapid.IntRange(1, 3).Draw(t, "number")), uint64(rapid.IntRange(1, 9).Draw(t, "fence")),
					rapid.SampledFrom([]string{"a", "b"}).Draw(t, "agent")
			}
			if rapid.IntRange(0, 3).Draw(t, "end") == 0 {
				it.End = &End{Outcome: "failed", Message: "no <room>"}
			}
			b.Items = append(b.Items, it)
		}
		w.Tasks(b)
	}
}

func all(t interface{ Fatal(...any) }, tr *Trail, f Filter, newest bool) []Record {
	var out []Record
	if err := tr.Each(&f, newest, Cursor{}, func(r Record) bool { out = append(out, r); return true }); err != nil {
		t.Fatal(err)
	}
	return out
}

func export(t interface{ Fatal(...any) }, tr *Trail, f Filter, after uint64) []byte {
	var b bytes.Buffer
	if err := tr.Export(&b, f, after); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func verify(t interface{ Fatal(...any) }, file []byte, known ...Place) Verification {
	rep, err := VerifyLines(bytes.NewReader(file), nil, known...)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestTrail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plans := []*Plan{samplePlan("o1", "one", 3), samplePlan("o2", "two", 2)}
		tr := &Trail{}
		var moments []*Trail
		var said [][]Record
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			w := tr.Write()
			draw(t, w, plans, rapid.IntRange(0, 8).Draw(t, "records"))
			if rapid.IntRange(0, 3).Draw(t, "prune") == 0 {
				w.Prune(Limits{Before: int64(rapid.IntRange(0, 1008).Draw(t, "before")), Keep: uint64(rapid.IntRange(0, 20).Draw(t, "keep"))}, nil)
			}
			if rapid.IntRange(0, 2).Draw(t, "budget") == 0 {
				had := map[string]uint64{}
				for _, u := range w.Done().Usage() {
					had[u.Tenant] = u.Records
				}
				l := Limits{Tenants: map[string]uint64{"one": uint64(rapid.IntRange(0, 9).Draw(t, "one")), "": uint64(rapid.IntRange(0, 3).Draw(t, "mesh"))},
					UpTo: uint64(rapid.IntRange(0, 20).Draw(t, "up to"))}
				w.Prune(l, nil)
				for _, u := range w.Done().Usage() {
					if keep, ok := l.Tenants[u.Tenant]; ok && l.UpTo == 0 && u.Records > keep || !ok && u.Records != had[u.Tenant] {
						t.Fatalf("%+v by %+v; it had %d", u, l, had[u.Tenant])
					}
				}
			}
			tr = w.Done()
			moments, said = append(moments, tr), append(said, all(t, tr, Filter{}, false))
		}
		for i, m := range moments {
			if got := all(t, m, Filter{}, false); !same(must(t, got), must(t, said[i])) {
				t.Fatal("a trail changed behind its readers' backs")
			}
		}
		if rep := tr.Verify(nil); !rep.OK || rep.Records != tr.Stats().Records || rep.Head != tr.Stats().Head {
			t.Fatalf("%+v %+v, stats %+v", rep, rep.Bad, tr.Stats())
		}
		// Encoding and decoding result in the same bytes, and both trails continue in the same
		// way.
		var pieces [][]byte
		_ = tr.Encode(func(b []byte) error { pieces = append(pieces, b); return nil })
		var d Decoder
		for _, p := range pieces {
			if err := d.Add(p); err != nil {
				t.Fatal(err)
			}
		}
		back, err := d.Done()
		if err != nil {
			t.Fatal(err)
		}
		if x, y := back.Stats(), tr.Stats(); x != y {
			t.Fatalf("%+v, %+v", x, y)
		}
		wa, wb := tr.Write(), back.Write()
		for _, w := range []*Writer{wa, wb} {
			w.Change(&Change{Index: 99, Time: 5000, Type: "tenant.changed"})
			w.Prune(Limits{Before: 1003, Keep: 30}, nil)
		}
		if x, y := wa.Done(), wb.Done(); x.Stats() != y.Stats() ||
			!same(must(t, all(t, x, Filter{}, false)), must(t, all(t, y, Filter{}, false))) {
			t.Fatal("the chain goes on otherwise after a round through pieces")
		}
		// Filters and pages return the same records as a scan of the whole trail.
		f := Filter{Tenant: rapid.SampledFrom([]string{"", "one"}).Draw(t, "f.tenant"),
			Operation: rapid.SampledFrom([]string{"", "o1"}).Draw(t, "f.op"), Node: rapid.SampledFrom([]string{"", "o1-1001"}).Draw(t, "f.node"),
			Since: int64(rapid.IntRange(0, 1004).Draw(t, "f.since")), Until: int64(rapid.IntRange(0, 1).Draw(t, "f.until") * 1006)}
		if rapid.Bool().Draw(t, "f.types") {
			f.Types = []string{"task.*"}
		}
		var want []Record
		for _, r := range all(t, tr, Filter{}, false) {
			if fits(f.Tenant, r.Tenant) && fits(f.Operation, r.Operation) && fits(f.Node, r.Node) && f.period(r.Time, r.Time) &&
				f.wantsType(r.Type) {
				want = append(want, r)
			}
		}
		for _, newest := range []bool{false, true} {
			var got []Record
			for from := (Cursor{}); ; {
				n := 0
				if err := tr.Each(&f, newest, from, func(r Record) bool {
					got, from = append(got, r), CursorOf(&r)
					n++
					return n < 3
				}); err != nil {
					t.Fatal(err)
				}
				if n < 3 {
					break
				}
			}
			if newest {
				slices.Reverse(got)
			}
			if !same(must(t, got), must(t, want)) {
				t.Fatalf("newest %v: %d records by pages, %d by hand", newest, len(got), len(want))
			}
		}
	})
}

func must(t interface{ Fatal(...any) }, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTampering: every change of an export is detected, unless the changed export has the same
// meaning.
func TestTampering(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plans := []*Plan{samplePlan("o1", "one", 3), samplePlan("o2", "two", 2)}
		w := (&Trail{}).Write()
		draw(t, w, plans, rapid.IntRange(2, 8).Draw(t, "records"))
		tr := w.Done()
		f := Filter{Tenant: rapid.SampledFrom([]string{"", "one"}).Draw(t, "tenant")}
		after := uint64(rapid.IntRange(0, 1).Draw(t, "after"))
		file := export(t, tr, f, after)
		if rep := verify(t, file, tr.Stats().Head); !rep.OK || rep.Head != tr.Stats().Head {
			t.Fatalf("untouched: %+v %+v", rep, rep.Bad)
		}
		lines := bytes.Split(bytes.TrimSpace(file), []byte("\n"))
		if len(lines) < 3 {
			return
		}
		at := rapid.IntRange(1, len(lines)-1).Draw(t, "line")
		touched := slices.Clone(lines)
		first := at // the first line that was tampered with
		switch what := rapid.IntRange(0, 5).Draw(t, "what"); what {
		case 0: // a byte
			i := rapid.IntRange(0, len(lines[at])-1).Draw(t, "byte")
			touched[at] = bytes.Clone(lines[at])
			touched[at][i] ^= byte(1 << rapid.IntRange(0, 6).Draw(t, "bit"))
		case 1: // out
			touched = slices.Delete(touched, at, at+1)
		case 2: // order
			other := rapid.IntRange(1, len(lines)-1).Draw(t, "other")
			touched[at], touched[other] = touched[other], touched[at]
			first = min(at, other)
		case 3: // twice
			touched = slices.Insert(touched, at, lines[at])
		case 4: // the end
			touched = touched[:at]
		case 5: // a field
			var m map[string]any
			_ = json.Unmarshal(lines[at], &m)
			name := rapid.SampledFrom(slices.Sorted(func(yield func(string) bool) {
				for k := range m {
					if !yield(k) {
						return
					}
				}
			})).Draw(t, "field")
			switch v := m[name].(type) {
			case string:
				m[name] = v + "x"
			case float64:
				m[name] = v + 1
			default:
				delete(m, name)
			}
			touched[at] = must(t, m)
		}
		if len(touched) == len(lines) && slices.EqualFunc(touched, lines, func(a, b []byte) bool { return bytes.Equal(a, b) || same(a, b) }) {
			return
		}
		rep := verify(t, append(bytes.Join(touched, []byte("\n")), '\n'))
		if rep.OK || rep.Bad == nil {
			t.Fatalf("it does not show:\n%s", bytes.Join(touched, []byte("\n")))
		}
		// No record before it is reported as wrong.
		var r struct{ Seq uint64 }
		_ = json.Unmarshal(lines[first], &r)
		if rep.Bad.Seq < r.Seq {
			t.Fatalf("line %d (record %d) was touched, and record %d is blamed: %s", first+1, r.Seq, rep.Bad.Seq, rep.Bad.Reason)
		}
	})
}

// TestTamperedState flips bits of the stored trail.
func TestTamperedState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := (&Trail{}).Write()
		draw(t, w, []*Plan{samplePlan("o1", "one", 3)}, rapid.IntRange(2, 8).Draw(t, "records"))
		tr := w.Done()
		if len(tr.tail.data) == 0 {
			return
		}
		c := *tr.tail
		c.data = bytes.Clone(c.data)
		i := rapid.IntRange(0, len(c.data)-1).Draw(t, "byte")
		c.data[i] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		bad := *tr
		bad.tail = &c
		before, after := all(t, tr, Filter{}, false), []Record(nil)
		err := bad.Each(&Filter{}, false, Cursor{}, func(r Record) bool { after = append(after, r); return true })
		if err == nil && reflect.DeepEqual(before, after) {
			return // encoded in another way, but with the same meaning
		}
		if rep := bad.Verify(nil); rep.OK {
			t.Fatal("it does not show")
		}
	})
}

func TestPruned(t *testing.T) {
	w := (&Trail{}).Write()
	for i := range 5000 { // several chunks
		w.Change(&Change{Index: uint64(i), Time: int64(i), Type: "tenant.changed", Subject: strings.Repeat("x", 50)})
	}
	full := w.Done()
	if len(full.full) < 3 {
		t.Fatalf("%d chunks", len(full.full))
	}
	w = full.Write()
	if n := w.Prune(Limits{Before: 1234, Keep: 0}, nil); n != 1234 {
		t.Errorf("%d dropped", n)
	}
	if n := w.Prune(Limits{Before: 0, Keep: 2000}, nil); n != 1766 {
		t.Errorf("%d dropped", n)
	}
	tr := w.Done()
	s := tr.Stats()
	if s.Records != 2000 || s.Oldest != 3000 || s.Anchor.Seq != 3000 || s.Head != full.Stats().Head {
		t.Errorf("%+v", s)
	}
	if rep := tr.Verify(nil); !rep.OK || rep.Records != 2000 || rep.Anchor.Seq != 3000 {
		t.Errorf("%+v", rep)
	}
	if rep := verify(t, export(t, tr, Filter{}, 0)); !rep.OK || rep.Records != 2000 {
		t.Errorf("%+v", rep)
	}
	if err := tr.Export(&bytes.Buffer{}, Filter{}, 100); !errors.Is(err, ErrPruned) {
		t.Error(err)
	}
	if err := tr.Each(&Filter{}, false, Cursor{Seq: 100}, func(Record) bool { return true }); !errors.Is(err, ErrPruned) {
		t.Error(err)
	}
	if rep := verify(t, export(t, tr, Filter{}, 4990)); !rep.OK || rep.Records != 10 {
		t.Errorf("%+v", rep)
	}
	// Parts of one log fit together; parts of different logs do not.
	if rep := verify(t, export(t, tr, Filter{}, 0), Place{Seq: 4990, Hash: Hash{1}}); rep.OK || rep.Bad.Seq != 4990 {
		t.Errorf("%+v", rep)
	}
	if _, err := VerifyLines(bytes.NewReader(export(t, tr, Filter{Actor: "x"}, 0)), nil); !errors.Is(err, ErrPart) {
		t.Error(err)
	}
	if _, err := VerifyLines(strings.NewReader("{}\n"), nil); !errors.Is(err, ErrNoExport) {
		t.Error(err)
	}
	w = tr.Write()
	if n := w.Prune(Limits{Before: 1 << 40, Keep: 0}, nil); n != 2000 {
		t.Errorf("%d dropped", n)
	}
	w.Change(&Change{Index: 1, Time: 1, Type: "x"})
	if tr = w.Done(); tr.Stats().Anchor != full.Stats().Head || !tr.Verify(nil).OK || tr.Stats().Records != 1 {
		t.Errorf("%+v", tr.Stats())
	}
}

func TestDiff(t *testing.T) {
	doc := func(s string) Document {
		if s == "" {
			return Document{}
		}
		d, err := NewDocument(json.RawMessage(s), func(m map[string]any) map[string]any { return model.RedactFields(model.PluginType{}, m) })
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	long := `"` + strings.Repeat("x", MaxValue) + `"`
	for _, tt := range []struct{ name, before, after, was, is string }{
		{"made", "", `{"b":1,"a":"x"}`, "", `{"a":"x","b":1}`},
		{"gone", `{"a":1}`, "", `{"a":1}`, ""},
		{"same", `{"a":1,"version":1}`, `{"a":1,"version":2}`, "", ""},
		{"a field", `{"a":1,"b":2}`, `{"a":1,"b":3,"c":4}`, `{"b":2}`, `{"b":3,"c":4}`},
		{"deep", `{"m":{"x":1,"y":{"z":1}}}`, `{"m":{"x":1,"y":{"z":2}}}`, `{"m":{"y":{"z":1}}}`, `{"m":{"y":{"z":2}}}`},
		{"secret", `{"m":{"password":"a"},"n":1}`, `{"m":{"password":"b"},"n":1}`, `{"m":{"password":"[redacted]"}}`,
			`{"m":{"password":"[redacted]"}}`},
		{"secret object", `{"token":{"v":1}}`, `{"token":{"v":2}}`, `{"token":"[redacted]"}`, `{"token":"[redacted]"}`},
		{"large", `{"a":1}`, `{"a":` + long + `}`, `{"a":1}`, `{"a":{"bytes":2050,"sha256":"`},
	} {
		was, is := Diff(doc(tt.before), doc(tt.after))
		if string(was) != tt.was || !strings.HasPrefix(string(is), tt.is) || (tt.is == "") != (is == nil) {
			t.Errorf("%s: %s → %s", tt.name, was, is)
		}
	}
}

func FuzzVerifyLines(f *testing.F) {
	w := (&Trail{}).Write()
	w.Change(&Change{Index: 1, Time: 1, Type: "tenant.changed", After: json.RawMessage(`{"a":1}`)})
	w.Tasks(&Tasks{Plan: samplePlan("o1", "one", 1), Index: 2,
		Items: []TaskChange{{From: 0, To: 1}, {Vertex: 1, From: 2, To: 5, Attempt: 1, Fence: 1, Agent: "a", End: &End{"failed", "m"}}}})
	tr := w.Done()
	f.Add(export(f, tr, Filter{}, 0))
	f.Add(export(f, tr, Filter{Tenant: "one"}, 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, _ = VerifyLines(bytes.NewReader(file), nil)
	})
}

// FuzzParseCursor reads places in the chain that users name. A place that is accepted is the
// same when it is printed and read again.
func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"", "17", "17.3", "17.0", "0.1", "17.", ".3", "17.-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err != nil {
			return
		}
		if again, err := ParseCursor(c.String()); err != nil || again != c {
			t.Errorf("%q is %s, which comes back as %s: %v", s, c, again, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	w := (&Trail{}).Write()
	w.Tasks(&Tasks{Plan: samplePlan("o1", "one", 1), Index: 2, Items: []TaskChange{{From: 0, To: 1}}})
	var pieces [][]byte
	_ = w.Done().Encode(func(b []byte) error { pieces = append(pieces, b); return nil })
	f.Add(pieces[1], pieces[2])
	f.Fuzz(func(t *testing.T, plan, chunk []byte) {
		var d Decoder
		_ = d.Add(pieces[0])
		_ = d.Add(plan)
		if d.Add(chunk) == nil {
			if tr, err := d.Done(); err == nil {
				_ = tr.Verify(nil)
				_ = tr.Each(&Filter{}, false, Cursor{}, func(Record) bool { return true })
			}
		}
	})
}
