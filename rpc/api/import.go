package api

import (
	"github.com/coopr/coopr/engine/model"
)

// Definitions are all definitions of a tenant, or some of them, by kind. It is
// what an export gives and an import takes.
type Definitions struct {
	ProviderTypes    []*model.PluginType      `json:"providertypes,omitempty"`
	AutomatorTypes   []*model.PluginType      `json:"automatortypes,omitempty"`
	Providers        []*model.Provider        `json:"providers,omitempty"`
	HardwareTypes    []*model.HardwareType    `json:"hardwaretypes,omitempty"`
	ImageTypes       []*model.ImageType       `json:"imagetypes,omitempty"`
	Services         []*model.Service         `json:"services,omitempty"`
	PartialTemplates []*model.PartialTemplate `json:"partialtemplates,omitempty"`
	ClusterTemplates []*model.ClusterTemplate `json:"clustertemplates,omitempty"`
}

// Imported says what an import wrote.
type Imported struct {
	Written  []DefinitionRef `json:"written"`
	Warnings model.Faults    `json:"warnings,omitempty" doc:"What did not stop the import, but deserves a look"`
}

// DefinitionRef names one version of a definition.
type DefinitionRef struct {
	Kind    model.Kind `json:"kind"`
	Name    string     `json:"name"`
	Version int        `json:"version"`
}
