package model

import "context"

// RankingQuestion asks a plugin for its comparator: it has the possible parts of new nodes,
// and the services that they are for (docs/spec/solver.md rule 8).
type RankingQuestion struct {
	Comparator string `json:"comparator"`
	Template   string `json:"template"`
	Provider   string `json:"provider"`
	// HardwareTypes and ImageTypes are those that the provider has, by name.
	HardwareTypes []RankedType `json:"hardwaretypes"`
	ImageTypes    []RankedType `json:"imagetypes"`
	// Services are the services of the cluster, by name.
	Services []string `json:"services"`
}

// RankedType is a hardware or image type with its entry for the provider.
type RankedType struct {
	Name  string         `json:"name"`
	Entry map[string]any `json:"entry"`
}

// Ranking is a comparator as data: the answer of a plugin. Of two node layouts, the one whose
// services are worth more together is preferred, then the one whose kind of machine ranks
// first, then the one that is first by name. If every usable kind has a cost, the least total
// cost decides before all of that.
//
// There are too many node layouts to ask about each, so a plugin is asked about their parts.
type Ranking struct {
	Comparator string `json:"comparator"`
	// Kinds are kinds of machine, the most preferred first. Missing kinds come last, in the
	// order of the comparator "original".
	Kinds []RankedKind `json:"kinds,omitempty"`
	// Worth has the worth of services, from 1 to MaxWorth; missing services are worth 1.
	Worth map[string]int64 `json:"worth,omitempty"`
}

// RankedKind is one hardware type with one image type.
type RankedKind struct {
	HardwareType string `json:"hardwaretype"`
	ImageType    string `json:"imagetype"`
	// Cost is the cost of one node, a non-negative decimal number in any unit; empty: unknown.
	Cost string `json:"cost,omitempty"`
}

// MaxWorth is the highest worth of a service.
const MaxWorth = 1_000_000

// Ranker is a Lookup that can ask plugins for their comparators. It fails with Faults if no
// plugin offers the requested one.
type Ranker interface {
	Rank(ctx context.Context, q RankingQuestion) (*Ranking, error)
}

// WithRanker returns a Lookup that is also a Ranker.
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
