package client

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/coopr/coopr/rpc/api"
)

// List says which rows of a list are wanted, in which order. The zero value is the whole list, in its own order.
type List struct {
	// Filter has terms such as "status=active|failed" and "labels.team!=red", which all must hold.
	Filter []string
	// Sort has fields, separated by commas; - before one reverses it.
	Sort string
	// Limit bounds the rows, at most 10000. Cursor continues after an earlier answer: its Meta.Next.
	Limit  int
	Cursor string
	// Count has all rows counted that the filter selects, for Meta.Total.
	Count bool
	// Fields are the only fields that the rows have, unless there are none.
	Fields []string
}

type listKey struct{}

// WithList returns a context whose reads are of the rows that l describes. Only reads of lists know it; others fail.
func WithList(ctx context.Context, l List) context.Context {
	return context.WithValue(ctx, listKey{}, l)
}

// listed adds the parameters of the list that a context describes to a query.
func listed(ctx context.Context, q url.Values) url.Values {
	l, ok := ctx.Value(listKey{}).(List)
	if !ok {
		return q
	}
	if q == nil {
		q = url.Values{}
	}
	for _, f := range l.Filter {
		q.Add("filter", f)
	}
	for name, value := range map[string]string{"sort": l.Sort, "cursor": l.Cursor, "fields": strings.Join(l.Fields, ",")} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if l.Limit > 0 {
		q.Set("limit", strconv.Itoa(l.Limit))
	}
	if l.Count {
		q.Set("count", "true")
	}
	return q
}

// Find returns what has a text in its name or id, the best first. types limits the search to things such as "cluster" and "node"; limit 0
// is the server's default.
func (c *Client) Find(ctx context.Context, text string, types []string, limit int, read Read) ([]api.Found, Meta, error) {
	var out []api.Found
	q := values("q", text, "type", strings.Join(types, ","))
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	m, err := c.get(ctx, "/v1/search", read, q, &out)
	return out, m, err
}
