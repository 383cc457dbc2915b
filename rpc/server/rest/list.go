package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/rpc/listing"
)

// List registers a route that reads a list, of which h returns all that the caller may see.
func List[I, T any](s *Server, r Route, h func(context.Context, *Call, View, *I) ([]T, error)) {
	Pages(s, r, func(ctx context.Context, c *Call, v View, in *I) (listing.Source[T, T], error) {
		all, err := h(ctx, c, v, in)
		return listing.Of(all), err
	})
}

// Pages is like List, for lists that are too long to make all their rows for each request.
func Pages[I, S, T any](s *Server, r Route, h func(context.Context, *Call, View, *I) (listing.Source[S, T], error)) {
	r.Method = http.MethodGet
	shape := shapeOf[T](r)
	register(s, r, func(ctx context.Context, c *Call, in *I) (*Reply[rows[T]], error) {
		q, err := queryOf(c, shape)
		if err != nil {
			return nil, err
		}
		v, err := s.View(ctx, c)
		if err != nil {
			return nil, err
		}
		src, err := h(ctx, c, v, in)
		if err != nil {
			return nil, err
		}
		reply := page(q, src)
		reply.Index, reply.Age = strconv.FormatUint(v.Index(), 10), ageOf(c, v)
		return reply, nil
	})
}

// AskList is like List, for lists that are not in the replicated state.
func AskList[I, T any](s *Server, r Route, h func(context.Context, *Call, *I) ([]T, error)) {
	r.Method, r.Bare = http.MethodGet, true
	shape := shapeOf[T](r)
	register(s, r, func(ctx context.Context, c *Call, in *I) (*Reply[rows[T]], error) {
		q, err := queryOf(c, shape)
		if err != nil {
			return nil, err
		}
		all, err := h(ctx, c, in)
		if err != nil {
			return nil, err
		}
		return page(q, listing.Of(all)), nil
	})
}

func shapeOf[T any](r Route) *listing.Shape {
	shape, err := listing.ShapeOf[T](r.Order)
	if err != nil {
		panic(fmt.Sprintf("the route %s: %v", r.ID, err))
	}
	shape.Paged = r.Paged
	return shape
}

// queryOf returns which rows a request for a list asks for.
func queryOf(c *Call, shape *listing.Shape) (*listing.Query, error) {
	q, faults := shape.Parse(c.Who.Tenant+" "+c.path, c.parameters)
	if len(faults) > 0 {
		return nil, Invalid(faults)
	}
	return q, nil
}

func page[S, T any](q *listing.Query, src listing.Source[S, T]) *Reply[rows[T]] {
	p := listing.Select(q, src)
	reply := &Reply[rows[T]]{Body: rows[T]{p.Rows, q.Fields()}, Next: p.Next}
	if p.Total >= 0 {
		reply.Total = strconv.Itoa(p.Total)
	}
	return reply
}

// rows is the body of a list. The document describes it as an array of T.
type rows[T any] struct {
	list   []T
	fields []string
}

// Schema returns the schema of an array of T.
func (rows[T]) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[[]T](), true, "")
}

func (r rows[T]) write(w io.Writer) error { return listing.Encode(w, r.list, r.fields) }

// writeBody is called by huma to encode the body of an answer.
func writeBody(w io.Writer, v any) error {
	if b, ok := v.(interface{ write(w io.Writer) error }); ok {
		return b.write(w)
	}
	return huma.DefaultJSONFormat.Marshal(w, v)
}

// listParameters describes the parameters that all lists have.
func listParameters(r Route) []*huma.Param {
	text := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString} }
	number := func(most float64) *huma.Schema {
		least := 0.0
		s := &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least}
		if most > 0 {
			s.Maximum = &most
		}
		return s
	}
	length := "everything if absent, but 1000 with a cursor"
	if r.Paged {
		length = "1000 if absent"
	}
	out := []*huma.Param{
		{Name: "limit", In: "query", Schema: number(listing.MaxPage), Description: "Maximum number of rows; " + length},
		{Name: "cursor", In: "query", Schema: text(),
			Description: "Continue after an earlier page: the header Coopr-Next of its answer, unchanged"},
		{Name: "sort", In: "query", Schema: text(), Description: "Fields to sort by, separated by commas; - before one reverses it; " +
			r.Order + " if absent"},
		{Name: "filter", In: "query", Schema: text(),
			Description: "Only rows for which all these terms hold, separated by commas: field=value, " +
				"field!=value, or field~part whatever the case; several values are separated by |"},
		{Name: "count", In: "query", Schema: &huma.Schema{Type: huma.TypeBoolean},
			Description: "Count all rows that the filter selects, for the header Coopr-Total"},
		{Name: "fields", In: "query", Schema: text(), Description: "Only these fields of each row, separated by commas"},
	}
	if r.Paged {
		out = append(out, &huma.Param{Name: "offset", In: "query", Schema: number(0),
			Description: "Number of rows to skip; a cursor is better, as it misses none while rows are written"})
	}
	return out
}
