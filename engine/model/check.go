package model

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/internal/words"
)

var nameRule = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// CheckName returns the fault of a name, or "" (docs/spec/coopr.md 3: [\w.-]+, shorter than
// 256).
func CheckName(name string) string {
	switch {
	case name == "":
		return "is missing: give a name of letters, digits, '.', '_' and '-'"
	case len(name) > 255:
		return fmt.Sprintf("is %d characters long: at most 255 are allowed", len(name))
	case name == "." || name == "..":
		return fmt.Sprintf("%q means a folder: choose another name", name)
	case !nameRule.MatchString(name):
		var bad []string
		for _, r := range name {
			if q := fmt.Sprintf("%q", string(r)); !nameRule.MatchString(string(r)) && !slices.Contains(bad, q) {
				bad = append(bad, q)
			}
		}
		return fmt.Sprintf("%q contains %s: only letters, digits, '.', '_' and '-' are allowed", words.Shorten(name),
			strings.Join(bad[:min(len(bad), 5)], ", "))
	}
	return ""
}

// serviceActions are the keys that a service's provisioner.actions may have.
var serviceActions = []string{"install", "remove", "initialize", "configure", "start", "stop", "check"}

// pluginVerbs are the verbs that a plugin type may declare as repeatable.
var pluginVerbs = []string{"create", "confirm", "delete", "observe", "bootstrap", "install", "remove", "initialize", "configure",
	"start", "stop", "check"}

// Check returns the faults of a definition by itself, regardless of other definitions. Paths
// are those of the definition; the caller finds the lines.
func (d Definition) Check() Faults {
	var fs Faults
	base := d.base()
	if d.Value == nil {
		return nil
	}
	if why := CheckName(base.Name); why != "" {
		fs.Add("name", why)
	}
	switch v := d.Value.(type) {
	case *Provider:
		if v.ProviderType == "" {
			fs.Add("providertype", "is missing: name the plugin that makes the machines, such as \"local\" or \"ssh\"")
		}
		if v.MaxParallel < 0 {
			fs.Add("maxParallel", "must not be negative: 0 is no limit")
		}
	case *HardwareType:
		checkProviderMap(&fs, v.ProviderMap, "flavor", "hardware")
	case *ImageType:
		checkProviderMap(&fs, v.ProviderMap, "image", "image")
	case *Service:
		checkService(&fs, v)
	case *ClusterTemplate:
		checkTemplate(&fs, v)
	case *PartialTemplate:
		checkTemplate(&fs, &v.ClusterTemplate)
	case *PluginType:
		checkPluginType(&fs, v)
	case *Policies:
		if strings.TrimSpace(v.Text) == "" {
			fs.Add("text", "is missing: give policies in Cedar")
		}
	}
	return fs
}

func checkProviderMap(fs *Faults, entries map[string]map[string]any, key, what string) {
	if len(entries) == 0 {
		fs.Addf("providermap", "is missing: say under each provider's name what it calls this %s, such as {\"my-provider\": {%q: \"…\"}}",
			what, key)
		return
	}
	for _, provider := range slices.Sorted(maps.Keys(entries)) {
		path := "providermap." + provider + "." + key
		switch value := entries[provider][key].(type) {
		case string:
			if value == "" {
				fs.Add(path, "is empty")
			}
		case nil:
			fs.Addf(path, "is missing: without it this %s type cannot be used with provider %s", what, provider)
		default:
			fs.Add(path, "must be a text")
		}
	}
}

func checkService(fs *Faults, s *Service) {
	names := func(path string, list []string) {
		for i, n := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			if n == "" {
				fs.Add(at, "is empty: name a service, or take the entry away")
			} else if n == s.Name && path != "dependencies.provides" {
				fs.Addf(at, "is the service %s itself: take it away", n)
			}
		}
	}
	d := s.Dependencies
	if tooLong(fs, map[string]int{
		"dependencies.provides": len(d.Provides), "dependencies.conflicts": len(d.Conflicts), "links": len(s.Links),
		"dependencies.install.requires": len(d.Install.Requires), "dependencies.install.uses": len(d.Install.Uses),
		"dependencies.runtime.requires": len(d.Runtime.Requires), "dependencies.runtime.uses": len(d.Runtime.Uses),
	}) {
		return
	}
	names("dependencies.provides", d.Provides)
	names("dependencies.conflicts", d.Conflicts)
	names("dependencies.install.requires", d.Install.Requires)
	names("dependencies.install.uses", d.Install.Uses)
	names("dependencies.runtime.requires", d.Runtime.Requires)
	names("dependencies.runtime.uses", d.Runtime.Uses)
	for i, c := range d.Conflicts {
		if slices.Contains(d.Install.Requires, c) || slices.Contains(d.Runtime.Requires, c) {
			fs.Addf(fmt.Sprintf("dependencies.conflicts[%d]", i), "%s is required and excluded at once: keep one", c)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Provisioner.Actions)) {
		a := s.Provisioner.Actions[key]
		path := "provisioner.actions." + key
		if why := checkAction(key); why != "" {
			fs.Add(path, why)
		}
		if a.Type == "" {
			fs.Add(path+".type", "is missing: name the automator that carries the action out, such as \"shell\"")
		}
		if a.Timeout != "" {
			if t, err := time.ParseDuration(a.Timeout); err != nil || t <= 0 {
				fs.Addf(path+".timeout", "must be a duration such as \"10m\" or \"90s\", but is %q", words.Shorten(a.Timeout))
			}
		}
		if a.Repeat && key != Initialize.Key() {
			fs.Add(path+".repeat", "is for initialize only: every other action is repeated with its step")
		}
	}
	if r := s.Resources; r != nil {
		for _, x := range []struct {
			key   string
			value float64
		}{{"vcpu", r.VCPU}, {"ram", r.RAM}, {"disk", r.Disk}} {
			if x.value < 0 {
				fs.Add("resources."+x.key, "must not be negative")
			}
		}
	}
	if s.Spread != "" && s.Spread != "zone" && s.Spread != "host" {
		fs.Addf("spread", "must be \"zone\" or \"host\", but is %q", words.Shorten(s.Spread))
	}
	checkProbes(fs, s)
	checkLinks(fs, s.Links)
}

// checkAction returns why a service cannot have an action with this key, or "".
func checkAction(key string) string {
	_, err := ParseAction(key)
	switch known := words.Typo(key, serviceActions); {
	case slices.Contains(serviceActions, key):
		return ""
	case known != "":
		return fmt.Sprintf("there is no such action: did you mean %q?", known)
	case err == nil || key != strings.ToLower(key):
		return "must be one of " + strings.Join(serviceActions, ", ") + ", or a name in lower case for an action of its own"
	}
	return CheckName(key)
}

func checkLinks(fs *Faults, links []Link) {
	seen := map[Link]int{}
	for i, l := range links {
		path := fmt.Sprintf("links[%d]", i)
		if l.Label == "" {
			fs.Add(path+".label", "is missing: say what the link shows")
		}
		if l.URL == "" {
			fs.Add(path+".url", "is missing")
		}
		if first, twice := seen[l]; twice {
			fs.Addf(path, "is the same link as links[%d]: keep one", first)
		} else {
			seen[l] = i
		}
	}
}

// maxList bounds the length of lists of names. It keeps rules fast that compare every pair,
// also for hostile input.
const maxList = 1000

// tooLong adds a fault for each list that is longer than maxList.
func tooLong(fs *Faults, lists map[string]int) bool {
	before := len(*fs)
	for _, path := range slices.Sorted(maps.Keys(lists)) {
		if lists[path] > maxList {
			fs.Addf(path, "has %d entries: at most %d are allowed", lists[path], maxList)
		}
	}
	return len(*fs) > before
}

func checkPluginType(fs *Faults, t *PluginType) {
	for _, scope := range []struct {
		key    string
		fields PluginFields
	}{{"admin", t.Parameters.Admin}, {"user", t.Parameters.User}} {
		path := "parameters." + scope.key
		names := slices.Sorted(maps.Keys(scope.fields.Fields))
		for _, name := range names {
			f := scope.fields.Fields[name]
			at := path + ".fields." + name
			if f.Label == "" {
				fs.Add(at+".label", "is missing: say what the field is called on a form")
			}
			switch f.Type {
			case "text", "password", "checkbox":
			case "select":
				if len(f.Options) == 0 {
					fs.Add(at+".options", "is missing: a select needs what can be chosen")
				} else if d, ok := f.Default.(string); ok && !slices.Contains(f.Options, d) {
					fs.Addf(at+".default", "%q is not among the options%s", words.Shorten(d), words.DidYouMean(d, f.Options))
				}
			case "":
				fs.Add(at+".type", "is missing: it must be text, password, select or checkbox")
			default:
				fs.Addf(at+".type", "must be text, password, select or checkbox, but is %q", words.Shorten(f.Type))
			}
		}
		for i, set := range scope.fields.Required {
			for j, name := range set {
				if _, ok := scope.fields.Fields[name]; !ok {
					fs.Addf(fmt.Sprintf("%s.required[%d][%d]", path, i, j), "%q is not a field of %s.fields%s", name, path, words.DidYouMean(name, names))
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.ResourceTypes)) {
		r := t.ResourceTypes[name]
		path := "resourceTypes." + name
		if r.Format != "file" && r.Format != "archive" {
			fs.Addf(path+".format", "must be \"file\" or \"archive\", but is %q", words.Shorten(r.Format))
		}
		if r.Permissions != "" && !regexp.MustCompile(`^0?[0-7]{3,4}$`).MatchString(r.Permissions) {
			fs.Addf(path+".permissions", "must be octal digits such as \"0644\", but is %q", words.Shorten(r.Permissions))
		}
	}
	for _, verb := range slices.Sorted(maps.Keys(t.Actions)) {
		if !slices.Contains(pluginVerbs, verb) {
			fs.Add("actions."+verb, "there is no such verb"+words.DidYouMean(verb, pluginVerbs))
		}
		if how := t.Actions[verb]; how != "idempotent" && how != "observe" {
			fs.Addf("actions."+verb, "must be \"idempotent\" or \"observe\", but is %q", words.Shorten(how))
		}
	}
}

var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

// CheckDNSSuffix returns the fault of a suffix of host names, or "". A leading dot is allowed,
// and so is an empty suffix.
func CheckDNSSuffix(suffix string) string {
	suffix = strings.TrimPrefix(suffix, ".")
	if suffix == "" {
		return ""
	}
	if len(suffix) > 189 {
		return "is longer than the 189 characters that leave room for the host's own name"
	}
	for part := range strings.SplitSeq(suffix, ".") {
		if !label.MatchString(part) {
			return fmt.Sprintf("%q is not a name of the DNS: %q must be letters, digits and inner '-', such as \"example.com\"",
				words.Shorten(suffix), words.Shorten(part))
		}
	}
	return ""
}

// The bounds on labels.
const (
	MaxLabels     = 64
	MaxLabelValue = 256 // bytes
)

// CheckLabels returns the faults of labels under a path.
func CheckLabels(path string, labels map[string]string) (fs Faults) {
	if len(labels) > MaxLabels {
		fs.Addf(path, "has %d labels: at most %d are allowed", len(labels), MaxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if why := CheckName(key); why != "" {
			fs.Addf(path, "the key %q %s", words.Shorten(key), why)
		}
		if n := len(labels[key]); n > MaxLabelValue {
			fs.Addf(path+"."+words.Shorten(key), "has %d bytes: at most %d are allowed", n, MaxLabelValue)
		}
	}
	return fs
}
