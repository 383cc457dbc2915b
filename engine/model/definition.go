package model

import "encoding/json"

// Kind is a kind of definition, as in URLs and names of folders.
type Kind string

// The kinds of definitions of a tenant.
const (
	KindProvider        Kind = "providers"
	KindHardwareType    Kind = "hardwaretypes"
	KindImageType       Kind = "imagetypes"
	KindService         Kind = "services"
	KindClusterTemplate Kind = "clustertemplates"
	KindPartialTemplate Kind = "partialtemplates"
	KindProviderType    Kind = "providertypes"
	KindAutomatorType   Kind = "automatortypes"
	KindPolicies        Kind = "policies"
)

// Kinds lists every kind, in the order in which an import writes them.
var Kinds = []Kind{KindProviderType, KindAutomatorType, KindProvider, KindHardwareType, KindImageType, KindService,
	KindPartialTemplate, KindClusterTemplate, KindPolicies}

// Base has the fields of every definition (docs/spec/coopr.md 3). The state sets Version, Author and
// HostExec on every write; on input they are ignored.
type Base struct {
	Name        string `json:"name"`
	Label       string `json:"label,omitempty"`
	Description string `json:"description,omitempty"`
	Icon        string `json:"icon,omitempty"`
	Version     int    `json:"version,omitempty"`
	Author      string `json:"author,omitempty" doc:"Who wrote this version"`
	HostExec    bool   `json:"host_exec,omitempty" doc:"Whether the author had the right host:exec then"`
}

// Provider defines how machines are made: a plugin (ProviderType) and the administrator's
// values for its fields.
type Provider struct {
	Base
	ProviderType string         `json:"providertype"`
	Provisioner  map[string]any `json:"provisioner,omitempty"`
	// MaxParallel is the highest number of concurrent tasks for the provider's API; 0 means no
	// limit.
	MaxParallel int `json:"maxParallel,omitempty"`
	// Identity has the provider's tasks get tokens with which they identify themselves elsewhere; nil: none.
	Identity *Identity `json:"identity,omitempty"`
}

// HardwareType maps the names of providers to their names for this hardware. Each entry has
// "flavor", and may have "cost", "vcpu", "ram" and other keys.
type HardwareType struct {
	Base
	ProviderMap map[string]map[string]any `json:"providermap"`
}

// ImageType maps the names of providers to their names for this image. Each entry has "image",
// and may have "sshuser" and other keys.
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
	// RestartOnConfigure is false if a changed configuration does not restart the service; nil
	// means true (docs/spec/planner.md, "Reconfiguration").
	RestartOnConfigure *bool `json:"restart_on_configure,omitempty"`
	// Reads are the paths of the parts of the cluster's configuration that the service uses
	// ("shop.web"); empty: all of it. Its tasks get only these parts, and changes of other
	// parts do not affect it.
	Reads []string `json:"reads,omitempty"`
	// HealthCheck configures how the check action watches the service. ReadinessCheck
	// configures how it tests that a started service is ready (nil: the service is ready when
	// its start action has ended).
	HealthCheck    *Probe `json:"health-check,omitempty"`
	ReadinessCheck *Probe `json:"readiness-check,omitempty"`
	// Goal is GoalRunning (the default), GoalFinish or GoalOnce.
	Goal string `json:"goal,omitempty"`
	// Exclusive is the set of actions on a node that do not run at the same time as the
	// service's: all others (ExclusiveNode, the default), or those of the same service
	// (ExclusiveService).
	Exclusive string `json:"exclusive,omitempty"`
	// Essential is false if only the service itself restarts when it fails, and not all
	// services of the node; nil means true.
	Essential *bool `json:"essential,omitempty"`
	// AllowDecommission is false if the service, with its nodes, must not be removed from a
	// cluster that continues to exist; nil means true (in the SDK: false).
	AllowDecommission *bool `json:"allow-decommission,omitempty"`
	// Changes are change objects that keep the service's nodes in shape once it has started
	// (docs/changes.md).
	Changes []ChangeObject `json:"changes,omitempty"`
}

// The values of Exclusive (docs/spec/planner.md, "Operations").
const (
	ExclusiveNode    = "node"
	ExclusiveService = "service"
)

// Dependencies of a service on others, by the name of a service or a name that services
// provide.
type Dependencies struct {
	Provides  []string `json:"provides,omitempty"`
	Conflicts []string `json:"conflicts,omitempty"`
	Install   Needs    `json:"install,omitzero"`
	Runtime   Needs    `json:"runtime,omitzero"`
}

// Needs are the dependencies at one stage. Services in Requires must be on the cluster.
// Services in Uses only order tasks if they are on the cluster.
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
	// Repeat reports that an INITIALIZE may be done again where it was done before, when an operator has the service launched anew.
	Repeat bool `json:"repeat,omitempty"`
	// Identity has the action's tasks get tokens with which they identify themselves elsewhere; nil: none.
	Identity *Identity `json:"identity,omitempty"`
}

// Resources are the resources that a service needs on a node (docs/spec/solver.md rule 4).
type Resources struct {
	VCPU float64 `json:"vcpu,omitempty"`
	RAM  float64 `json:"ram,omitempty"`
	Disk float64 `json:"disk,omitempty"`
}

// Link is a link that is shown to users, with its macros expanded.
type Link struct {
	Label string `json:"label"`
	URL   string `json:"url"`
}

// ClusterTemplate is the template of clusters: defaults, the allowed choices, and the
// constraints of layouts (docs/spec/coopr.md 3.5).
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
	// Comparator is the solver's preference order: "original", "cost", or one that a plugin
	// offers.
	Comparator string `json:"comparator,omitempty"`
	// Plans define how operations proceed through the cluster, in the order of their priority
	// (docs/spec/plans.md §13).
	Plans []Plan `json:"plans,omitempty"`
	// Recovery configures automatic recovery; nil means the defaults.
	Recovery *RecoveryPolicy `json:"recovery,omitempty"`
}

// PartialTemplate is a piece of a template that templates include.
type PartialTemplate struct {
	ClusterTemplate
	Immutable bool `json:"immutable,omitempty"`
}

// Policies is a document with permissions (docs/policies.md).
type Policies struct {
	Base
	// Text has the policies, in Cedar.
	Text string `json:"text"`
}

// Reference names another definition.
type Reference struct {
	Name string `json:"name"`
}

// Defaults apply to fields that a request does not set.
type Defaults struct {
	Services     []DefaultService `json:"services,omitempty"`
	Provider     string           `json:"provider,omitempty"`
	HardwareType string           `json:"hardwaretype,omitempty"`
	ImageType    string           `json:"imagetype,omitempty"`
	DNSSuffix    string           `json:"dnsSuffix,omitempty"`
	Config       map[string]any   `json:"config,omitempty"`
}

// DefaultService is the name of a service, or the name with a configuration.
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

// MarshalJSON writes only the name if there is no configuration.
func (d DefaultService) MarshalJSON() ([]byte, error) {
	if d.Config == nil {
		return json.Marshal(d.Name)
	}
	type plain DefaultService
	return json.Marshal(plain(d))
}

// Compatibility lists what a request may choose. An empty list allows everything.
type Compatibility struct {
	HardwareTypes []string `json:"hardwaretypes,omitempty"`
	ImageTypes    []string `json:"imagetypes,omitempty"`
	Services      []string `json:"services,omitempty"`
}

// Constraints restrict the layouts of a cluster (docs/spec/solver.md rules 1 to 5).
type Constraints struct {
	Layout   LayoutConstraints            `json:"layout,omitzero"`
	Services map[string]ServiceConstraint `json:"services,omitempty"`
	Size     *Size                        `json:"size,omitempty"`
}

// LayoutConstraints define which services must, or must not, share a node.
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

// Requires allows a service only if enough nodes carry another one.
type Requires struct {
	Service string `json:"service"`
	Min     int    `json:"min"`
}

// Quantities bound the number of nodes that carry a service.
type Quantities struct {
	Min *Int `json:"min,omitempty"`
	Max *Int `json:"max,omitempty"`
	// Step: the number of nodes is a multiple of it (also read as "stepSize").
	Step  *Int   `json:"step,omitempty"`
	Odd   bool   `json:"odd,omitempty"`
	Ratio *Ratio `json:"ratio,omitempty"`
}

// Ratio bounds a service's share of all nodes. Min and Max are decimal numbers from 0 to 1,
// kept as text so that they compare exactly.
type Ratio struct {
	Min json.Number `json:"min,omitempty"`
	Max json.Number `json:"max,omitempty"`
}

// Size bounds the number of nodes of a cluster.
type Size struct {
	Min *Int `json:"min,omitempty"`
	Max *Int `json:"max,omitempty"`
}

// Preferences rank types, the most preferred first.
type Preferences struct {
	HardwareTypes []string `json:"hardwaretypes,omitempty"`
	ImageTypes    []string `json:"imagetypes,omitempty"`
}

// Administration holds a template's lease rules.
type Administration struct {
	LeaseDuration LeaseDuration `json:"leaseduration,omitzero"`
}

// LeaseDuration bounds the lifetime of a cluster; zero means for ever.
type LeaseDuration struct {
	Initial Millis `json:"initial"`
	Max     Millis `json:"max"`
	Step    Millis `json:"step"`
	// given is true if the definition contains the durations, even if all are zero. A template
	// that says "for ever" overrides its parent's lease.
	given bool
}

// SetGiven records whether a definition contains the durations.
func (l *LeaseDuration) SetGiven(given bool) { l.given = given }

// UnmarshalJSON reads the three durations.
func (l *LeaseDuration) UnmarshalJSON(b []byte) error {
	type plain LeaseDuration
	v := plain{given: true}
	err := json.Unmarshal(b, &v)
	*l = LeaseDuration(v)
	return err
}

// PluginType describes a provider or automator: its fields and resources (docs/spec/coopr.md
// 3.10). Plugins report it; files can contain it, too.
type PluginType struct {
	Base
	// Class is "provider" or "automator".
	Class string `json:"class,omitempty"`
	// Plugin is the version of the plugin binary that offers the type, if any.
	Plugin        string                  `json:"plugin,omitempty"`
	Protocol      string                  `json:"protocol,omitempty"`
	Parameters    PluginParameters        `json:"parameters"`
	ResourceTypes map[string]ResourceType `json:"resourceTypes,omitempty"`
	// Actions define for each verb how it may be repeated: "idempotent" (the default, except
	// for create) or "observe" (check first) (docs/architecture.md, "A task").
	Actions map[string]string `json:"actions,omitempty"`
	// Comparators are the orders of node layouts that the plugin offers, by
	// name (docs/spec/solver.md rule 8).
	Comparators []string `json:"comparators,omitempty"`
	// PerMachine is true for a provider whose machines live on the machine of the agent that
	// made them. To list all of them, every agent must be asked.
	PerMachine bool `json:"perMachine,omitempty"`
	// Classname is a key of the original. It is read and ignored.
	Classname string `json:"classname,omitempty"`
}

// PluginParameters are a plugin's fields for the administrator and for the user.
type PluginParameters struct {
	Admin PluginFields `json:"admin,omitzero"`
	User  PluginFields `json:"user,omitzero"`
}

// PluginFields are fields by name, and alternative sets of required fields.
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
	// Credential is true if the value belongs to a secret, such as a user name. Operations
	// take secrets and credentials from the provider's newest definition.
	Credential bool `json:"credential,omitempty"`
}

// ResourceType is a kind of file that a plugin uses.
type ResourceType struct {
	Format      string `json:"format"`
	Permissions string `json:"permissions,omitempty"`
	// Secret is true if the API never returns the content, as for keys.
	Secret bool `json:"secret,omitempty"`
}
