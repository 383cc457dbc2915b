package model

import "encoding/json"

// Kind names a kind of definition, as it stands in URLs and folder names.
type Kind string

// The kinds of definitions a tenant can hold.
const (
	KindProvider        Kind = "providers"
	KindHardwareType    Kind = "hardwaretypes"
	KindImageType       Kind = "imagetypes"
	KindService         Kind = "services"
	KindClusterTemplate Kind = "clustertemplates"
	KindPartialTemplate Kind = "partialtemplates"
	KindProviderType    Kind = "providertypes"
	KindAutomatorType   Kind = "automatortypes"
)

// Kinds lists every kind, in the order in which an import writes them.
var Kinds = []Kind{KindProviderType, KindAutomatorType, KindProvider, KindHardwareType, KindImageType, KindService, KindPartialTemplate, KindClusterTemplate}

// Base is what every definition has (docs/spec/coopr.md 3). Version is set by the
// state on every write and ignored on input.
type Base struct {
	Name        string `json:"name"`
	Label       string `json:"label,omitempty"`
	Description string `json:"description,omitempty"`
	Icon        string `json:"icon,omitempty"`
	Version     int    `json:"version,omitempty"`
}

// Provider says how machines are made: a plugin (ProviderType) and the
// administrator's values for its fields.
type Provider struct {
	Base
	ProviderType string         `json:"providertype"`
	Provisioner  map[string]any `json:"provisioner,omitempty"`
	// MaxParallel bounds the tasks at a time that the provider's API is asked
	// for; 0 sets no bound.
	MaxParallel int `json:"maxParallel,omitempty"`
}

// HardwareType maps provider names to what the provider calls this hardware.
// Each entry has "flavor" and may have "cost", "vcpu", "ram" and free keys.
type HardwareType struct {
	Base
	ProviderMap map[string]map[string]any `json:"providermap"`
}

// ImageType maps provider names to what the provider calls this image. Each
// entry has "image" and may have "sshuser" and free keys.
type ImageType struct {
	Base
	ProviderMap map[string]map[string]any `json:"providermap"`
}

// Service is a piece of software with its dependencies and actions.
type Service struct {
	Base
	Dependencies Dependencies       `json:"dependencies,omitzero"`
	Provisioner  ServiceProvisioner `json:"provisioner,omitzero"`
	Links        []Link             `json:"links,omitempty"`
	Resources    *Resources         `json:"resources,omitempty"`
	Spread       string             `json:"spread,omitempty"`
	// RestartOnConfigure says whether a changed configuration restarts the
	// service; nil means true (docs/spec/planner.md, "Reconfiguration").
	RestartOnConfigure *bool `json:"restart_on_configure,omitempty"`
	// Reads are the parts of the cluster's configuration that the service uses,
	// as paths ("shop.web"); empty: all of it. Its tasks get no more, and a
	// change elsewhere does not concern it.
	Reads []string `json:"reads,omitempty"`
	// HealthCheck says how the check action watches the service, ReadinessCheck
	// that it says when a started service is ready (nil: when its start has ended).
	HealthCheck    *Probe `json:"health-check,omitempty"`
	ReadinessCheck *Probe `json:"readiness-check,omitempty"`
	// Goal is what a started service comes to: RUNNING (the default), FINISH or ONCE.
	Goal string `json:"goal,omitempty"`
	// Exclusive is what the service's actions take turns with on a node: all others
	// (ExclusiveNode, the default), or those of the same service (ExclusiveService).
	Exclusive string `json:"exclusive,omitempty"`
	// Essential says whether all of the node is restarted when the service fails, or
	// it alone; nil means true.
	Essential *bool `json:"essential,omitempty"`
	// AllowDecommission says whether the service may be taken off a cluster that
	// goes on, and its nodes with it; nil means true (in the SDK: false).
	AllowDecommission *bool `json:"allow-decommission,omitempty"`
	// Changes are change objects that hold the service's nodes in shape once it is
	// started (docs/changes.md).
	Changes []ChangeObject `json:"changes,omitempty"`
}

// What a service's actions take turns with (docs/spec/planner.md, "Operations").
const (
	ExclusiveNode    = "node"
	ExclusiveService = "service"
)

// Dependencies of a service on others, by real or provided name.
type Dependencies struct {
	Provides  []string `json:"provides,omitempty"`
	Conflicts []string `json:"conflicts,omitempty"`
	Install   Needs    `json:"install,omitzero"`
	Runtime   Needs    `json:"runtime,omitzero"`
}

// Needs are the dependencies at one stage: Requires must be on the cluster,
// Uses only order tasks when present.
type Needs struct {
	Requires []string `json:"requires,omitempty"`
	Uses     []string `json:"uses,omitempty"`
}

// ServiceProvisioner holds a service's actions by key: install, remove,
// initialize, configure, start, stop, check.
type ServiceProvisioner struct {
	Actions map[string]ServiceAction `json:"actions,omitempty"`
}

// ServiceAction is one action of a service: the automator (Type) and its fields.
type ServiceAction struct {
	Type   string         `json:"type"`
	Fields map[string]any `json:"fields,omitempty"`
	// Timeout is a duration such as "10m"; empty means the default of the action.
	Timeout string `json:"timeout,omitempty"`
}

// Resources a service needs on a node (docs/spec/solver.md rule 4).
type Resources struct {
	VCPU float64 `json:"vcpu,omitempty"`
	RAM  float64 `json:"ram,omitempty"`
	Disk float64 `json:"disk,omitempty"`
}

// Link is shown to the user once its URL's macros are expanded.
type Link struct {
	Label string `json:"label"`
	URL   string `json:"url"`
}

// ClusterTemplate is a cluster to be: defaults, what may be chosen instead,
// and the constraints a layout must keep (docs/spec/coopr.md 3.5).
type ClusterTemplate struct {
	Base
	Defaults       Defaults       `json:"defaults,omitzero"`
	Compatibility  Compatibility  `json:"compatibility,omitzero"`
	Constraints    Constraints    `json:"constraints,omitzero"`
	Administration Administration `json:"administration,omitzero"`
	Links          []Link         `json:"links,omitempty"`
	Extends        *Reference     `json:"extends,omitempty"`
	Includes       []Reference    `json:"includes,omitempty"`
	// Preferences rank hardware and image types for the solver.
	Preferences Preferences `json:"preferences,omitzero"`
	// Comparator picks the solver's preference order: "original", "cost", or
	// one that a plugin offers.
	Comparator string `json:"comparator,omitempty"`
	// Plans say how operations go through the cluster, in the order of their
	// priority (docs/spec/plans.md §13).
	Plans []Plan `json:"plans,omitempty"`
	// Recovery says how clusters are kept alive by themselves; nil: by the defaults.
	Recovery *RecoveryPolicy `json:"recovery,omitempty"`
}

// PartialTemplate is a piece of a template that templates include.
type PartialTemplate struct {
	ClusterTemplate
	Immutable bool `json:"immutable,omitempty"`
}

// Reference names another definition.
type Reference struct {
	Name string `json:"name"`
}

// Defaults of a template, used where a request is silent.
type Defaults struct {
	Services     []DefaultService `json:"services,omitempty"`
	Provider     string           `json:"provider,omitempty"`
	HardwareType string           `json:"hardwaretype,omitempty"`
	ImageType    string           `json:"imagetype,omitempty"`
	DNSSuffix    string           `json:"dnsSuffix,omitempty"`
	Config       map[string]any   `json:"config,omitempty"`
}

// DefaultService is a service's name, or a name with configuration of its own.
type DefaultService struct {
	Name   string         `json:"name"`
	Config map[string]any `json:"config,omitempty"`
}

// UnmarshalJSON reads "name" or {"name": …, "config": …}.
func (d *DefaultService) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*d = DefaultService{}
		return json.Unmarshal(b, &d.Name)
	}
	type plain DefaultService
	return json.Unmarshal(b, (*plain)(d))
}

// MarshalJSON writes a bare name where there is no configuration.
func (d DefaultService) MarshalJSON() ([]byte, error) {
	if d.Config == nil {
		return json.Marshal(d.Name)
	}
	type plain DefaultService
	return json.Marshal(plain(d))
}

// Compatibility lists what a request may choose; an empty list means anything.
type Compatibility struct {
	HardwareTypes []string `json:"hardwaretypes,omitempty"`
	ImageTypes    []string `json:"imagetypes,omitempty"`
	Services      []string `json:"services,omitempty"`
}

// Constraints on the layout of a cluster (docs/spec/solver.md rules 1 to 5).
type Constraints struct {
	Layout   LayoutConstraints            `json:"layout,omitzero"`
	Services map[string]ServiceConstraint `json:"services,omitempty"`
	Size     *Size                        `json:"size,omitempty"`
}

// LayoutConstraints say which services share a node, always or never.
type LayoutConstraints struct {
	MustCoexist [][]string `json:"mustcoexist,omitempty"`
	CantCoexist [][]string `json:"cantcoexist,omitempty"`
}

// ServiceConstraint limits where and how often one service is placed.
type ServiceConstraint struct {
	HardwareTypes []string   `json:"hardwaretypes,omitempty"`
	ImageTypes    []string   `json:"imagetypes,omitempty"`
	Quantities    Quantities `json:"quantities,omitzero"`
	Requires      []Requires `json:"requires,omitempty"`
}

// Requires allows a service only where so many nodes carry another one.
type Requires struct {
	Service string `json:"service"`
	Min     int    `json:"min"`
}

// Quantities bound the number of nodes that carry a service.
type Quantities struct {
	Min *Int `json:"min,omitempty"`
	Max *Int `json:"max,omitempty"`
	// Step: the count is a multiple of it ("stepSize" is read as this).
	Step  *Int   `json:"step,omitempty"`
	Odd   bool   `json:"odd,omitempty"`
	Ratio *Ratio `json:"ratio,omitempty"`
}

// Ratio bounds a service's share of all nodes; Min and Max are decimal
// numbers of 0 to 1, kept as text so that they are compared exactly.
type Ratio struct {
	Min json.Number `json:"min,omitempty"`
	Max json.Number `json:"max,omitempty"`
}

// Size bounds the number of nodes of a cluster.
type Size struct {
	Min *Int `json:"min,omitempty"`
	Max *Int `json:"max,omitempty"`
}

// Preferences rank types, the most wanted first.
type Preferences struct {
	HardwareTypes []string `json:"hardwaretypes,omitempty"`
	ImageTypes    []string `json:"imagetypes,omitempty"`
}

// Administration holds a template's lease rules.
type Administration struct {
	LeaseDuration LeaseDuration `json:"leaseduration,omitzero"`
}

// LeaseDuration bounds how long a cluster lives; zero means for ever.
type LeaseDuration struct {
	Initial Millis `json:"initial"`
	Max     Millis `json:"max"`
	Step    Millis `json:"step"`
	// given is true if the durations stand in the definition, were they all zero: a template
	// that says "for ever" overrides its parent's lease.
	given bool
}

// UnmarshalJSON reads the three durations.
func (l *LeaseDuration) UnmarshalJSON(b []byte) error {
	type plain LeaseDuration
	v := plain{given: true}
	err := json.Unmarshal(b, &v)
	*l = LeaseDuration(v)
	return err
}

// PluginType describes a provider or automator: its fields and resources
// (docs/spec/coopr.md 3.10). Plugins serve it; files can hold it too.
type PluginType struct {
	Base
	// Class is "provider" or "automator".
	Class string `json:"class,omitempty"`
	// Plugin is the version of the plugin binary, where one serves the type.
	Plugin        string                  `json:"plugin,omitempty"`
	Protocol      string                  `json:"protocol,omitempty"`
	Parameters    PluginParameters        `json:"parameters"`
	ResourceTypes map[string]ResourceType `json:"resourceTypes,omitempty"`
	// Actions say how each verb may be repeated: "idempotent" (the default
	// but for create), "observe" (look first) (docs/architecture.md, "A task").
	Actions map[string]string `json:"actions,omitempty"`
	// Comparators are the orders of node layouts that the plugin offers, by
	// name (docs/spec/solver.md rule 8).
	Comparators []string `json:"comparators,omitempty"`
	// PerMachine says of a provider that what it makes may live on the machine of
	// the agent that made it: to list all of it, every agent must be asked.
	PerMachine bool `json:"perMachine,omitempty"`
	// Classname is the original's; read and ignored.
	Classname string `json:"classname,omitempty"`
}

// PluginParameters are a plugin's fields for the administrator and the user.
type PluginParameters struct {
	Admin PluginFields `json:"admin,omitzero"`
	User  PluginFields `json:"user,omitzero"`
}

// PluginFields are fields by name and the alternative sets that are required.
type PluginFields struct {
	Fields   map[string]FieldSchema `json:"fields,omitempty"`
	Required [][]string             `json:"required,omitempty"`
}

// FieldSchema describes one field of a plugin.
type FieldSchema struct {
	Label     string   `json:"label"`
	Type      string   `json:"type"`
	Tip       string   `json:"tip,omitempty"`
	Options   []string `json:"options,omitempty"`
	Default   any      `json:"default,omitempty"`
	Override  bool     `json:"override,omitempty"`
	Sensitive bool     `json:"sensitive,omitempty"`
	// Credential is true if the value goes with a secret, as a user's name does. Operations
	// take secrets and these of the provider's newest definition.
	Credential bool `json:"credential,omitempty"`
}

// ResourceType is a kind of file a plugin takes.
type ResourceType struct {
	Format      string `json:"format"`
	Permissions string `json:"permissions,omitempty"`
	// Secret is true if contents are never given back, as with keys.
	Secret bool `json:"secret,omitempty"`
}
