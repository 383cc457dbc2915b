package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Sample is docs/agent.yaml: every value with its documentation, commented out, set to its default.
func Sample() string {
	var b strings.Builder
	b.WriteString(sampleHead)
	defaults := reflect.ValueOf(Default(false))
	walk(reflect.TypeFor[Config](), "", nil, func(path string, f reflect.StructField, index []int, leaf bool) {
		indent := strings.Repeat("  ", strings.Count(path, "."))
		if !strings.Contains(path, ".") {
			b.WriteString("\n")
		}
		for _, line := range wrap(docOf(f), 100-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		name := path[strings.LastIndex(path, ".")+1:]
		switch {
		case !leaf:
			fmt.Fprintf(&b, "%s%s:\n", indent, name)
		case path == "plugins":
			b.WriteString(samplePlugins)
		default:
			fmt.Fprintf(&b, "%s#%s: %s\n", indent, name, sampleValue(defaults.FieldByIndex(index).Interface()))
		}
	})
	return b.String()
}

const sampleHead = `# An agent's configuration. Every value here is the default; take the # away to change one.
#
# The order of precedence: flags (--http-addr), environment (COOPR_HTTP_ADDR; lists with commas), files in their order,
# defaults. Unknown names are refused. SIGHUP reads the files again: what is marked (reload) changes at once, the rest
# after a restart, and the log says which.
#
# A first mesh of three:  bootstrap_expect: 3 on each, join: the three of them, and one join token for all
# (coopr-agent token new). Later agents need join and the token.
`

const samplePlugins = `#plugins:
#  - name: provider-openstack
#    # Its executable, absolute or in plugin_dir. Default: coopr-<name>.
#    path: coopr-provider-openstack
#    # sha256:<hex> of the executable; another one is not started.
#    checksum: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
#    # Passed to the plugin as they are, as JSON in COOPR_PLUGIN_SETTINGS. Never shown: they may hold credentials.
#    settings:
#      region: north
`

func sampleValue(v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return `""`
		}
		return v
	case []string:
		return "[]"
	case Secret:
		return `""`
	}
	return fmt.Sprint(v)
}

func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

func docOf(f reflect.StructField) string {
	if f.Tag.Get("reload") == "yes" {
		return f.Tag.Get("doc") + " (reload)"
	}
	return f.Tag.Get("doc")
}
