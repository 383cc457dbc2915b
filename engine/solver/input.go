package solver

import "github.com/coopr/coopr/engine/model"

// Input is everything that Solve depends on. Solve looks up nothing else and changes nothing in it.
// The order of the lists of definitions does not matter.
type Input struct {
	// Template is the template with its parents and includes already merged in.
	Template model.ClusterTemplate
	// Provider is the key of the types' provider maps; empty: the template's default.
	Provider string
	// Services are all service definitions that may be named, by name.
	Services map[string]model.Service
	// HardwareTypes and ImageTypes are all types of the tenant.
	HardwareTypes []model.HardwareType
	ImageTypes    []model.ImageType
	// Nodes is the size of a new cluster. A change to an existing one takes its
	// size from Existing and Change.
	Nodes int
	// MaxNodes is the greatest permitted size of the cluster; 0 means model.MaxClusterSize.
	MaxNodes int
	// Wanted are the services of a new cluster; empty: the template's defaults.
	Wanted []string
	// HardwareType and ImageType are used on every new node; empty: the
	// template's default, or else any compatible one.
	HardwareType string
	ImageType    string
	// Comparator is ComparatorOriginal, ComparatorCost, the name in Ranking, or empty. If it is
	// empty, the template's comparator applies. If the template has none either, it is cost if
	// every usable hardware type has a cost, and original otherwise.
	Comparator string
	// Ranking is the order that a plugin computes, if the comparator is a plugin's.
	Ranking *model.Ranking
	// Exclude holds layouts of the whole cluster that must not be chosen again.
	Exclude []model.Layout
	// Zones and Hosts are the places over which services with a "spread" are balanced. If a list is
	// empty, that kind of spread has no effect.
	Zones []string
	Hosts []string
	// Existing holds the nodes of the cluster as it stands, and Change the requested change.
	// Without a change Solve solves a new cluster.
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

// mostNodes is more than any cluster has. Counts above it are meaningless.
const mostNodes = 1 << 20

// DefaultBudget is about ten seconds of search.
const DefaultBudget = 20_000_000

// The built-in comparators (docs/spec/solver.md rule 8).
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

// ChangeKind is a kind of change to an existing cluster (docs/spec/solver.md rule 9).
type ChangeKind string

// The kinds of changes. The empty kind creates a cluster.
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

// Change is the change that an operation makes to an existing cluster.
type Change struct {
	Kind     ChangeKind
	Services []string
	Nodes    int
	Victims  []string
	// Touch is the preference on the number of existing nodes that get an added service. Empty
	// means TouchFewest, or TouchMost if the comparator "original" is named explicitly, as in the
	// original Coopr.
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
