package listing_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/listing"
)

func shape(t testing.TB) *listing.Shape {
	t.Helper()
	s, err := listing.ShapeOf[row]("id")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask parses a query, which must be right.
func ask(t interface {
	Helper()
	Fatalf(string, ...any)
}, s *listing.Shape, query url.Values) *listing.Query {
	t.Helper()
	q, faults := s.Parse("GET /v1/rows", query)
	if len(faults) > 0 {
		t.Fatalf("%v: %v", query, faults)
	}
	return q
}

func encode[T any](rows []T, fields []string) (string, error) {
	var b strings.Builder
	err := listing.Encode(&b, rows, fields)
	return b.String(), err
}

func ids(rows []row) []string {
	out := []string{}
	for _, r := range rows {
		out = append(out, r.ID)
	}
	return out
}

var examples = []row{
	{ID: "1", Name: "Shop", Nodes: 9, Template: labelled{"web"}, Labels: map[string]string{"team": "red", "example.com/tier": "1"},
		Services: []string{"nginx", "php"}, Status: model.TaskRunning, Password: model.NewSecret("hunter2"), common: common{"bob"}},
	{ID: "2", Name: "a, b", Nodes: 10, Broken: true, Template: labelled{"db"}, Services: []string{"mysql"}, Parts: []labelled{{"x"}, {"y"}},
		Results: map[string]any{"port": 80.0, "deep": map[string]any{"er": "yes"}}, Password: model.NewSecret("hunter3"), Hidden: "h"},
	{ID: "10", Name: "ÄRGER", Nodes: 10, Health: &labelled{"ill"}, Labels: map[string]string{"team": "blue|green"}, Password: model.NewSecret("")},
}

func TestFilter(t *testing.T) {
	t.Parallel()
	s := shape(t)
	for filter, want := range map[string]string{
		"":                            "1 2 10",
		"name=Shop":                   "1",
		"name=shop":                   "",
		"name~SHO":                    "1",
		"name~ärg":                    "10",
		"name!=Shop":                  "2 10",
		"name≠Shop|ÄRGER":             "2",
		"nodes=10":                    "2 10",
		"nodes=10,broken=false":       "10",
		"broken=true":                 "2",
		"template.name=web|db":        "1 2",
		"labels.team=":                "2",
		"labels.team!=":               "1 10",
		"labels.team!=red":            "2 10",
		"labels.example.com/tier=1":   "1",
		`labels.team="blue|green"`:    "10",
		`name="a, b" , broken = true`: "2",
		"services=php":                "1",
		"services!=php":               "2 10",
		"services=":                   "10",
		"parts.name=y":                "2",
		"health.name=ill":             "10",
		"health.name=":                "1 2",
		"results.port=80":             "2",
		"results.deep.er~ye":          "2",
		"results.none=x":              "",
		"status=running":              "1",
		"owner=bob":                   "1",
		"password=[redacted]":         "1 2 10",
		"password=hunter2":            "",
		"password~hunter":             "",
	} {
		page := listing.Select(ask(t, s, url.Values{"filter": {filter}}), listing.Of(examples))
		if got := strings.Join(ids(page.Rows), " "); got != want || page.Total != len(page.Rows) {
			t.Errorf("%s: %s, not %s; total %d", filter, got, want, page.Total)
		}
	}
}

// TestFilterByReferences filters by the name of an encrypted value, which answers do not have.
func TestFilterByReferences(t *testing.T) {
	t.Parallel()
	s := shape(t)
	a, b := model.SealedRef{ID: "abc", Version: 1}.String(), model.SealedRef{ID: "def", Version: 1}.String()
	rows := []row{
		{ID: "1", Name: "see " + a, Results: map[string]any{"key": a}}, {ID: "2", Name: "see " + b, Results: map[string]any{"key": b}},
	}
	for filter, want := range map[string]string{
		"results.key~abc":              "",
		"results.key~sealed":           "",
		"results.key=coopr-sealed:abc": "",
		"results.key=[redacted]":       "1 2",
		"name~abc":                     "",
		"name=see [redacted]":          "1 2",
	} {
		page := listing.Select(ask(t, s, url.Values{"filter": {filter}}), listing.Of(rows))
		if got := strings.Join(ids(page.Rows), " "); got != want {
			t.Errorf("%s: %s, not %s", filter, got, want)
		}
	}
	page := listing.Select(ask(t, s, url.Values{"sort": {"-name"}, "limit": {"1"}}), listing.Of(rows))
	if next, err := base64.RawURLEncoding.DecodeString(page.Next); err != nil || bytes.Contains(next, []byte("coopr-sealed:")) {
		t.Errorf("a cursor has the name of an encrypted value: %s %v", next, err)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := shape(t)
	for query, want := range map[string]string{
		"filter=nam%3Dx":           `did you mean "name"?`,
		"filter=Hidden%3Dh":        "unknown field",
		"filter=name":              "write field=value",
		"filter=name%3Dx,":         "behind the last comma",
		"filter=name%3D%22x":       "not closed",
		"filter=name%3Dx%22":       "JSON string",
		"filter=name%7E":           "missing",
		"filter=labels%3Dx":        "labels.NAME",
		"filter=name.x%3D1":        "has no fields",
		"filter=password.text%3D1": "has no fields",
		"filter==x":                "lacks its name",
		"sort=services":            "several values",
		"sort=template":            "is an object",
		"sort=name,":               "lacks its name",
		"sort=id,id,id,id,id,id":   "at most 5",
		"limit=x":                  "whole number",
		"limit=-1":                 "whole number",
		"count=maybe":              "true or false",
		"fields=nothing":           "unknown field",
		"cursor=x":                 "no cursor",
		"cursor=AAAAAAAAAAAAAAAA":  "begin without a cursor",
		"filter=" + strings.Repeat("id%3D1,", 50) + "id%3D1": "at most 50",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, faults := s.Parse("", values); len(faults) == 0 || !strings.Contains(faults.Error(), want) {
			t.Errorf("%s: %v lacks %q", query, faults, want)
		}
	}
	for _, order := range []string{"", "nothing", "services", "labels"} {
		if _, err := listing.ShapeOf[row](order); err == nil {
			t.Errorf("the order %q was accepted", order)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	s, err := listing.ShapeOf[string](listing.TextField)
	if err != nil {
		t.Fatal(err)
	}
	q := ask(t, s, url.Values{"filter": {"name~o"}, "sort": {"-name"}, "fields": {"name"}})
	page := listing.Select(q, listing.Of([]string{"one", "two", "three"}))
	data, err := encode(page.Rows, q.Fields())
	if err != nil || strings.TrimSpace(data) != `["two","one"]` {
		t.Errorf("%s %v", data, err)
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		"id,template.name":                   `[{"id":"2","template":{"name":"db"}}]`,
		"labels.team,parts.name,nodes":       `[{"nodes":10,"parts":[{"name":"x"},{"name":"y"}]}]`,
		"results.deep.er,results":            `[{"results":{"deep":{"er":"yes"},"port":80}}]`,
		"results,results.deep.er,password":   `[{"password":"[redacted]","results":{"deep":{"er":"yes"},"port":80}}]`,
		"results.port,results.deep.er,owner": `[{"results":{"deep":{"er":"yes"},"port":80}}]`,
	} {
		q := ask(t, shape(t), url.Values{"fields": {fields}, "filter": {"id=2"}})
		data, err := encode(listing.Select(q, listing.Of(examples)).Rows, q.Fields())
		if err != nil || strings.TrimSpace(data) != want {
			t.Errorf("%s: %s, not %s (%v)", fields, data, want, err)
		}
	}
	if data, err := encode[row](nil, nil); err != nil || strings.TrimSpace(data) != "[]" {
		t.Errorf("nothing is %s (%v)", data, err)
	}
}

// somewhere draws a row.
func somewhere(t *rapid.T, id int) row {
	word := rapid.SampledFrom([]string{"", "a", "A", "b1", "b01", "b2", "b10", "ä", "x,y", "x|y", `"q"`})
	return row{
		ID: fmt.Sprintf("%03d", id), Name: word.Draw(t, "name"), Nodes: rapid.IntRange(-2, 12).Draw(t, "nodes"), Broken: rapid.Bool().Draw(t, "broken"),
		Template: labelled{word.Draw(t, "template")}, Labels: rapid.MapOfN(rapid.SampledFrom([]string{"k", "a.b"}), word, 0, 2).Draw(t, "labels"),
		Services: rapid.SliceOfN(word, 0, 3).Draw(t, "services"), common: common{word.Draw(t, "owner")},
	}
}

// request draws a query and its oracle.
func request(t *rapid.T) (url.Values, naive) {
	query, oracle := url.Values{}, naive{}
	var terms []string
	for range rapid.IntRange(0, 2).Draw(t, "terms") {
		x := naiveTerm{field: rapid.SampledFrom([]string{"name", "nodes", "broken", "template.name", "labels.a.b", "services", "owner"}).Draw(t, "field"),
			op: rapid.SampledFrom([]string{"=", "!=", "~"}).Draw(t, "op")}
		var texts []string
		for range rapid.IntRange(1, 3).Draw(t, "values") {
			v := rapid.SampledFrom([]string{"a", "b1", "1", "10", "true", "Ä", "x,y", `"q"`}).Draw(t, "value")
			x.values = append(x.values, v)
			if strings.ContainsAny(v, `,|"`) {
				v = fmt.Sprintf("%q", v)
			}
			texts = append(texts, v)
		}
		oracle.terms = append(oracle.terms, x)
		terms = append(terms, x.field+x.op+strings.Join(texts, "|"))
	}
	if len(terms) > 0 {
		query.Set("filter", strings.Join(terms, ","))
	}
	for range rapid.IntRange(0, 2).Draw(t, "sorts") {
		oracle.sort = append(oracle.sort, rapid.SampledFrom([]string{"", "-"}).Draw(t, "down")+
			rapid.SampledFrom([]string{"name", "nodes", "broken", "labels.k", "template.name", "id"}).Draw(t, "sort"))
	}
	if len(oracle.sort) > 0 {
		query.Set("sort", strings.Join(oracle.sort, ","))
	}
	oracle.sort = append(oracle.sort, "id")
	query.Set("limit", fmt.Sprint(rapid.IntRange(1, 6).Draw(t, "limit")))
	return query, oracle
}

// sourceOf returns the rows as a source that has an order and rows with costly fields.
func sourceOf(t *rapid.T, rows []row) listing.Source[row, row] {
	if rapid.Bool().Draw(t, "of") {
		return listing.Of(rows)
	}
	src := listing.Source[row, row]{
		Sorted: true, Costly: []string{"nodes", "template"},
		All: func(from string) iter.Seq[row] {
			return func(yield func(row) bool) {
				for _, r := range rows {
					if r.ID >= from && !yield(r) {
						return
					}
				}
			}
		},
		Show: func(r row) row { return r },
		Brief: func(r row) row {
			r.Nodes, r.Template = -99, labelled{"not yet"}
			return r
		},
	}
	return src
}

// TestPages compares all pages of random queries with the oracle.
func TestPages(t *testing.T) {
	t.Parallel()
	s := shape(t)
	rapid.Check(t, func(t *rapid.T) {
		rows := []row{}
		for i := range rapid.IntRange(0, 25).Draw(t, "rows") {
			rows = append(rows, somewhere(t, i))
		}
		src := sourceOf(t, rows)
		query, oracle := request(t)
		if rapid.Bool().Draw(t, "count") {
			query.Set("count", "true")
		}
		want := oracle.selects(rows)
		var got []row
		for {
			page := listing.Select(ask(t, s, query), src)
			got = append(got, page.Rows...)
			if query.Has("count") && page.Total != len(want) || page.Total >= 0 && page.Total != len(want) {
				t.Fatalf("%v: the total is %d, not %d", query, page.Total, len(want))
			}
			if page.Next == "" {
				break
			}
			if len(page.Rows) == 0 || fmt.Sprint(len(page.Rows)) != query.Get("limit") {
				t.Fatalf("%v: a page has %d rows, and there is another", query, len(page.Rows))
			}
			query.Set("cursor", page.Next)
		}
		if !slices.Equal(ids(got), ids(want)) {
			t.Fatalf("%v: %v, not %v", query, ids(got), ids(want))
		}
		query.Del("cursor")
		query.Del("limit")
		if all := listing.Select(ask(t, s, query), src); !slices.Equal(ids(all.Rows), ids(want)) || all.Next != "" {
			t.Fatalf("%v: %v, not %v", query, ids(all.Rows), ids(want))
		}
	})
}

// TestPagesUnderWrites changes rows between pages. A row that exists throughout, and whose place stays, comes once.
func TestPagesUnderWrites(t *testing.T) {
	t.Parallel()
	s := shape(t)
	rapid.Check(t, func(t *rapid.T) {
		rows := []row{}
		next := 0
		add := func(at int) {
			rows = append(rows, somewhere(t, at))
			slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.ID, b.ID) })
		}
		for range rapid.IntRange(1, 20).Draw(t, "rows") {
			add(next)
			next += 2 // between two, a row may come later
		}
		query, oracle := request(t)
		stays := map[string]row{}
		for _, r := range oracle.selects(rows) {
			stays[r.ID] = r
		}
		seen := map[string]int{}
		for {
			page := listing.Select(ask(t, s, query), sourceOf(t, rows))
			for _, r := range page.Rows {
				seen[r.ID]++
			}
			if page.Next == "" {
				break
			}
			query.Set("cursor", page.Next)
			for range rapid.IntRange(0, 4).Draw(t, "writes") {
				at := -1
				if len(rows) > 0 {
					at = rapid.IntRange(0, len(rows)-1).Draw(t, "at")
				}
				switch rapid.SampledFrom([]string{"add", "change", "delete"}).Draw(t, "write") {
				case "add":
					id := rapid.IntRange(0, next).Draw(t, "id")
					if !slices.ContainsFunc(rows, func(r row) bool { return r.ID == fmt.Sprintf("%03d", id) }) {
						add(id)
						delete(stays, fmt.Sprintf("%03d", id))
					}
				case "change":
					if at >= 0 {
						delete(stays, rows[at].ID)
						var n int
						if _, err := fmt.Sscanf(rows[at].ID, "%d", &n); err != nil {
							t.Fatal(err)
						}
						rows[at] = somewhere(t, n)
					}
				case "delete":
					if at >= 0 {
						delete(stays, rows[at].ID)
						rows = slices.Delete(rows, at, at+1)
					}
				}
			}
		}
		for id := range stays {
			if seen[id] != 1 {
				t.Fatalf("%v: row %s stayed and came %d times", query, id, seen[id])
			}
		}
	})
}

// TestCursorIsBound checks that a cursor is of use in its own list only.
func TestCursorIsBound(t *testing.T) {
	t.Parallel()
	s := shape(t)
	query := url.Values{"limit": {"1"}, "filter": {"nodes!=0"}, "sort": {"name"}}
	next := listing.Select(ask(t, s, query), listing.Of(examples)).Next
	for name, change := range map[string][2]string{
		"another filter": {"filter", "nodes!=1"}, "another sort": {"sort", "-name"}, "no sort": {"sort", ""}, "a parameter of the route": {"status", "x"},
	} {
		other := url.Values{"limit": {"1"}, "filter": {"nodes!=0"}, "sort": {"name"}, "cursor": {next}}
		other.Set(change[0], change[1])
		if _, faults := s.Parse("GET /v1/rows", other); len(faults) != 1 || faults[0].Path != "query.cursor" {
			t.Errorf("%s: %v", name, faults)
		}
	}
	query.Set("cursor", next)
	if _, faults := s.Parse("GET /v1/others", query); len(faults) != 1 {
		t.Errorf("another list: %v", faults)
	}
	for name, value := range map[string]string{"limit": "2", "count": "true", "fields": "id", "index": "7"} {
		query.Set(name, value)
		if _, faults := s.Parse("GET /v1/rows", query); len(faults) != 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

// TestLongTexts checks that a cursor fits into a header, and that pages by long texts are complete.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	s := shape(t)
	var rows []row
	for i := range 9 {
		rows = append(rows, row{ID: fmt.Sprint(i), Name: strings.Repeat("ü", 4000) + fmt.Sprint(9-i)})
	}
	query := url.Values{"limit": {"2"}, "sort": {"name"}}
	var got []string
	for {
		page := listing.Select(ask(t, s, query), listing.Of(rows))
		got = append(got, ids(page.Rows)...)
		if page.Next == "" {
			break
		}
		if len(page.Next) > 1000 {
			t.Fatalf("a cursor has %d bytes", len(page.Next))
		}
		query.Set("cursor", page.Next)
	}
	if len(got) != 9 {
		t.Errorf("%v", got)
	}
}

func TestNatural(t *testing.T) {
	t.Parallel()
	sorted := []string{"", "1", "01", "2", "10", "a", "a-9", "a-10", "a1b2", "a1b10", "b", "ä"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := sign(words.Natural(a, b)), sign(i-j); a != "1" && a != "01" && got != want {
				t.Errorf("%q %q: %d, not %d", a, b, got, want)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[0-1]{0,3}[-a0]{0,2}[0-9]{0,3}`)
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab, bc, ac := words.Natural(a, b), words.Natural(b, c), words.Natural(a, c)
		if sign(ab) != sign(naturally(a, b)) || sign(ab) != -sign(words.Natural(b, a)) || (ab == 0) != (a == b) || ab < 0 && bc < 0 && ac >= 0 {
			t.Fatalf("%q %q %q: %d %d %d", a, b, c, ab, bc, ac)
		}
	})
}

func sign(n int) int { return max(-1, min(1, n)) }

// FuzzParse reads any parameters. It returns faults, or a query that any row can be asked with.
func FuzzParse(f *testing.F) {
	f.Add("name=x,labels.a~b", "-name,nodes", "AAAA", "id,labels")
	f.Add(`name="a\"|,"|b`, "results", "", "parts.name")
	f.Add("a≠1|2", "", "", "")
	s := shape(f)
	f.Fuzz(func(t *testing.T, filter, sort, cursor, fields string) {
		q, faults := s.Parse("", url.Values{"filter": {filter}, "sort": {sort}, "cursor": {cursor}, "fields": {fields}, "limit": {"1"}})
		if len(faults) > 0 {
			return
		}
		page := listing.Select(q, listing.Of(examples))
		data, err := encode(page.Rows, q.Fields())
		if err != nil || !json.Valid([]byte(data)) {
			t.Fatalf("%s: %v", data, err)
		}
		if page.Next != "" {
			_, faults := s.Parse("", url.Values{"filter": {filter}, "sort": {sort}, "cursor": {page.Next}, "fields": {fields}, "limit": {"1"}})
			if len(faults) > 0 {
				t.Fatalf("the next cursor is refused: %v", faults)
			}
		}
	})
}

// BenchmarkPage selects a page of 100 of 10,000 rows, from the middle: in the list's own order, and by another field.
func BenchmarkPage(b *testing.B) {
	var rows []row
	for i := range 10_000 {
		rows = append(rows, row{ID: fmt.Sprintf("%08d", i), Name: fmt.Sprint("cluster-", i*7919%10_000), Nodes: i % 20})
	}
	src := listing.Of(rows)
	src.Sorted, src.All = true, func(from string) iter.Seq[row] {
		at, _ := slices.BinarySearchFunc(rows, from, func(r row, id string) int { return strings.Compare(r.ID, id) })
		return slices.Values(rows[at:])
	}
	for name, query := range map[string]url.Values{
		"own": {}, "filtered": {"filter": {"nodes!=3"}}, "counted": {"count": {"true"}}, "sorted": {"sort": {"name"}},
	} {
		b.Run(name, func(b *testing.B) {
			s := shape(b)
			query.Set("limit", "5000")
			query.Set("cursor", listing.Select(ask(b, s, query), src).Next)
			query.Set("limit", "100")
			for b.Loop() {
				listing.Select(ask(b, s, query), src)
			}
		})
	}
}
