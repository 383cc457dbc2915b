package host

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// The ways in which an action is repeated when the end of an earlier attempt is unknown
// (docs/architecture.md, "A task").
const (
	Idempotent = "idempotent" // it can be repeated without harm
	Observe    = "observe"    // its effect is observed first, to see whether it is done
)

var (
	typeName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	verbsOf  = map[model.Kind][]string{model.KindProviderType: {"create", "confirm", "delete"},
		model.KindAutomatorType: {"bootstrap", "run", "check"}}
	fieldTypes = []string{"text", "password", "select", "checkbox"}
)

// CheckDescriptor returns all faults of the descriptor of a provider type or automator type. If
// there are none, it fills in the missing rules of repetition: create and run are observed (run by
// the automator's Check), everything else is idempotent.
func CheckDescriptor(kind model.Kind, d *model.PluginType) model.Faults {
	var faults model.Faults
	if !typeName.MatchString(d.Name) {
		faults.Add("name", fmt.Sprintf("%q must be 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit", d.Name))
	}
	if d.Plugin == "" {
		faults.Add("plugin", "the plugin's version is missing; it looks like \"1.0.0\"")
	}
	checkFields(&faults, "parameters.admin", d.Parameters.Admin)
	checkFields(&faults, "parameters.user", d.Parameters.User)
	for _, name := range slices.Sorted(maps.Keys(d.ResourceTypes)) {
		r, path := d.ResourceTypes[name], "resourceTypes."+name
		if r.Format != "file" && r.Format != "archive" {
			faults.Add(path+".format", fmt.Sprintf("%q is not one of file, archive", r.Format))
		}
		if r.Permissions != "" {
			if _, err := strconv.ParseUint(r.Permissions, 8, 12); err != nil {
				faults.Add(path+".permissions", fmt.Sprintf("%q is not an octal mode such as \"0755\"", r.Permissions))
			}
		}
	}
	for i, name := range d.Comparators {
		path := fmt.Sprintf("comparators[%d]", i)
		switch {
		case !typeName.MatchString(name):
			faults.Add(path, fmt.Sprintf("%q must be 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit", name))
		case name == "original" || name == "cost":
			faults.Add(path, fmt.Sprintf("%q is built in: choose another name", name))
		case slices.Contains(d.Comparators[:i], name):
			faults.Add(path, fmt.Sprintf("%q is listed twice", name))
		}
	}
	verbs, known := verbsOf[kind]
	if !known {
		faults.Add("kind", fmt.Sprintf("%q is not one of %s, %s", kind, model.KindProviderType, model.KindAutomatorType))
	}
	for _, verb := range slices.Sorted(maps.Keys(d.Actions)) {
		if rule := d.Actions[verb]; rule != Idempotent && rule != Observe {
			faults.Add("actions."+verb, fmt.Sprintf("%q is not one of %s, %s", rule, Idempotent, Observe))
		}
		if known && !slices.Contains(verbs, verb) && !(kind == model.KindAutomatorType && isServiceAction(verb)) {
			faults.Add("actions."+verb, "is not an action of this kind of plugin, which has "+strings.Join(verbs, ", "))
		}
	}
	if len(faults) > 0 {
		return faults
	}
	rules := maps.Clone(d.Actions)
	if rules == nil {
		rules = map[string]string{}
	}
	for _, verb := range verbs {
		if rules[verb] == "" {
			rules[verb] = Idempotent
			if verb == "create" || verb == "run" {
				rules[verb] = Observe
			}
		}
	}
	d.Actions = rules
	return nil
}

func isServiceAction(verb string) bool {
	a, err := model.ParseAction(verb)
	return err == nil && !a.PerNode() && a != model.Barrier
}

func checkFields(faults *model.Faults, path string, set model.PluginFields) {
	for _, name := range slices.Sorted(maps.Keys(set.Fields)) {
		f, at := set.Fields[name], path+".fields."+name
		if !slices.Contains(fieldTypes, f.Type) {
			faults.Add(at+".type", fmt.Sprintf("%q is not one of %s", f.Type, strings.Join(fieldTypes, ", ")))
		}
		if f.Type == "select" && len(f.Options) == 0 {
			faults.Add(at+".options", "a select field needs options")
		}
	}
	for i, required := range set.Required {
		for j, name := range required {
			if _, ok := set.Fields[name]; !ok {
				faults.Add(fmt.Sprintf("%s.required[%d][%d]", path, i, j), fmt.Sprintf("%q is not among the fields", name))
			}
		}
	}
}

// Repeat returns the rule of repetition for an action of a type: "idempotent" or "observe".
func (t *Type) Repeat(action string) string {
	verb := strings.ToLower(action)
	if rule := t.Actions[verb]; rule != "" {
		return rule
	}
	if t.Kind == model.KindAutomatorType {
		return t.Actions["run"]
	}
	return Observe
}

// compareVersions compares dotted numbers; parts that are not numbers are compared as text.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		x, y := "0", "0"
		if i < len(as) {
			x = as[i]
		}
		if i < len(bs) {
			y = bs[i]
		}
		n, nerr := strconv.Atoi(x)
		m, merr := strconv.Atoi(y)
		switch {
		case nerr == nil && merr == nil && n != m:
			return n - m
		case (nerr != nil || merr != nil) && x != y:
			return strings.Compare(x, y)
		}
	}
	return 0
}
