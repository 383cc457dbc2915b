package api

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// SolveRequest asks for the layouts of clusters of several sizes. Absent fields have the
// template's defaults, as when a cluster is created.
type SolveRequest struct {
	ClusterTemplate string `json:"clusterTemplate,omitempty" doc:"The name of a template"`
	// Template replaces ClusterTemplate.
	Template     *model.ClusterTemplate `json:"template,omitempty" doc:"A template that is not stored, instead of a name"`
	From         model.Int              `json:"from" doc:"The smallest number of nodes"`
	To           model.Int              `json:"to" doc:"The largest number of nodes; at most 1000 sizes at a time"`
	Provider     string                 `json:"provider,omitempty"`
	HardwareType string                 `json:"hardwaretype,omitempty"`
	ImageType    string                 `json:"imagetype,omitempty"`
	Services     []string               `json:"services,omitempty"`
	Comparator   string                 `json:"comparator,omitempty" doc:"original, cost, or one that a plugin offers"`
	Exclude      []model.Layout         `json:"exclude,omitempty" doc:"Layouts that must not be chosen"`
	Budget       model.Int              `json:"budget,omitempty" doc:"Search steps for all sizes together, about a microsecond each"`
}

// Solved has the result for each size.
type Solved struct {
	ClusterTemplate string             `json:"clusterTemplate"`
	Comparator      string             `json:"comparator" doc:"The comparator that was used"`
	Sizes           []solver.SizeRange `json:"sizes" doc:"One entry for consecutive sizes with the same result"`
}

// Linted is the result of a check of definitions: of those that exist, or of those in a request.
type Linted struct {
	Faults    model.Faults     `json:"faults,omitempty" doc:"Faults that refuse a write"`
	Warnings  model.Faults     `json:"warnings,omitempty" doc:"Problems that do not refuse a write"`
	Templates []LintedTemplate `json:"templates,omitempty" doc:"Templates without faults"`
}

// LintedTemplate is the result for a template.
type LintedTemplate struct {
	Name string `json:"name"`
	// Smallest is the size of the smallest cluster with the default services.
	Smallest int `json:"smallest" doc:"The smallest number of nodes that has a layout with the default services; 0: none was found"`
}
