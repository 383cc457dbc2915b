package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Spec describes a provisioner and its properties (docs/spec/profiles.md §13).
type Spec struct {
	Name        string  `json:"name"`
	Label       string  `json:"label,omitempty"`
	Description string  `json:"description,omitempty"`
	Groups      []Group `json:"configuration-groups"`
	Icon        any     `json:"icon,omitempty"`
	Beta        bool    `json:"beta"`
	// Capabilities are the capabilities of its clusters, by kind.
	Capabilities []Capability `json:"capabilities,omitempty"`
}

// Group are properties that belong together.
type Group struct {
	Label      string         `json:"label"`
	Properties []PropertySpec `json:"properties"`
}

// PropertySpec describes one property.
type PropertySpec struct {
	Name        string           `json:"name"`
	Label       string           `json:"label,omitempty"`
	Description string           `json:"description,omitempty"`
	Widget      string           `json:"widget-type"`
	Attributes  WidgetAttributes `json:"widget-attributes"`
	Required    bool             `json:"required,omitempty"`
}

// WidgetAttributes are further attributes of a widget.
type WidgetAttributes struct {
	Default     any      `json:"default,omitempty"`
	Values      []string `json:"values,omitempty"`
	Min         *int     `json:"min,omitempty"`
	Max         *int     `json:"max,omitempty"`
	Placeholder string   `json:"placeholder,omitempty"`
}

// The widgets that restrict the value.
const (
	Textbox  = "textbox"
	Number   = "number"
	Select   = "select"
	Toggle   = "toggle"
	Textarea = "memory-textbox"
)

// find returns a property's description.
func (s *Spec) find(name string) (PropertySpec, bool) {
	for _, g := range s.Groups {
		for _, p := range g.Properties {
			if p.Name == name {
				return p, true
			}
		}
	}
	return PropertySpec{}, false
}

// Reads reports whether the provisioner reads a property: one that it describes, or a field for a provider, which are free.
func (s *Spec) Reads(name string) bool {
	_, ok := s.find(name)
	return ok || strings.HasPrefix(name, PropField)
}

// names returns the names of the properties that the provisioner describes.
func (s *Spec) names() (out []string) {
	for _, g := range s.Groups {
		for _, p := range g.Properties {
			out = append(out, p.Name)
		}
	}
	return out
}

// Judge returns the fault of a property's value, or "". Unknown properties are accepted.
// Values with references to secrets are checked once the secrets are known.
func (s *Spec) Judge(name, value string) string {
	p, ok := s.find(name)
	if !ok {
		return ""
	}
	if strings.HasPrefix(p.Widget, "securekey-") && value != "" && !Secure(value) {
		return "is sensitive: give a reference to a secret, ${secure(NAME)}, not the value itself"
	}
	if value == "" || Secure(value) {
		return ""
	}
	switch p.Widget {
	case Number:
		n, err := strconv.Atoi(value)
		a := p.Attributes
		switch {
		case err != nil:
			return fmt.Sprintf("must be a whole number, but is %q", value)
		case a.Min != nil && n < *a.Min:
			return fmt.Sprintf("must be %d or more, but is %d", *a.Min, n)
		case a.Max != nil && n > *a.Max:
			return fmt.Sprintf("must be at most %d, but is %d", *a.Max, n)
		}
	case Select:
		if len(p.Attributes.Values) > 0 && !slices.Contains(p.Attributes.Values, value) {
			return fmt.Sprintf("must be one of %s, but is %q", strings.Join(p.Attributes.Values, ", "), value)
		}
	case Toggle:
		if _, err := strconv.ParseBool(value); err != nil {
			return fmt.Sprintf("must be true or false, but is %q", value)
		}
	}
	return ""
}

// Validate checks that the final properties of a run have all required ones, and no names of encrypted values.
func (s *Spec) Validate(values map[string]string) model.Faults {
	fs := checkRefs(values)
	for _, g := range s.Groups {
		for _, p := range g.Properties {
			v := values[p.Name]
			if p.Required && v == "" && p.Attributes.Default == nil {
				fs.Add("properties."+p.Name, fmt.Sprintf("is missing: set it in the profile, or with the argument %s%s", PropertyPrefix, p.Name))
			}
			if why := s.Judge(p.Name, v); why != "" {
				fs.Add("properties."+p.Name, why)
			}
		}
	}
	return fs
}

// The properties that provisioners of clusters have in common.
const (
	PropNodes    = "numMachines"
	PropTemplate = "clusterTemplate"
	// PropField is the prefix of fields for the provider.
	PropField = "providerField."
	// PropConfig is the cluster's configuration, a JSON object.
	PropConfig = "config"
)

func nodes(usual int) PropertySpec {
	one, most := 1, model.MaxClusterSize
	return PropertySpec{
		Name:        PropNodes,
		Label:       "Nodes",
		Description: "How many nodes the cluster has",
		Widget:      Number,
		Attributes:  WidgetAttributes{Default: usual, Min: &one, Max: &most},
	}
}

// PlainNodes is the name of the definitions that clusters of plain nodes are made from.
// Tenants cannot use it.
const PlainNodes = "run:nodes"

// Plain returns the provider of a cluster of plain nodes from a provisioner's name and
// properties, and false if the provisioner makes clusters from templates.
func Plain(provisioner string, properties map[string]string) (model.Provider, bool) {
	p := model.Provider{Base: model.Base{Name: PlainNodes}, ProviderType: provisioner, Provisioner: map[string]any{}}
	switch provisioner {
	case "cluster":
		return p, false
	case Native:
		p.ProviderType = "local"
	}
	for name, value := range properties {
		if f, ok := strings.CutPrefix(name, PropField); ok {
			p.Provisioner[f] = value
		}
	}
	return p, true
}

// NativeSpec returns the specification of the provisioner "native".
func NativeSpec() Spec {
	return Spec{
		Name: Native, Label: "Native", Description: "Work folders on the agents' own machines",
		Groups: []Group{{Label: "Work folders", Properties: []PropertySpec{nodes(1)}}},
	}
}

// ClusterSpec returns the specification of the provisioner "cluster". The templates are the
// names to choose from.
func ClusterSpec(templates []string) Spec {
	box := func(name, label, description string) PropertySpec {
		return PropertySpec{Name: name, Label: label, Description: description, Widget: Textbox}
	}
	tpl := PropertySpec{
		Name:        PropTemplate,
		Label:       "Template",
		Description: "The cluster template",
		Widget:      Select,
		Attributes:  WidgetAttributes{Values: templates},
		Required:    true,
	}
	return Spec{
		Name: "cluster", Label: "Cluster", Description: "A cluster of its own for each run, made from a cluster template",
		Groups: []Group{
			{
				Label: "Cluster",
				Properties: []PropertySpec{tpl, nodes(1), box("services", "Services", "Names with commas between; empty: the template's"),
					{Name: PropConfig, Label: "Configuration", Description: "A JSON object, merged over the template's", Widget: Textarea}},
			},
			{
				Label: "Nodes",
				Properties: []PropertySpec{
					box("provider", "Provider", "Empty: the template's"),
					box("hardwaretype", "Hardware type", "Empty: the solver chooses"),
					box("imagetype", "Image type", "Empty: the solver chooses"),
					box("dnsSuffix", "Domain", "Of the nodes' names"),
				},
			},
		},
	}
}

// PluginSpec returns the specification of the provisioner that a provider plugin offers: a
// cluster of plain nodes with the plugin's own fields as properties.
func PluginSpec(t model.PluginType) Spec {
	out := Spec{Name: t.Name, Label: cmp.Or(t.Label, t.Name), Description: t.Description, Groups: []Group{
		{Label: "Nodes", Properties: []PropertySpec{nodes(1),
			{Name: "flavor", Label: "Flavor", Description: "The provider's name for the size of machines", Widget: Textbox},
			{Name: "image", Label: "Image", Description: "The provider's name for the image", Widget: Textbox},
			{Name: "sshuser", Label: "SSH user", Description: "Who logs in on the image", Widget: Textbox}}},
	}}
	for _, scope := range []struct {
		label string
		set   model.PluginFields
	}{{"Provider", t.Parameters.Admin}, {"Account", t.Parameters.User}} {
		g := Group{Label: scope.label}
		for _, name := range slices.Sorted(maps.Keys(scope.set.Fields)) {
			f := scope.set.Fields[name]
			p := PropertySpec{
				Name:        PropField + name,
				Label:       f.Label,
				Description: f.Tip,
				Widget:      Textbox,
				Attributes:  WidgetAttributes{Default: f.Default},
			}
			switch {
			case f.Secret():
				p.Widget = "securekey-text"
			case f.Type == "select":
				p.Widget, p.Attributes.Values = Select, f.Options
			case f.Type == "checkbox":
				p.Widget = Toggle
			}
			p.Required = len(scope.set.Required) == 1 && slices.Contains(scope.set.Required[0], name)
			g.Properties = append(g.Properties, p)
		}
		if len(g.Properties) > 0 {
			out.Groups = append(out.Groups, g)
		}
	}
	return out
}
