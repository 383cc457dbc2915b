package model

import "context"

// RankingQuestion asks a plugin for the comparator that it offers: what new
// nodes may be made of, and the services they are for (docs/spec/solver.md rule 8).
type RankingQuestion struct {
	Comparator string `json:"comparator"`
	Template   string `json:"template"`
	Provider   string `json:"provider"`
	// HardwareTypes and ImageTypes that the provider has, by name.
	HardwareTypes []RankedType `json:"hardwaretypes"`
	ImageTypes    []RankedType `json:"imagetypes"`
	// Services of the cluster, by name.
	Services []string `json:"services"`
}

// RankedType is a hardware or image type with its entry for the provider.
type RankedType struct {
	Name  string         `json:"name"`
	Entry map[string]any `json:"entry"`
}

// Ranking is a comparator as data, a plugin's answer. One node layout is
// preferred to another where its services are worth more together, then where
// its kind of machine is ranked before the other's, then by names. Where every
// usable kind has a cost, the least total cost decides before all of that.
//
// There are too many node layouts to ask about each, so a plugin is asked about
// what they are made of.
type Ranking struct {
	Comparator string `json:"comparator"`
	// Kinds of machine, the most preferred first. Those that are missing come
	// last, in the order of the comparator "original".
	Kinds []RankedKind `json:"kinds,omitempty"`
	// Worth of services, from 1 to MaxWorth; those that are missing are worth 1.
	Worth map[string]int64 `json:"worth,omitempty"`
}

// RankedKind is one hardware type with one image type.
type RankedKind struct {
	HardwareType string `json:"hardwaretype"`
	ImageType    string `json:"imagetype"`
	// Cost of one node, a decimal number from 0 on in any unit; empty: none.
	Cost string `json:"cost,omitempty"`
}

// MaxWorth is the most that one service can be worth.
const MaxWorth = 1_000_000

// Ranker is a Lookup that can ask plugins for their comparators. It fails with
// Faults where none offers the one that is asked for.
type Ranker interface {
	Rank(ctx context.Context, q RankingQuestion) (*Ranking, error)
}

// WithRanker returns a Lookup that is a Ranker, too.
func WithRanker(l Lookup, rank func(context.Context, RankingQuestion) (*Ranking, error)) Lookup {
	return rankingLookup{l, rank}
}

type rankingLookup struct {
	Lookup
	rank func(context.Context, RankingQuestion) (*Ranking, error)
}

func (l rankingLookup) Rank(ctx context.Context, q RankingQuestion) (*Ranking, error) {
	return l.rank(ctx, q)
}
