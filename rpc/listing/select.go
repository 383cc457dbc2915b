package listing

import (
	"container/heap"
	"iter"
	"reflect"
	"slices"
)

// A Source has the rows of a list that the caller may see. S is what a row is made from.
type Source[S, T any] struct {
	// All returns everything. from is "" or the beginning of the list's own order at which a page begins: the value of its first
	// field, whose rows must be among the returned. Others before it may be left out, in a list that is Sorted.
	All func(from string) iter.Seq[S]
	// Sorted is set if All returns everything in the list's own order.
	Sorted bool
	// Show returns the row that is answered.
	Show func(S) T
	// Brief returns a row that lacks the fields in Costly. It may be nil.
	Brief  func(S) T
	Costly []string
}

// Of returns the source of a list that is short enough to have all its rows.
func Of[T any](rows []T) Source[T, T] {
	return Source[T, T]{
		All:  func(string) iter.Seq[T] { return slices.Values(rows) },
		Show: func(row T) T { return row },
	}
}

// A Page is a part of a list.
type Page[T any] struct {
	Rows []T
	// Next is the cursor of the next page, or "" after the last one.
	Next string
	// Total is how many rows the filter selects, or -1 if they were not counted.
	Total int
}

// candidate is something that may be on the page.
type candidate[S any] struct {
	item  S
	place []value
}

// Select returns the part of a list that a query asks for.
func Select[S, T any](q *Query, src Source[S, T]) Page[T] {
	w := walk[S, T]{q: q, src: src, form: src.Show}
	if src.Brief != nil && !q.needs(src.Costly) {
		w.form = src.Brief
	}
	if src.Sorted && q.own {
		return w.lazy()
	}
	return w.whole()
}

// walk goes through a source.
type walk[S, T any] struct {
	q    *Query
	src  Source[S, T]
	form func(S) T
}

// from returns where the walk may begin in the list's own order.
func (w *walk[S, T]) from() string {
	q := w.q
	if !w.src.Sorted || !q.own || q.place == nil || q.count || q.order[0].down || q.place[0].kind != text {
		return ""
	}
	return q.place[0].text
}

// lazy goes through a source that has the order of the query, until the page is full.
func (w *walk[S, T]) lazy() Page[T] {
	q, page := w.q, Page[T]{Total: -1}
	var row T
	at := reflect.ValueOf(&row).Elem()
	var place []value
	var last S
	behind := q.place == nil
	total, more := 0, false
	for item := range w.src.All(w.from()) {
		if len(q.terms) > 0 || !behind {
			row = w.form(item)
			if !q.matches(at) {
				continue
			}
		}
		total++
		if !behind {
			place = q.placeOf(at, place)
			if q.compare(place, q.place) <= 0 {
				continue
			}
			behind = true
		}
		switch {
		case total <= q.offset: // there is no cursor
		case q.limit == 0 || len(page.Rows) < q.limit:
			page.Rows = append(page.Rows, w.src.Show(item))
			last = item
		default:
			more = true
		}
		if more && !q.count {
			break
		}
	}
	if more {
		row = w.form(last)
		page.Next = encodeCursor(q.digest, q.placeOf(at, nil))
	}
	if q.count || !more && w.from() == "" {
		page.Total = total
	}
	return page
}

// whole goes through all of a source, and keeps what comes first in the order of the query.
func (w *walk[S, T]) whole() Page[T] {
	q, page := w.q, Page[T]{}
	var row T
	at := reflect.ValueOf(&row).Elem()
	kept := first[S]{q: q, most: q.limit + q.offset}
	if q.limit == 0 {
		kept.most = 0
	}
	var place []value
	for item := range w.src.All("") {
		row = w.form(item)
		if !q.matches(at) {
			continue
		}
		page.Total++
		place = q.placeOf(at, place)
		if q.place == nil || q.compare(place, q.place) > 0 {
			kept.add(item, place)
		}
	}
	list := kept.sorted()
	list = list[min(q.offset, len(list)):]
	for _, c := range list {
		page.Rows = append(page.Rows, w.src.Show(c.item))
	}
	if kept.dropped && len(list) > 0 {
		page.Next = encodeCursor(q.digest, list[len(list)-1].place)
	}
	return page
}

// first keeps the first of many candidates: a heap with the last of them on top.
type first[S any] struct {
	q       *Query
	most    int // 0: all
	list    []candidate[S]
	dropped bool
}

func (f *first[S]) Len() int           { return len(f.list) }
func (f *first[S]) Less(i, j int) bool { return f.q.compare(f.list[i].place, f.list[j].place) > 0 }
func (f *first[S]) Swap(i, j int)      { f.list[i], f.list[j] = f.list[j], f.list[i] }
func (f *first[S]) Push(x any)         { f.list = append(f.list, x.(candidate[S])) }
func (f *first[S]) Pop() any           { panic("the top is replaced, never taken") }

// add keeps a candidate if it is one of the first. It copies the place.
func (f *first[S]) add(item S, place []value) {
	switch {
	case f.most == 0 || len(f.list) < f.most:
		f.list = append(f.list, candidate[S]{item, slices.Clone(place)})
		if len(f.list) == f.most {
			heap.Init(f)
		}
	default:
		f.dropped = true
		if top := &f.list[0]; f.q.compare(place, top.place) < 0 {
			top.item = item
			copy(top.place, place)
			heap.Fix(f, 0)
		}
	}
}

// sorted returns what was kept, in order. The order of equals is that in which they came, if all were kept.
func (f *first[S]) sorted() []candidate[S] {
	slices.SortStableFunc(f.list, func(a, b candidate[S]) int { return f.q.compare(a.place, b.place) })
	return f.list
}
