package listing

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// The lengths of a part of a list.
const (
	// DefaultPage is the length where the request has no limit.
	DefaultPage = 1000
	// MaxPage bounds every limit.
	MaxPage = 10000
)

// The bounds of a sort, and of the answer's fields.
const (
	mostSorts  = 5
	mostFields = 50
)

// sortedText is how much of a text counts for sort, in bytes, so that a cursor fits into a header. What is in a list's own
// order counts whole.
const sortedText = 200

// Parameters are the names of the query's parameters that belong to every list.
var Parameters = []string{"limit", "cursor", "sort", "filter", "count", "fields"}

// passing are the parameters of a query that do not decide which rows a list has, in which order.
var passing = []string{"limit", "cursor", "count", "fields", "offset", "index", "wait", "consistency"}

// A Shape is a list whose rows are of one type.
type Shape struct {
	row   reflect.Type
	order []key
	// Paged lists had limits before other lists had them: without one, they have DefaultPage. They are counted unless the
	// request says otherwise, and know offsets.
	Paged bool
}

// A key is a field to sort by.
type key struct {
	*field
	down bool
	// cut is set if only the beginning of a text counts.
	cut bool
}

// ShapeOf returns the shape of a list of T whose own order is by these fields, as sort has them. Together, they are
// different for all rows.
func ShapeOf[T any](order string) (*Shape, error) {
	s := &Shape{row: reflect.TypeFor[T]()}
	keys, err := parseSort(s.row, order)
	if err != nil {
		return nil, fmt.Errorf("the order of a list of %v: %w", s.row, err)
	}
	s.order = keys
	return s, nil
}

// parseSort parses the fields to sort by.
func parseSort(t reflect.Type, text string) ([]key, error) {
	var out []key
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		name, down := strings.CutPrefix(name, "-")
		f, err := fieldOf(t, name)
		switch {
		case err != nil:
			return nil, err
		case f.object:
			return nil, fmt.Errorf("%s is an object: name one of its fields, such as %s.NAME", name, name)
		case f.many:
			return nil, fmt.Errorf("%s may have several values, and so is no order", name)
		}
		out = append(out, key{field: f, down: down})
	}
	return out, nil
}

// A Query is which rows of a list are wanted, in which order.
type Query struct {
	shape  *Shape
	terms  []term
	order  []key // with the list's own at its end
	own    bool  // the order is the list's own
	place  []value
	digest [digestSize]byte
	limit  int // 0: all
	offset int
	count  bool
	fields []string
}

// Fields returns the fields that rows are to have, or nil for all.
func (q *Query) Fields() []string { return q.fields }

// Parse reads the parameters of a request for a list. What is the identity of the list: its path, and its tenant.
func (s *Shape) Parse(what string, query url.Values) (*Query, model.Faults) {
	var faults model.Faults
	fault := func(name string, err error) {
		if err != nil {
			faults.Add("query."+name, err.Error())
		}
	}
	q := &Query{shape: s, order: s.order, own: true, count: s.Paged}
	var err error
	q.limit, err = whole(query, "limit", MaxPage)
	fault("limit", err)
	if s.Paged {
		q.offset, err = whole(query, "offset", 1<<31-1)
		fault("offset", err)
	}
	if q.limit == 0 && (s.Paged || query.Get("cursor") != "") {
		q.limit = DefaultPage
	}
	switch text := query.Get("count"); text {
	case "":
	case "true", "false":
		q.count = text == "true"
	default:
		fault("count", fmt.Errorf("must be true or false, but is %q", text))
	}
	for _, text := range query["filter"] {
		if strings.TrimSpace(text) == "" {
			continue
		}
		terms, err := parseFilter(s.row, text)
		fault("filter", err)
		q.terms = append(q.terms, terms...)
	}
	if len(q.terms) > mostTerms {
		fault("filter", fmt.Errorf("it has %d terms; at most %d are allowed", len(q.terms), mostTerms))
	}
	if text := query.Get("sort"); strings.TrimSpace(text) != "" {
		fault("sort", q.sortBy(text))
	}
	if text := query.Get("fields"); text != "" {
		fault("fields", q.only(text))
	}
	q.digest = digestOf(what, query)
	if text := query.Get("cursor"); text != "" && len(faults) == 0 {
		q.place, err = decodeCursor(text, q.digest, len(q.order))
		fault("cursor", err)
		if q.offset > 0 {
			fault("offset", fmt.Errorf("a cursor has its place already: omit one of both"))
		}
	}
	return q, faults
}

func whole(query url.Values, name string, most int) (int, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("must be a whole number, but is %q", text)
	}
	return min(n, most), nil
}

// sortBy sets the order: the given fields, and then the list's own order.
func (q *Query) sortBy(text string) error {
	keys, err := parseSort(q.shape.row, text)
	if err != nil {
		return err
	}
	if len(keys) > mostSorts {
		return fmt.Errorf("it has %d fields; at most %d are allowed", len(keys), mostSorts)
	}
	q.own = len(keys) <= len(q.shape.order)
	for i, k := range keys {
		q.own = q.own && k.name == q.shape.order[i].name && k.down == q.shape.order[i].down
		keys[i].cut = true
	}
	if !q.own {
		q.order = append(keys, q.shape.order...)
	}
	return nil
}

// only sets the fields that rows are to have.
func (q *Query) only(text string) error {
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		if _, err := fieldOf(q.shape.row, name); err != nil {
			return err
		}
		q.fields = append(q.fields, name)
	}
	if len(q.fields) > mostFields {
		return fmt.Errorf("it names %d fields; at most %d are allowed", len(q.fields), mostFields)
	}
	return nil
}

// digestOf returns the digest of all that decides which rows a list has, in which order.
func digestOf(what string, query url.Values) (out [digestSize]byte) {
	var b strings.Builder
	b.WriteString(what)
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(passing, name) {
			continue
		}
		for _, v := range query[name] {
			fmt.Fprintf(&b, "\n%q=%q", name, v)
		}
	}
	sum := sha256.Sum256([]byte(b.String()))
	copy(out[:], sum[:])
	return out
}

// needs reports whether filter or order read one of the fields.
func (q *Query) needs(fields []string) bool {
	reads := func(name string) bool {
		return slices.ContainsFunc(fields, func(f string) bool { return name == f || strings.HasPrefix(name, f+".") })
	}
	return slices.ContainsFunc(q.terms, func(x term) bool { return reads(x.field.name) }) ||
		slices.ContainsFunc(q.order, func(k key) bool { return reads(k.name) })
}

func (q *Query) matches(row reflect.Value) bool {
	for i := range q.terms {
		if !q.terms[i].matches(row) {
			return false
		}
	}
	return true
}

// placeOf writes the place of a row into a slice, which it returns.
func (q *Query) placeOf(row reflect.Value, into []value) []value {
	into = into[:0]
	for _, k := range q.order {
		v := k.first(row)
		if k.cut && len(v.text) > sortedText {
			v.text = v.text[:sortedText]
		}
		into = append(into, v)
	}
	return into
}

// compare compares two places.
func (q *Query) compare(a, b []value) int {
	for i, k := range q.order {
		if c := compare(a[i], b[i]); c != 0 {
			if k.down {
				return -c
			}
			return c
		}
	}
	return 0
}
