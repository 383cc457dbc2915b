package api

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// SolveRequest asks what clusters of several sizes would look like. What is
// absent is taken from the template, as when a cluster is created.
type SolveRequest struct {
	ClusterTemplate string `json:"clusterTemplate,omitempty" doc:"The name of a template"`
	// Template stands for one that is not written yet.
	Template     *model.ClusterTemplate `json:"template,omitempty" doc:"A template that is not written yet, instead of a name"`
	From         model.Int              `json:"from" doc:"The least number of nodes"`
	To           model.Int              `json:"to" doc:"The greatest number of nodes; at most 1000 sizes at a time"`
	Provider     string                 `json:"provider,omitempty"`
	HardwareType string                 `json:"hardwaretype,omitempty"`
	ImageType    string                 `json:"imagetype,omitempty"`
	Services     []string               `json:"services,omitempty"`
	Comparator   string                 `json:"comparator,omitempty" doc:"original, cost, or one that a plugin offers"`
	Exclude      []model.Layout         `json:"exclude,omitempty" doc:"Layouts that must not be chosen"`
	Budget       model.Int              `json:"budget,omitempty" doc:"Steps of search for all sizes together, about a microsecond each"`
}

// Solved says what each size gives.
type Solved struct {
	ClusterTemplate string             `json:"clusterTemplate"`
	Comparator      string             `json:"comparator" doc:"The one that decided"`
	Sizes           []solver.SizeRange `json:"sizes" doc:"One entry for sizes of which the same can be said"`
}

// Linted says what is wrong with definitions that are there, or would be.
type Linted struct {
	Faults    model.Faults     `json:"faults,omitempty" doc:"For these a write is refused"`
	Warnings  model.Faults     `json:"warnings,omitempty" doc:"These leave a definition usable"`
	Templates []LintedTemplate `json:"templates,omitempty" doc:"Templates without faults"`
}

// LintedTemplate says what a template is good for.
type LintedTemplate struct {
	Name string `json:"name"`
	// Smallest cluster with the default services; 0 where none was found.
	Smallest int `json:"smallest" doc:"The least number of nodes that has a layout with the default services; 0: none was found"`
}
