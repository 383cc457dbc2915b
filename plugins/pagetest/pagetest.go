// Package pagetest compares a plugin's page in docs/plugins with the plugin.
package pagetest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/plugins/sdk"
)

var (
	blocks = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	row    = regexp.MustCompile(`(?m)^\|([^|]*)\|`)
	quoted = regexp.MustCompile("`([^`]+)`")
)

// Check compares a page with a plugin. The page must have the sections that all pages have,
// describe exactly the plugin's fields, and have an example that can be imported and that the
// plugin accepts. Further pages, such as one for several plugins, may describe fields as well.
// Pages are given as paths of files.
func Check(t testing.TB, plugin sdk.Describer, page string, further ...string) {
	t.Helper()
	d := plugin.Describe()
	text := read(t, page)
	for _, heading := range []string{"Fields", "Permissions", "Limits"} {
		if section(text, heading) == "" {
			t.Errorf("%s: there is no section %q", page, heading)
		}
	}

	named := map[string]bool{}
	for i, file := range append([]string{page}, further...) {
		fields := section(read(t, file), "Fields")
		for _, m := range quoted.FindAllStringSubmatch(fields, -1) {
			named[m[1]] = true
		}
		if i > 0 {
			continue
		}
		// Each row of the first table begins with a field.
		table, _, _ := strings.Cut(fields[max(strings.Index(fields, "|"), 0):], "\n\n")
		for _, m := range row.FindAllStringSubmatch(table, -1) {
			for _, f := range quoted.FindAllStringSubmatch(m[1], -1) {
				if _, ok := d.Parameters.Admin.Fields[f[1]]; !ok {
					t.Errorf("%s: %s has no field %q", page, d.Name, f[1])
				}
			}
		}
	}
	for _, f := range slices.Sorted(maps.Keys(d.Parameters.Admin.Fields)) {
		if !named[f] {
			t.Errorf("%s: the section \"Fields\" does not describe the field %q", page, f)
		}
	}

	examples := 0
	for _, m := range blocks.FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(m[1], "plugins:") {
			continue // the agents' configuration
		}
		defs, err := decode.Classify(page+".yaml", []byte(m[1]))
		if err != nil {
			t.Errorf("%s: an example cannot be imported: %v", page, err)
		}
		for _, def := range defs {
			for _, fields := range fieldsFor(def, d.Name) {
				examples++
				for name, v := range fields {
					if text, _ := v.(string); strings.TrimSpace(text) == "KEY" {
						fields[name] = privateKey(t)
					}
				}
				for _, fault := range faults(plugin, d, fields) {
					t.Errorf("%s: example %s: %s", page, def.ID(), fault)
				}
			}
		}
	}
	if examples == 0 {
		t.Errorf("%s: there is no example", page)
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.ReplaceAll(b, []byte("\r"), nil))
}

// privateKey returns a key for "KEY" in an example.
func privateKey(t testing.TB) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b}))
}

// section returns the text below a heading, up to the next heading of the same level.
func section(text, heading string) string {
	_, rest, _ := strings.Cut(text, "\n## "+heading+"\n")
	out, _, _ := strings.Cut(rest, "\n## ")
	return out
}

// fieldsFor returns the fields of each use of a plugin in a definition.
func fieldsFor(def model.Definition, plugin string) (out []map[string]any) {
	switch x := def.Value.(type) {
	case *model.Provider:
		if x.ProviderType == plugin {
			out = append(out, x.Provisioner)
		}
	case *model.Service:
		for _, key := range slices.Sorted(maps.Keys(x.Provisioner.Actions)) {
			if a := x.Provisioner.Actions[key]; a.Type == plugin {
				out = append(out, a.Fields)
			}
		}
	}
	return out
}

// faults returns all faults of an example's fields, including those that the plugin finds.
func faults(plugin sdk.Describer, d model.PluginType, fields map[string]any) (out []string) {
	found := sdk.CheckFields(d, sdk.ScopeAdmin, fields)
	if v, ok := plugin.(sdk.Validator); ok {
		found = append(found, v.Validate(context.Background(), sdk.ScopeAdmin, fields)...)
	}
	for _, f := range found {
		out = append(out, f.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if _, ok := d.Parameters.Admin.Fields[name]; !ok {
			out = append(out, fmt.Sprintf("%s has no field %q", d.Name, name))
		}
	}
	return out
}
