package solver

import "github.com/coopr/coopr/engine/model"

// Input is all that Solve looks at. Nothing is looked up elsewhere and nothing
// in it is changed. The order of lists of definitions does not matter.
type Input struct {
	// Template has its parents and includes merged in already.
	Template model.ClusterTemplate
	// Provider names the key of the types' provider maps; empty: the template's default.
	Provider string
	// Services are all definitions that may be named, by name.
	Services map[string]model.Service
	// HardwareTypes and ImageTypes are all that the tenant has.
	HardwareTypes []model.HardwareType
	ImageTypes    []model.ImageType
	// Nodes is the size of a new cluster. A change to an existing one takes its
	// size from Existing and Change.
	Nodes int
	// MaxNodes is the most that a cluster may have; 0 means model.MaxClusterSize.
	MaxNodes int
	// Wanted are the services of a new cluster; empty: the template's defaults.
	Wanted []string
	// HardwareType and ImageType are used on every new node; empty: the
	// template's default, or else any compatible one.
	HardwareType string
	ImageType    string
	// Comparator is ComparatorOriginal, ComparatorCost or empty for the
	// template's choice, or else cost where every usable hardware type has one.
	// Any other name is that of Ranking.
	Comparator string
	// Ranking is the order that a plugin gives, where one is asked for.
	Ranking *model.Ranking
	// Exclude are layouts of the whole cluster that must not be chosen again.
	Exclude []model.Layout
	// Zones and Hosts are the places over which services with a "spread" are
	// balanced; where the list is empty that kind of spread asks nothing.
	Zones []string
	Hosts []string
	// Existing are the nodes of the cluster as it stands, and Change what is to
	// become of it. Without a change a new cluster is solved.
	Existing []ExistingNode
	Change   Change
	// Budget bounds the search in steps (about a microsecond each, the same on
	// every machine); 0 means DefaultBudget.
	Budget int
}

func (in *Input) maxNodes() int64 {
	if in.MaxNodes > 0 {
		return min(int64(in.MaxNodes), mostNodes)
	}
	return model.MaxClusterSize
}

// mostNodes is more than any cluster has: counts above it mean nothing.
const mostNodes = 1 << 20

// DefaultBudget is about ten seconds of search.
const DefaultBudget = 20_000_000

// The comparators that are built in (docs/spec/solver.md rule 8).
const (
	ComparatorOriginal = "original"
	ComparatorCost     = "cost"
)

// ExistingNode is a node of the cluster before a change. Its hardware and
// image type never change.
type ExistingNode struct {
	ID           string
	Number       int
	HardwareType string
	ImageType    string
	Services     []string
	Zone         string
	Host         string
}

// ChangeKind says what is done to an existing cluster (docs/spec/solver.md rule 9).
type ChangeKind string

// The changes there are. The empty kind creates a cluster.
const (
	// Create makes a new cluster of Input.Nodes nodes.
	Create ChangeKind = ""
	// AddServices puts Change.Services onto the existing nodes, and onto
	// Change.Nodes new ones.
	AddServices ChangeKind = "add-services"
	// RemoveServices takes Change.Services off every node.
	RemoveServices ChangeKind = "remove-services"
	// Grow adds Change.Nodes nodes.
	Grow ChangeKind = "grow"
	// Shrink removes Change.Nodes nodes, or those that Change.Victims names.
	Shrink ChangeKind = "shrink"
	// Replace puts a new node in the place of each of Change.Victims, with the
	// same types and services.
	Replace ChangeKind = "replace"
	// Retemplate checks the cluster as it stands against Input.Template.
	Retemplate ChangeKind = "retemplate"
)

// Change is what an operation does to an existing cluster.
type Change struct {
	Kind     ChangeKind
	Services []string
	Nodes    int
	Victims  []string
	// Touch says how many existing nodes an added service goes to; empty:
	// TouchFewest, but TouchMost where the comparator "original" is asked for by
	// name, as the original did.
	Touch Touch
}

// chooses reports whether the change leaves a choice to the comparator.
func (c *Change) chooses() bool {
	return c.Kind == Create || c.Kind == Grow || c.Kind == AddServices
}

// Touch is a preference on the number of existing nodes that change.
type Touch string

// The two preferences.
const (
	TouchFewest Touch = "fewest"
	TouchMost   Touch = "most"
)
