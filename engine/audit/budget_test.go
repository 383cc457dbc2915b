package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"testing"
)

// TestBudget writes a million records of one tenant between those of others. Nothing is dropped of theirs, and the rest is a chain.
func TestBudget(t *testing.T) {
	const most = 100_000
	write := 1_000_000
	if testing.Short() {
		write = 200_000
	}
	tr, dropped := &Trail{}, uint64(0)
	w := tr.Write()
	quiet := map[string]uint64{}
	for i := range write {
		tenant := "loud"
		if i%1000 == 0 {
			tenant = fmt.Sprint("quiet-", i/1000%7)
			quiet[tenant]++
		}
		w.Change(&Change{Index: uint64(i), Time: int64(i), Type: "definition.created", Tenant: tenant})
		if i%20_000 == 19_999 {
			keep := Share(w.Done().Usage(), most, 0)
			dropped += w.Prune(Limits{Tenants: keep}, nil)
		}
	}
	tr = w.Done()
	kept := map[string]uint64{}
	for _, u := range tr.Usage() {
		kept[u.Tenant] = u.Records
	}
	loud := kept["loud"]
	delete(kept, "loud")
	if !maps.Equal(kept, quiet) {
		t.Errorf("the others have %v, not %v", kept, quiet)
	}
	s := tr.Stats()
	if s.Records > most || loud < most/2 || dropped+s.Records != uint64(write) {
		t.Errorf("%+v, %d of the loud one, %d dropped", s, loud, dropped)
	}
	rep := tr.Verify(nil)
	if !rep.OK || rep.Records != s.Records || rep.Dropped == 0 || rep.Head != s.Head {
		t.Errorf("%+v %+v", rep, rep.Bad)
	}
	if rep.Dropped != s.Dropped {
		t.Errorf("%d dropped, or %d", rep.Dropped, s.Dropped)
	}
	w.Change(&Change{Type: TypePruned, After: json.RawMessage(fmt.Sprintf(`{"dropped":%d}`, s.Dropped))})
	tr = w.Done()
	s = tr.Stats()
	if lines := verify(t, export(t, tr, Filter{}, 0), s.Head); !lines.OK || lines.Dropped != rep.Dropped || lines.Records != s.Records {
		t.Errorf("the export: %+v %+v", lines, lines.Bad)
	}
	if n := len(tr.full); uint64(n) > 2*s.Bytes/chunkSize+2 {
		t.Errorf("%d chunks for %d bytes", n, s.Bytes)
	}
}

// TestForgedGap takes records out of an export and puts a gap in their place.
func TestForgedGap(t *testing.T) {
	w := (&Trail{}).Write()
	for i := range 20 {
		w.Change(&Change{Index: uint64(i), Time: int64(i), Type: "a", Tenant: []string{"one", "two"}[i%2]})
	}
	forge := func(tenant string, ok bool) {
		t.Helper()
		tr := w.Done()
		file := export(t, tr, Filter{Tenant: tenant}, 0)
		if rep := verify(t, file, tr.Stats().Head); !rep.OK || rep.Dropped != tr.Stats().Dropped {
			t.Fatalf("%+v %+v", rep, rep.Bad)
		}
		lines := bytes.SplitAfter(file, []byte("\n"))
		at := len(lines) - 4
		var r struct {
			Seq  uint64
			Hash Hash
		}
		if err := json.Unmarshal(lines[at], &r); err != nil {
			t.Fatal(err)
		}
		lines[at] = append(must(t, dropped{Seq: r.Seq, Dropped: 1, Hash: r.Hash}), '\n')
		if rep := verify(t, bytes.Join(lines, nil), tr.Stats().Head); rep.OK != ok {
			t.Errorf("tenant %q: %+v %+v", tenant, rep, rep.Bad)
		}
	}
	forge("", false)
	w.Prune(Limits{Tenants: map[string]uint64{"two": 5}}, nil)
	n := w.Done().Stats().Dropped
	w.Change(&Change{Index: 30, Time: 30, Type: TypePruned, After: json.RawMessage(fmt.Sprintf(`{"dropped":%d}`, n))})
	w.Change(&Change{Index: 31, Time: 31, Type: "a", Tenant: "one"})
	w.Change(&Change{Index: 32, Time: 32, Type: "a", Tenant: "one"})
	if n != 5 {
		t.Errorf("%d dropped", n)
	}
	forge("", false)
	forge("one", true) // the record of the pruning is not the tenant's
}

// TestFrontOfGaps drops by tenant and by time, in turn. The trail goes through its pieces unchanged each time.
func TestFrontOfGaps(t *testing.T) {
	w := (&Trail{}).Write()
	for i := range 20_000 {
		tenant := "loud"
		if i%(1+i/1000*37) == 0 {
			tenant = "quiet"
		}
		w.Change(&Change{Index: uint64(i), Time: int64(i), Type: "a", Tenant: tenant})
	}
	for i := range 60 {
		w.Prune(Limits{Before: int64(i * 331), Tenants: map[string]uint64{"loud": uint64(10_000 - i*160)}}, nil)
		tr := w.Done()
		s, rep := tr.Stats(), tr.Verify(nil)
		if !rep.OK || rep.Dropped != s.Dropped || rep.Records != s.Records {
			t.Fatalf("%d: %+v %+v, %+v", i, rep, rep.Bad, s)
		}
		var d Decoder
		if err := tr.Encode(d.Add); err != nil {
			t.Fatal(err)
		}
		if back, err := d.Done(); err != nil || back.Stats() != s {
			t.Fatalf("%d: %+v, %+v, %v", i, back.Stats(), s, err)
		}
		if first := tr.chunks()[0]; first.records > 0 {
			_ = first.walk(func(e entry) bool {
				if _, ok := gapOf(e.body); ok {
					t.Fatalf("%d: it begins with a gap", i)
				}
				return false
			})
		}
	}
}

func TestShare(t *testing.T) {
	use := func(records ...uint64) (out []Usage) {
		for i, n := range records {
			out = append(out, Usage{Tenant: string(rune('a' + i)), Records: n, Bytes: 10 * n})
		}
		return out
	}
	for _, tt := range []struct {
		usage          []Usage
		records, bytes uint64
		want           map[string]uint64
	}{
		{use(), 10, 10, map[string]uint64{}},
		{use(5, 5), 10, 100, map[string]uint64{}},
		{use(5, 5), 0, 0, map[string]uint64{}},
		{use(1, 100), 10, 0, map[string]uint64{"b": 9}},
		{use(1, 100, 100), 21, 0, map[string]uint64{"b": 10, "c": 10}},
		{use(1, 100), 10, 50, map[string]uint64{"b": 4}},
		{use(1, 100), 1000, 510, map[string]uint64{"b": 50}},
	} {
		if got := Share(tt.usage, tt.records, tt.bytes); !maps.Equal(got, tt.want) {
			t.Errorf("%+v of %d, %d: %v, not %v", tt.usage, tt.records, tt.bytes, got, tt.want)
		}
	}
}
