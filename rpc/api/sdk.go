package api

import "github.com/coopr/coopr/engine/model"

// Endpoint is where clients reach services of a cluster, in the words of the DC/OS SDK.
type Endpoint struct {
	Address []string `json:"address,omitempty" doc:"Address and port on each node, by the nodes' numbers"`
	DNS     []string `json:"dns,omitempty" doc:"Host name and port on each node"`
	URL     []string `json:"url" doc:"The links"`
}

// Configuration is a target of a cluster: everything that its nodes can be brought to.
type Configuration struct {
	Cluster     string                   `json:"name"`
	Target      int                      `json:"target" doc:"The number of the target"`
	Template    TemplateVersion          `json:"template"`
	Services    []string                 `json:"services"`
	Definitions map[string]model.Service `json:"definitions"`
	Config      map[string]any           `json:"config"`
	Layout      map[string]PlacedNode    `json:"layout" doc:"The nodes, by their names"`
}

// TemplateVersion names a version of a cluster template.
type TemplateVersion struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// PlacedNode is a node of a layout.
type PlacedNode struct {
	HardwareType string   `json:"hardwaretype"`
	ImageType    string   `json:"imagetype"`
	Services     []string `json:"services"`
}

// OperationProperty is an operation as a property of a cluster.
type OperationProperty struct {
	ID      string                `json:"id"`
	Type    model.OperationType   `json:"type"`
	Status  model.OperationStatus `json:"status"`
	Message string                `json:"message,omitempty"`
	Actor   string                `json:"actor"`
	Created int64                 `json:"created" doc:"Unix milliseconds"`
	Ended   int64                 `json:"ended,omitempty" doc:"Unix milliseconds; absent: not yet"`
}

// TaskProperty is the status of a service on a node as a property of a cluster.
type TaskProperty struct {
	State   string `json:"state,omitempty" doc:"Absent if the service was never started"`
	Address string `json:"address,omitempty"`
	Node    string `json:"node"`
	Agent   string `json:"agent,omitempty" doc:"The agent that ran the latest task of the service"`
	Time    int64  `json:"time,omitempty" doc:"When the latest task of the service began, in Unix milliseconds"`
}

// CosmosRequest is a request to the package service of DC/OS. Absent fields are not to change.
type CosmosRequest struct {
	AppID          string         `json:"appId"`
	PackageVersion string         `json:"packageVersion,omitempty" doc:"A version of the cluster's template"`
	Options        map[string]any `json:"options,omitempty" doc:"Configuration"`
	Replace        bool           `json:"replace,omitempty" doc:"Start from the template's defaults"`
}

// CosmosPackage is a cluster's template as a package of DC/OS.
type CosmosPackage struct {
	Name             string         `json:"name"`
	Version          string         `json:"version"`
	Description      string         `json:"description"`
	Maintainer       string         `json:"maintainer"`
	PackagingVersion string         `json:"packagingVersion"`
	ReleaseVersion   int            `json:"releaseVersion"`
	Config           map[string]any `json:"config" doc:"A JSON schema of the defaults"`
}

// CosmosDescription describes a cluster as a service of DC/OS.
type CosmosDescription struct {
	Package             CosmosPackage  `json:"package"`
	UpgradesTo          []string       `json:"upgradesTo"`
	DowngradesTo        []string       `json:"downgradesTo"`
	ResolvedOptions     map[string]any `json:"resolvedOptions"`
	UserProvidedOptions map[string]any `json:"userProvidedOptions"`
}

// CosmosUpdate is the answer to a change of a service.
type CosmosUpdate struct {
	Package         CosmosPackage  `json:"package"`
	ResolvedOptions map[string]any `json:"resolvedOptions"`
	DeploymentID    *string        `json:"marathonDeploymentId" doc:"The operation, or null if nothing changes"`
}
