package profile

import (
	"slices"
	"strings"
)

// Capability is something that clusters of a provisioner have and programs may require, by its
// kind: {"dataset", "table"}.
type Capability struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// ProgramNeeds are the requirements of one plugin of a program.
type ProgramNeeds struct {
	// Plugin is the name of the plugin, for messages.
	Plugin string       `json:"plugin"`
	Needs  []Capability `json:"needs"`
}

// Unmet returns the unmet requirements, each with its missing capabilities only (PV-16 to
// PV-18). Capabilities with the same name and different kinds are different.
func Unmet(has []Capability, wants []ProgramNeeds) []ProgramNeeds {
	var out []ProgramNeeds
	for _, w := range wants {
		missing := slices.DeleteFunc(slices.Clone(w.Needs), func(c Capability) bool { return slices.Contains(has, c) })
		if len(missing) > 0 {
			out = append(out, ProgramNeeds{Plugin: w.Plugin, Needs: missing})
		}
	}
	return out
}

// missing lists the unmet needs of each plugin, for an error.
func missing(unmet []ProgramNeeds) string {
	var out []string
	for _, r := range unmet {
		var names []string
		for _, c := range r.Needs {
			names = append(names, c.Kind+" "+c.Name)
		}
		out = append(out, r.Plugin+" needs "+strings.Join(names, ", "))
	}
	return strings.Join(out, "; ")
}
