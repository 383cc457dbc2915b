package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// CreateCluster is a request for a new cluster (docs/spec/coopr.md 2.3). Absent values come from the template.
type CreateCluster struct {
	Rollout
	Name            string `json:"name"`
	Description     string `json:"description,omitempty"`
	ClusterTemplate string `json:"clusterTemplate"`
	// NumMachines may also be called "nodes", and be a text: "5".
	NumMachines    Int               `json:"numMachines"`
	Provider       string            `json:"provider,omitempty"`
	ProviderFields map[string]any    `json:"providerFields,omitempty"`
	HardwareType   string            `json:"hardwaretype,omitempty"`
	ImageType      string            `json:"imagetype,omitempty"`
	Services       []string          `json:"services,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	// InitialLeaseDuration is in milliseconds, 0 for ever. Nil, or -1 as the original's
	// clients write it, means the template's.
	InitialLeaseDuration *Millis        `json:"initialLeaseDuration,omitempty"`
	DNSSuffix            string         `json:"dnsSuffix,omitempty"`
	Config               map[string]any `json:"config,omitempty"`
	// ConfigMode is ConfigMerge (the default: Config is merged deeply into the template's) or
	// ConfigReplace (Config alone counts, as in the original).
	ConfigMode string `json:"configMode,omitempty"`
	// Comparator overrides the template's: "original" or "cost".
	Comparator string `json:"comparator,omitempty"`
	// OnFailure is "delete" (the default), "pause" or "leave".
	OnFailure string `json:"onFailure,omitempty"`
	// ResolveOnFailure is how many other layouts are tried if this one fails, before OnFailure "delete" applies.
	ResolveOnFailure Int `json:"resolveOnFailure,omitempty"`
	// Priority orders the tasks of operations: higher goes first, 0 is the default.
	Priority Int `json:"priority,omitempty"`
}

// Rollout defines how nodes take turns in an operation and how many failures it tolerates.
type Rollout struct {
	// Strategy is "serial", "parallel", "canary" (or "serial-canary"), "parallel-canary",
	// "batch=N" or "batch=N%"; "" is the default of the operation.
	Strategy string `json:"strategy,omitempty"`
	// MaxFailures is how many nodes may fail while the others go on.
	MaxFailures Int `json:"maxFailures,omitempty"`
	// Staged makes all nodes wait for each other at barriers, stage by stage.
	Staged bool `json:"staged,omitempty"`
	// Queue makes the operation wait if another one is running. Otherwise it is refused.
	Queue bool `json:"queue,omitempty"`
	// Supersede makes a configure, upgrade or sync-template take the place of one that is under way, instead of being refused.
	Supersede bool `json:"supersede,omitempty"`
}

// NodeChoice limits an operation to some nodes of its cluster, which it names by their ids, numbers or host names. Without names
// the operation is about all nodes.
type NodeChoice struct {
	// NodeNames are the only nodes that the operation touches.
	NodeNames []string `json:"nodeNames,omitempty"`
	// ExcludedNodeNames are the nodes that it does not touch, if it touches all others.
	ExcludedNodeNames []string `json:"excludedNodeNames,omitempty"`
}

// Chosen reports whether the operation is limited to some nodes.
func (c NodeChoice) Chosen() bool { return c.NodeNames != nil || c.ExcludedNodeNames != nil }

// Check adds the faults of a choice by itself. An empty list is one of them, because whoever computed it did not mean all nodes.
func (c NodeChoice) Check(fs *Faults) {
	if c.NodeNames != nil && c.ExcludedNodeNames != nil {
		fs.Add("excludedNodeNames", "excludes nodeNames: name either the nodes to touch, or those to leave alone")
		return
	}
	if c.NodeNames != nil && len(c.NodeNames) == 0 {
		fs.Add("nodeNames", "names no node: name the nodes to touch, or leave the field out to mean all nodes")
	}
	if c.ExcludedNodeNames != nil && len(c.ExcludedNodeNames) == 0 {
		fs.Add("excludedNodeNames", "names no node: name the nodes to leave alone, or leave the field out to mean all nodes")
	}
}

// ConfigureCluster is a request for another configuration.
type ConfigureCluster struct {
	Rollout
	Config     map[string]any `json:"config"`
	ConfigMode string         `json:"configMode,omitempty"`
	// Restart is false if services are not to be restarted; nil means true.
	Restart        *bool          `json:"restart,omitempty"`
	ProviderFields map[string]any `json:"providerFields,omitempty"`
}

// ServiceRequest is a request to start, stop or restart services (the named ones, or all if
// none is named), or to add or remove the named ones.
type ServiceRequest struct {
	Rollout
	NodeChoice
	Services       []string       `json:"services,omitempty"`
	ProviderFields map[string]any `json:"providerFields,omitempty"`
}

// DeleteCluster is a request to delete a cluster.
type DeleteCluster struct {
	Rollout
	// Graceful stops and removes the services before the machines are deleted.
	Graceful       bool           `json:"graceful,omitempty"`
	ProviderFields map[string]any `json:"providerFields,omitempty"`
}

// ChangeCluster is the body of a request that changes the layout or the definitions of a cluster,
// rolls the cluster back, or recovers, restarts, pauses or resumes nodes. The operation decides
// which of its fields count.
type ChangeCluster struct {
	Rollout
	// Nodes is the number of nodes to add (grow, add-services) or to remove (shrink).
	Nodes Int `json:"nodes,omitempty"`
	// NodeNames are the nodes to remove (shrink), replace (replace-node), restart (recover), pause or resume: ids, numbers or host names.
	NodeNames []string `json:"nodeNames,omitempty"`
	// Forced is true if a node that is replaced or removed (shrink) is deleted without stopping
	// and removing its services first, for example because they cannot be stopped.
	Forced bool `json:"forced,omitempty"`
	// Services are the services to add, remove or upgrade. For recover, pause and resume they
	// are the services on the named nodes, all if none is named.
	Services []string `json:"services,omitempty"`
	// HardwareType, ImageType and Comparator choose the kind of new nodes.
	HardwareType string `json:"hardwaretype,omitempty"`
	ImageType    string `json:"imagetype,omitempty"`
	Comparator   string `json:"comparator,omitempty"`
	// To is the number of the snapshot to roll back to, or the version of the template (sync-template).
	To Int `json:"to,omitempty"`
	// OnFailure is "rollback", "pause" or "leave".
	OnFailure string `json:"onFailure,omitempty"`
	// ResolveOnFailure is how many other layouts are tried (grow, add-services), each after
	// the previous one has been rolled back.
	ResolveOnFailure Int            `json:"resolveOnFailure,omitempty"`
	ProviderFields   map[string]any `json:"providerFields,omitempty"`
}

// UnmarshalJSON decodes a request leniently, with "nodes" for "numMachines" and -1 for no
// lease. Package decode decodes it strictly.
func (r *CreateCluster) UnmarshalJSON(b []byte) error {
	type plain CreateCluster
	v := struct {
		*plain
		Nodes Int             `json:"nodes"`
		Lease json.RawMessage `json:"initialLeaseDuration"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if v.Nodes != 0 && r.NumMachines == 0 {
		r.NumMachines = v.Nodes
	}
	r.InitialLeaseDuration = nil
	if lease := strings.Trim(string(v.Lease), `"`); lease != "" && lease != "-1" && lease != "null" {
		return json.Unmarshal(v.Lease, &r.InitialLeaseDuration)
	}
	return nil
}

// Check returns the faults of the request by itself.
func (r CreateCluster) Check() Faults {
	var fs Faults
	if why := CheckName(r.Name); why != "" {
		fs.Add("name", why)
	}
	if r.ClusterTemplate == "" {
		fs.Add("clusterTemplate", "is missing: name the cluster template to make the cluster of")
	}
	switch n := r.NumMachines; {
	case n == 0:
		fs.Add("numMachines", "is missing or 0: say how many nodes the cluster shall have, at least 1")
	case n < 0:
		fs.Addf("numMachines", "%d is less than 1: say how many nodes the cluster shall have", n)
	case n > MaxClusterSize:
		fs.Addf("numMachines", "%d is more than the %d nodes that a cluster may have", n, MaxClusterSize)
	}
	if r.InitialLeaseDuration != nil && *r.InitialLeaseDuration < 0 {
		fs.Add("initialLeaseDuration", "must not be negative: leave it away for the template's lease, or write 0 for no end")
	}
	CheckNames(&fs, "services", r.Services)
	fs = append(fs, CheckLabels("labels", r.Labels)...)
	if why := CheckDNSSuffix(r.DNSSuffix); why != "" {
		fs.Add("dnsSuffix", why)
	}
	CheckConfigMode(&fs, r.ConfigMode)
	switch r.OnFailure {
	case "", "delete", "pause", "leave":
	default:
		fs.Addf("onFailure", "must be \"delete\", \"pause\" or \"leave\", but is %q", words.Shorten(r.OnFailure))
	}
	CheckRetries(&fs, int(r.ResolveOnFailure), r.OnFailure, "delete")
	return fs
}

// CheckRetries adds a fault if other layouts are to be tried but onFailure does not make room
// for them.
func CheckRetries(fs *Faults, retries int, onFailure, needed string) {
	switch {
	case retries < 0 || retries > MostRetries:
		fs.Addf("resolveOnFailure", "must be from 0 to %d, but is %d", MostRetries, retries)
	case retries > 0 && onFailure != "" && onFailure != needed:
		fs.Addf("resolveOnFailure", "other layouts are tried only with onFailure %q, and it is %q", needed, words.Shorten(onFailure))
	}
}

// CheckConfigMode adds a fault if the mode is none.
func CheckConfigMode(fs *Faults, mode string) {
	if mode != "" && mode != ConfigMerge && mode != ConfigReplace {
		fs.Addf("configMode", "must be \"merge\" or \"replace\", but is %q", words.Shorten(mode))
	}
}

// CheckNames adds a fault for each entry of a list that is not a name, or is there twice.
func CheckNames(fs *Faults, path string, names []string) {
	for i, n := range names {
		at := fmt.Sprintf("%s[%d]", path, i)
		if why := CheckName(n); why != "" {
			fs.Add(at, why)
		} else if first := slices.Index(names, n); first < i {
			fs.Addf(at, "%s is already named at %s[%d]: keep one", n, path, first)
		}
	}
}

// Choice is the combination of a create request and a resolved template.
type Choice struct {
	Provider     string
	HardwareType string
	ImageType    string
	Services     []string
	DNSSuffix    string
	Config       map[string]any
	Lease        Millis
	Comparator   string
}

// Choose applies the request to a resolved template and checks it against what the template
// allows: sizes, compatibility, lease. The error has all faults. Empty hardware and image
// types leave the choice to the solver.
func (r CreateCluster) Choose(t ClusterTemplate) (Choice, error) {
	var fs Faults
	first := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	c := Choice{
		Provider:     first(r.Provider, t.Defaults.Provider),
		HardwareType: first(r.HardwareType, t.Defaults.HardwareType),
		ImageType:    first(r.ImageType, t.Defaults.ImageType),
		DNSSuffix:    first(r.DNSSuffix, t.Defaults.DNSSuffix),
		Comparator:   first(r.Comparator, t.Comparator),
		Services:     r.Services,
		Config:       CombineConfig(EffectiveDefaults(t.Defaults), r.Config, r.ConfigMode),
	}
	if len(c.Services) == 0 {
		for _, s := range t.Defaults.Services {
			c.Services = append(c.Services, s.Name)
		}
	}
	if c.Provider == "" {
		fs.Addf("provider", "is missing, and template %s names no default: name one", t.Name)
	}
	if size := t.Constraints.Size; size != nil {
		if size.Min != nil && r.NumMachines < *size.Min {
			fs.Addf("numMachines", "%d is less than the %d nodes that template %s needs at least", r.NumMachines, *size.Min, t.Name)
		}
		if size.Max != nil && r.NumMachines > *size.Max {
			fs.Addf("numMachines", "%d is more than the %d nodes that template %s allows", r.NumMachines, *size.Max, t.Name)
		}
	}
	allowed := func(path, what, name string, asked bool, compatible []string) {
		if name == "" || len(compatible) == 0 || slices.Contains(compatible, name) {
			return
		}
		if asked {
			fs.Addf(path, "%s %s is not compatible with template %s%s", what, name, t.Name, words.DidYouMeanOrOneOf(name, compatible))
		} else {
			fs.Addf(path, "the default %s %s of template %s is not among its compatible ones: choose another%s", what, name, t.Name,
				words.DidYouMeanOrOneOf(name, compatible))
		}
	}
	allowed("hardwaretype", "hardware type", c.HardwareType, r.HardwareType != "", t.Compatibility.HardwareTypes)
	allowed("imagetype", "image type", c.ImageType, r.ImageType != "", t.Compatibility.ImageTypes)
	for i, s := range c.Services {
		path := "services"
		if len(r.Services) > 0 {
			path = fmt.Sprintf("services[%d]", i)
		}
		allowed(path, "service", s, len(r.Services) > 0, t.Compatibility.Services)
	}
	lease, faults := InitialLease(t.Administration.LeaseDuration, r.InitialLeaseDuration)
	fs = append(fs, faults...)
	if lease > longestLease {
		fs.Addf("initialLeaseDuration", "a lease can have at most %s: ask for a shorter one, or for 0, which has no end", longestLease)
	}
	c.Lease = lease
	return c, fs.Err()
}
