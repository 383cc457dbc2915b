package search

import (
	"context"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/listing"
	"github.com/coopr/coopr/rpc/server/rest"
	"github.com/coopr/coopr/rpc/server/runs"
)

// The lengths of an answer.
const (
	defaultLimit = 20
	maxLimit     = 100
)

// longest bounds the text that is sought, in bytes.
const longest = 256

// Register adds the route.
func Register(s *rest.Server) {
	rest.Read(
		s,
		rest.Route{
			ID: "search", Path: "/v1/search", Tag: "search", Summary: "Find things by a part of their name or id",
			Description: "Finds what the caller may list, whatever the case: first what is called so, then what begins so, then all else. " +
				"Tasks are found by their whole ids. With query in place of q: the programs and schedules whose runs would use a profile.",
		},
		func(ctx context.Context, c *rest.Call, v rest.View, in *struct {
			Q     string `query:"q" doc:"A part of a name or an id"`
			Type  string `query:"type" doc:"Only things of these types, separated by commas"`
			Limit int    `query:"limit" minimum:"1" maximum:"100" doc:"Maximum number of results; 20 if absent"`
			Query string `query:"query" doc:"profile:NAME, with its scope"`
		}) ([]api.Found, error) {
			if in.Query != "" {
				return runs.Using(c, v, in.Query)
			}
			wanted, err := check(in.Q, in.Type)
			if err != nil {
				return nil, err
			}
			limit := in.Limit
			if limit == 0 {
				limit = defaultLimit
			}
			x := &search{s: s, c: c, v: v, text: strings.ToLower(strings.TrimSpace(in.Q)), limit: min(limit, maxLimit)}
			for _, k := range kinds {
				if len(wanted) > 0 && !slices.Contains(wanted, k.name) {
					continue
				}
				x.kind = k.name
				if err := k.find(ctx, x); err != nil {
					return nil, err
				}
			}
			return x.found(), nil
		},
	)
}

// check returns the types that are wanted; none means all.
func check(q, types string) ([]string, error) {
	var faults model.Faults
	switch {
	case strings.TrimSpace(q) == "":
		faults.Add("query.q", "the text to find is missing")
	case len(q) > longest:
		faults.Add("query.q", "the text is too long")
	}
	var wanted, known []string
	for _, k := range kinds {
		known = append(known, k.name)
	}
	for name := range strings.SplitSeq(types, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !slices.Contains(known, name) {
			faults.Add("query.type", "unknown type "+name+words.DidYouMeanOrOneOf(name, known))
		}
		wanted = append(wanted, name)
	}
	if len(faults) > 0 {
		return nil, rest.Invalid(faults)
	}
	return wanted, nil
}

// How a text is found, the best first.
const (
	exact = iota
	begins
	within
	ranks
)

// search looks for one text.
type search struct {
	s     *rest.Server
	c     *rest.Call
	v     rest.View
	text  string // in lower case
	limit int
	kind  string // that is being looked through
	ranks [ranks][]api.Found
}

// rank returns how good a name or id fits, or ranks if it does not.
func (x *search) rank(name string) int {
	switch {
	case !listing.ContainsFold(name, x.text):
		return ranks
	case len(name) < len(x.text): // folding changes lengths
		return within
	case strings.EqualFold(name, x.text):
		return exact
	case strings.EqualFold(name[:len(x.text)], x.text):
		return begins
	}
	return within
}

// add notes something if its name or id fits, there is still room for it, and the caller may list it. It asks in this order because the
// first two cost little.
func (x *search) add(f api.Found, listed func() bool) {
	rank := x.rank(f.Name)
	if f.ID != "" {
		rank = min(rank, x.rank(f.ID))
	}
	if rank < ranks && len(x.ranks[rank]) < x.limit && listed() {
		f.Type = x.kind
		x.ranks[rank] = append(x.ranks[rank], f)
	}
}

// found returns the best of what was found.
func (x *search) found() []api.Found {
	all := append([]api.Found{}, slices.Concat(x.ranks[:]...)...)
	return all[:min(len(all), x.limit)]
}
