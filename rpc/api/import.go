package api

import (
	"github.com/coopr/coopr/engine/model"
)

// Definitions are all definitions of a tenant, or some of them, by kind. An export returns them
// and an import accepts them.
type Definitions struct {
	ProviderTypes    []*model.PluginType      `json:"providertypes,omitempty"`
	AutomatorTypes   []*model.PluginType      `json:"automatortypes,omitempty"`
	Providers        []*model.Provider        `json:"providers,omitempty"`
	HardwareTypes    []*model.HardwareType    `json:"hardwaretypes,omitempty"`
	ImageTypes       []*model.ImageType       `json:"imagetypes,omitempty"`
	Services         []*model.Service         `json:"services,omitempty"`
	PartialTemplates []*model.PartialTemplate `json:"partialtemplates,omitempty"`
	ClusterTemplates []*model.ClusterTemplate `json:"clustertemplates,omitempty"`
	Policies         []*model.Policies        `json:"policies,omitempty"`
}

// Imported is the answer to an import.
type Imported struct {
	DryRun   bool            `json:"dryRun,omitempty" doc:"Nothing was written: these versions would have been"`
	Written  []DefinitionRef `json:"written"`
	Warnings model.Faults    `json:"warnings,omitempty" doc:"Problems that did not stop the import"`
}

// DefinitionRef names one version of a definition.
type DefinitionRef struct {
	Kind    model.Kind `json:"kind"`
	Name    string     `json:"name"`
	Version int        `json:"version"`
}
