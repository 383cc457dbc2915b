package decode

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/lint"
	"github.com/coopr/coopr/testing/original"
)

// coopr reads the original's definitions: what each file of data/coopr holds,
// and what is wrong with it.
func coopr(t testing.TB) (defs map[string][]model.Definition, errs map[string]error) {
	t.Helper()
	root := original.Dir(t)
	defs, errs = map[string][]model.Definition{}, map[string]error{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "NOTICE" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if defs[file], err = Classify(file, data); err != nil {
			errs[file] = err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return defs, errs
}

// under returns the definitions of all files below a folder.
func under(defs map[string][]model.Definition, folder string) []model.Definition {
	var all []model.Definition
	for _, file := range slices.Sorted(maps.Keys(defs)) {
		if strings.HasPrefix(file, folder+"/") {
			all = append(all, defs[file]...)
		}
	}
	return all
}

func TestEveryFileOfTheOriginalIsRead(t *testing.T) {
	defs, errs := coopr(t)
	counts := map[string]int{}
	for file, ds := range defs {
		folder, _, _ := strings.Cut(file, "/")
		for _, d := range ds {
			counts[folder+" "+string(d.Kind)]++
			if d.Source != file {
				t.Errorf("%s says it is from %q", d.ID(), d.Source)
			}
		}
	}
	want := map[string]int{ // docs/spec/coopr.md 9.2, and the files by eye
		"templates-develop clustertemplates":                   15,
		"templates-develop hardwaretypes":                      5,
		"templates-develop imagetypes":                         11,
		"templates-develop providers":                          8,
		"templates-develop services":                           53,
		"templates-0.9.9 clustertemplates":                     10,
		"templates-0.9.9 hardwaretypes":                        5,
		"templates-0.9.9 imagetypes":                           3,
		"templates-0.9.9 providers":                            8,
		"templates-0.9.9 services":                             38,
		"templates-branch-mongodb-replicaset clustertemplates": 9,
		"templates-branch-mongodb-replicaset hardwaretypes":    5,
		"templates-branch-mongodb-replicaset imagetypes":       2,
		"templates-branch-mongodb-replicaset providers":        7,
		"templates-branch-mongodb-replicaset services":         27,
		"partials-test clustertemplates":                       11,
		"partials-test partialtemplates":                       3,
		"mock-plugin-types providertypes":                      5,
		"mock-plugin-types automatortypes":                     2,
		"provisioner-plugins providertypes":                    6,
		"provisioner-plugins automatortypes":                   3,
		"provisioner-spec task sample":                         1,
	}
	if !reflect.DeepEqual(counts, want) {
		t.Errorf("got  %v\nwant %v", counts, want)
	}
	for file, err := range errs {
		if file != "partials-test/cdap-bad-json-format.json" {
			t.Errorf("%v", err)
		}
	}
	wantLines(t, errs["partials-test/cdap-bad-json-format.json"],
		"partials-test/cdap-bad-json-format.json, line 16: not valid JSON: column 1: a '}' too many: the document had already been closed "+
			"before it")
	task := defs["provisioner-spec/task.json"][0]
	if ok, why := task.Imports(); ok || why == "" {
		t.Errorf("the recorded task: %v, %q", ok, why)
	}
}

// Writing and reading definitions returns equal definitions, and keeps every value of the file.
func TestTheOriginalsDefinitionsRoundTrip(t *testing.T) {
	defs, _ := coopr(t)
	for file, ds := range defs {
		for _, d := range ds {
			if d.Value == nil {
				continue
			}
			first := encoded(t, d)
			again, err := Definition(d.Kind, []byte(first))
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if second := encoded(t, again); second != first {
				t.Errorf("%s\nfirst  %s\nsecond %s", file, first, second)
			}
			restored, err := model.Restore(d.Kind, []byte(first))
			if err != nil || encoded(t, restored) != first {
				t.Errorf("%s restored: %v", file, err)
			}
			if len(ds) > 1 || strings.HasPrefix(file, "provisioner-plugins/") {
				continue // a descriptor: the file is not the definition
			}
			raw, err := os.ReadFile(filepath.Join(original.Dir(t), file))
			if err != nil {
				t.Fatal(err)
			}
			var was, is any
			if json.Unmarshal(raw, &was) != nil || json.Unmarshal([]byte(first), &is) != nil {
				t.Fatal(file)
			}
			for _, lost := range missing("", was, is) {
				t.Errorf("%s lost %s", file, lost)
			}
		}
	}
}

// missing lists the values of was that is lacks, except those without a meaning (empty values,
// false, versions). A number equals its text.
func missing(path string, was, is any) []string {
	var out []string
	text := func(v any) string {
		b, _ := json.Marshal(v)
		return strings.Trim(string(b), `"`)
	}
	switch w := was.(type) {
	case map[string]any:
		i, _ := is.(map[string]any)
		for k, v := range w {
			if path+k == "version" {
				continue
			}
			out = append(out, missing(path+k+".", v, i[k])...)
		}
	case []any:
		i, _ := is.([]any)
		if len(i) != len(w) {
			return []string{path}
		}
		for k, v := range w {
			out = append(out, missing(path, v, i[k])...)
		}
	default:
		if was != "" && was != "false" && was != false && was != nil && text(was) != text(is) && text(is) != "true" {
			out = append(out, path+" "+text(was)+" is "+text(is))
		}
	}
	return out
}

func TestLintOfTheOriginalsSets(t *testing.T) {
	defs, _ := coopr(t)
	types := append(under(defs, "provisioner-plugins"), under(defs, "mock-plugin-types")...)
	for folder, want := range map[string]struct{ faults, warnings []string }{
		"templates-develop": {
			[]string{
				`clustertemplates/coopr-standalone-docker: defaults.services[0]: there is no service "coopr-standalone", so no cluster can be made with the defaults`,
				`clustertemplates/docker-base: defaults.imagetype: centos6 is not in compatibility.imagetypes (centos7, ubuntu14 and ubuntu16), so no cluster can be made with it: change the one or add to the other`,
			},
			[]string{
				`clustertemplates/cdap-singlenode: compatibility.services[2]: there is no service "hadoop-hdfs-secondarynamenode", so it cannot be chosen: did you mean "hadoop-hdfs-namenode"?`,
			},
		},
		"templates-0.9.9": {nil, []string{
			`clustertemplates/cdap-singlenode: compatibility.services[2]: there is no service "hadoop-hdfs-secondarynamenode", so it cannot be chosen: did you mean "hadoop-hdfs-namenode"?`,
		}},
		"templates-branch-mongodb-replicaset": {nil, []string{
			`clustertemplates/cdap-singlenode: compatibility.imagetypes[2]: there is no image type "Fedora19", so it cannot be chosen`,
			`clustertemplates/cdap-singlenode: compatibility.services[2]: there is no service "hadoop-hdfs-secondarynamenode", so it cannot be chosen: did you mean "hadoop-hdfs-namenode"?`,
		}},
	} {
		t.Run(folder, func(t *testing.T) {
			all := under(defs, folder)
			faults, _ := lint.Lint(all, model.NewSet(types...), macro.Check)
			wantLines(t, faults.Err(), want.faults...)
			good, faults, warnings := lint.Linter{Known: model.NewSet(types...), Macros: macro.Check}.Sift(all)
			wantLines(t, faults.Err(), want.faults...)
			if len(good) != len(all)-len(want.faults) {
				t.Errorf("%d of %d are left", len(good), len(all))
			}
			var templates model.Faults
			for _, w := range warnings {
				// Providers hold placeholders, of which there are many warnings.
				if strings.HasPrefix(w.Subject, "clustertemplates/") {
					templates = append(templates, w)
				} else if !strings.HasPrefix(w.Subject, "providers/") {
					t.Errorf("unexpected warning: %v", w)
				}
			}
			wantLines(t, templates.Err(), want.warnings...)
		})
	}
}

// partials returns the world that the original's tests of partial templates had.
func partials(t *testing.T) (map[string][]model.Definition, model.Set) {
	t.Helper()
	defs, _ := coopr(t)
	set := model.NewSet(under(defs, "templates-develop")...)
	for _, name := range []string{"bob", "sensu-monitoring", "ldap-internal"} {
		set.Add(model.Define(model.KindService, &model.Service{Base: model.Base{Name: name}}))
	}
	for _, file := range []string{"cdap-distributed-insecure", "cdap-distributed", "cdap-distributed-secure-hadoop", "sensu-partial",
		"ldap-partial", "partial-immutable-overrides"} {
		for _, d := range defs["partials-test/"+file+".json"] {
			set.Add(d)
		}
	}
	return defs, set
}

func TestResolveGivesTheOriginalsResult(t *testing.T) {
	defs, set := partials(t)
	template := func(file string) model.ClusterTemplate {
		return *defs["partials-test/"+file+".json"][0].Value.(*model.ClusterTemplate)
	}
	got, err := model.ResolveTemplate(template("cdap-distributed"), set)
	if err != nil {
		t.Fatal(err)
	}
	want := template("cdap-distributed-resolved")
	if x, y := encoded(t, model.Define(model.KindClusterTemplate, &got)), encoded(t, model.Define(model.KindClusterTemplate, &want)); x != y {
		t.Errorf("\n got %s\nwant %s", x, y)
	}
	// Three generations, two partials: the grandchild's provider and LDAP
	// address count, the partial of the parent stays immutable.
	got, err = model.ResolveTemplate(template("cdap-distributed-secure-hadoop"), set)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range got.Defaults.Services {
		names = append(names, s.Name)
	}
	if want := "zookeeper-server mysql-server cdap bob sensu-monitoring cdap-security ldap-internal hive-metastore-database " +
		"hive-metastore hive-server2"; strings.Join(names, " ") != want {
		t.Errorf("services: %v", names)
	}
	if got.Defaults.Provider != "rackspace" || got.Defaults.DNSSuffix != "example.com" {
		t.Errorf("defaults: %+v", got.Defaults)
	}
	if ldap := got.Defaults.Config["ldap"]; !reflect.DeepEqual(ldap, map[string]any{"endpoint": "ldap.correct.com"}) {
		t.Errorf("ldap: %v", ldap)
	}
}

// Each file of the folder by itself, in that world: right, or wrong with its
// real reason.
func TestEachPartialsFileByItsReason(t *testing.T) {
	defs, set := partials(t)
	immutable := func(name, who string) string {
		return "clustertemplates/" + name + ": defaults.config.sensu_wrapper: " + who + " may not set this: the immutable partial " +
			"template sensu-internal has set it; take it out of " + who
	}
	want := map[string][]string{
		"cdap-bad-json-format":           nil, // seen above: it is no JSON
		"cdap-distributed-insecure":      nil,
		"cdap-distributed":               nil,
		"cdap-not-persisted":             nil,
		"ldap-partial":                   nil,
		"sensu-partial":                  nil,
		"partial-immutable-overrides":    nil,
		"cdap-distributed-secure-hadoop": nil,
		// The result of resolving, when it is resolved again, sets keys that its own
		// partial template has made immutable.
		"cdap-distributed-resolved":           {immutable("cdap-distributed", "template cdap-distributed")},
		"cdap-not-persisted-overrides-parent": {immutable("cdap-not-persisted", "template cdap-not-persisted")},
		"cdap-not-persisted-overrides-partial": {immutable("cdap-not-persisted-overrides-partial",
			"template cdap-not-persisted-overrides-partial")},
		"template-with-overrides-in-body":    {immutable("template-with-overrides-in-body", "template template-with-overrides-in-body")},
		"template-with-overrides-in-partial": {immutable("template-with-overrides-in-partial", "partial template overrides-partial")},
		"cdap-distributed-without-defaults-services": {"clustertemplates/cdap-distributed: defaults.services: the template names no " +
			"default services: name at least one"},
		"cdap-distributed-without-defaults-provider": {"clustertemplates/cdap-distributed: defaults.provider: the template names no " +
			"default provider: name one"},
	}
	seen := 0
	for file, ds := range defs {
		name, ok := strings.CutPrefix(strings.TrimSuffix(file, ".json"), "partials-test/")
		if !ok {
			continue
		}
		seen++
		lines, ok := want[name]
		if !ok {
			t.Errorf("nothing is expected of %s", file)
		}
		t.Run(name, func(t *testing.T) {
			faults, _ := lint.Lint(ds, set)
			wantLines(t, faults.Err(), lines...)
		})
	}
	if seen != len(want) {
		t.Errorf("%d files, %d expectations", seen, len(want))
	}
}
