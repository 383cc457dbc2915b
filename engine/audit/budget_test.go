package audit

import (
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
	rep := tr.Verify()
	if !rep.OK || rep.Records != s.Records || rep.Dropped == 0 || rep.Head != s.Head {
		t.Errorf("%+v %+v", rep, rep.Bad)
	}
	if lines := verify(t, export(t, tr, Filter{}, 0), s.Head); !lines.OK || lines.Dropped != rep.Dropped || lines.Records != s.Records {
		t.Errorf("the export: %+v %+v", lines, lines.Bad)
	}
	if n := len(tr.full); uint64(n) > 2*s.Bytes/chunkSize+2 {
		t.Errorf("%d chunks for %d bytes", n, s.Bytes)
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
