package rules

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// pluginVerbs are the verbs that a plugin type may declare as repeatable.
var pluginVerbs = []string{"create", "confirm", "delete", "observe", "bootstrap", "install", "remove", "initialize", "configure",
	"start", "stop", "check"}

// Check returns the faults of a definition by itself, regardless of other definitions. Paths
// are those of the definition; the caller finds the lines.
func Check(d model.Definition) model.Faults {
	var fs model.Faults
	if d.Value == nil {
		return nil
	}
	if why := model.CheckName(d.Base().Name); why != "" {
		fs.Add("name", why)
	}
	switch v := d.Value.(type) {
	case *model.Provider:
		if v.ProviderType == "" {
			fs.Add("providertype", "is missing: name the plugin that makes the machines, such as \"local\" or \"ssh\"")
		}
		if v.MaxParallel < 0 {
			fs.Add("maxParallel", "must not be negative: 0 is no limit")
		}
		v.Identity.Check(&fs, "identity")
	case *model.HardwareType:
		checkProviderMap(&fs, v.ProviderMap, "flavor", "hardware")
	case *model.ImageType:
		checkProviderMap(&fs, v.ProviderMap, "image", "image")
	case *model.Service:
		checkService(&fs, v)
	case *model.ClusterTemplate:
		checkTemplate(&fs, v)
	case *model.PartialTemplate:
		checkTemplate(&fs, &v.ClusterTemplate)
	case *model.PluginType:
		checkPluginType(&fs, v)
	case *model.Policies:
		if strings.TrimSpace(v.Text) == "" {
			fs.Add("text", "is missing: give policies in Cedar")
		}
	}
	return fs
}

func checkProviderMap(fs *model.Faults, entries map[string]map[string]any, key, what string) {
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

// maxList bounds the length of lists of names. It keeps rules fast that compare every pair,
// also for hostile input.
const maxList = 1000

// tooLong adds a fault for each list that is longer than maxList.
func tooLong(fs *model.Faults, lists map[string]int) bool {
	before := len(*fs)
	for _, path := range slices.Sorted(maps.Keys(lists)) {
		if lists[path] > maxList {
			fs.Addf(path, "has %d entries: at most %d are allowed", lists[path], maxList)
		}
	}
	return len(*fs) > before
}

func checkPluginType(fs *model.Faults, t *model.PluginType) {
	for _, scope := range []struct {
		key    string
		fields model.PluginFields
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
