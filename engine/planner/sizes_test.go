package planner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/original"
)

// sizes are the sizes of the original's CREATE plans for the shipped templates:
// tasks, levels and stages (docs/spec/coopr.md 5.5 and 5.12).
var sizes = []struct {
	template                 string
	nodes, tasks, levels, of int
}{
	{"ambari/defaults", 1, 9, 7, 9},
	{"ambari/defaults", 3, 23, 7, 9},
	{"ambari/defaults", 5, 37, 7, 9},
	{"ambari/all-compatible", 1, 11, 7, 11},
	{"ambari/all-compatible", 3, 29, 7, 11},
	{"ambari/all-compatible", 5, 47, 7, 11},
	{"base/defaults", 1, 5, 5, 5},
	{"base/defaults", 3, 15, 5, 5},
	{"base/defaults", 5, 25, 5, 5},
	{"cdap-distributed/defaults", 3, 64, 16, 38},
	{"cdap-distributed/defaults", 5, 92, 16, 38},
	{"cdap-distributed/defaults", 10, 162, 16, 38},
	{"cdap-distributed/defaults", 50, 722, 16, 38},
	{"cdap-distributed/defaults", 300, 4222, 16, 38},
	{"cdap-distributed/all-compatible", 3, 78, 17, 45},
	{"cdap-distributed/all-compatible", 5, 112, 17, 45},
	{"cdap-sandbox-docker/defaults", 1, 5, 5, 5},
	{"cdap-singlenode/defaults", 1, 45, 16, 45},
	{"cdap-singlenode/all-compatible", 1, 52, 17, 52},
	{"dcos-single-master/defaults", 1, 5, 4, 5},
	{"dcos-single-master/defaults", 3, 13, 4, 5},
	{"dcos-single-master/defaults", 5, 21, 4, 5},
	{"dcos-single-master/all-compatible", 1, 5, 4, 5},
	{"dcos-single-master/all-compatible", 3, 14, 4, 5},
	{"dcos-single-master/all-compatible", 5, 22, 4, 5},
	{"docker-all/defaults", 1, 7, 6, 7},
	{"docker-all/all-compatible", 1, 23, 7, 23},
	{"hadoop-distributed/defaults", 3, 48, 12, 23},
	{"hadoop-distributed/defaults", 5, 76, 12, 23},
	{"hadoop-distributed/defaults", 10, 146, 12, 23},
	{"hadoop-distributed/defaults", 100, 1406, 12, 23},
	{"hadoop-distributed/defaults", 1000, 14006, 12, 23},
	{"hadoop-distributed/all-compatible", 3, 67, 15, 40},
	{"hadoop-distributed/all-compatible", 5, 95, 15, 40},
	{"hadoop-singlenode/defaults", 1, 37, 14, 37},
	{"hadoop-singlenode/all-compatible", 1, 48, 15, 48},
	{"lamp/defaults", 1, 15, 7, 15},
	{"lamp/defaults", 3, 39, 7, 15},
	{"lamp/defaults", 5, 63, 7, 15},
	{"lamp/all-compatible", 1, 21, 7, 21},
	{"lamp/all-compatible", 3, 51, 7, 21},
	{"lamp/all-compatible", 5, 81, 7, 21},
	{"mean-singlenode/defaults", 1, 11, 7, 11},
	{"mongodb-singlenode/defaults", 1, 8, 7, 8},
	{"spark-singlenode/defaults", 1, 15, 8, 15},
}

func TestSizesOfShippedTemplates(t *testing.T) {
	var file struct {
		ServiceSets map[string]map[string]model.Service
		Cases       []struct {
			Name, ServiceSet string
			Nodes            []struct{ Services []string }
		}
	}
	data, err := os.ReadFile("../../testing/conformance/testdata/planner-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	// cluster returns the layout of the largest case with at most n nodes. If that case has fewer,
	// copies of its last node follow.
	cluster := func(template string, n int) (map[string]model.Service, []Node) {
		var services map[string]model.Service
		var layout [][]string
		for _, c := range file.Cases {
			if strings.HasPrefix(c.Name, "templates-develop/"+template+"/n") && len(c.Nodes) <= n && len(c.Nodes) > len(layout) {
				services, layout = file.ServiceSets[c.ServiceSet], nil
				for _, node := range c.Nodes {
					layout = append(layout, node.Services)
				}
			}
		}
		if len(layout) == 0 {
			return nil, nil
		}
		for len(layout) < n {
			layout = append(layout, layout[len(layout)-1])
		}
		var out []Node
		for i, s := range layout {
			out = append(out, Node{ID: fmt.Sprintf("n%d", 1000+i), Number: 1000 + i, Services: s})
		}
		return services, out
	}
	for _, row := range sizes {
		services, nodes := cluster(row.template, row.nodes)
		if nodes == nil {
			t.Logf("%s on %d nodes: no case has its layout", row.template, row.nodes)
			continue
		}
		g := mustPlan(t, Input{Operation: model.OpCreate, Nodes: nodes, Services: services, Compat: true})
		stages := Stages(g)
		split := SplitStages(g, stages)
		if g.Tasks() != row.tasks || len(stages) != row.levels || len(split) != row.of {
			t.Errorf("%s on %d nodes: %d tasks, %d levels, %d stages; want %d, %d, %d",
				row.template, row.nodes, g.Tasks(), len(stages), len(split), row.tasks, row.levels, row.of)
		}
		ours := mustPlan(t, Input{Operation: model.OpCreate, Nodes: nodes, Services: services})
		if ours.Tasks() != row.tasks {
			t.Errorf("%s on %d nodes: %d tasks in the default mode, want %d", row.template, row.nodes, ours.Tasks(), row.tasks)
		}
	}
}

// TestShippedTemplates checks that every shipped template can be planned for every operation, and
// that the order of each plan is what the rules require.
func TestShippedTemplates(t *testing.T) {
	dir := filepath.Join(original.Dir(t), "templates-develop")
	services := map[string]model.Service{}
	readAll(t, filepath.Join(dir, "services"), func(data []byte) error {
		var s model.Service
		err := json.Unmarshal(data, &s)
		services[s.Name] = s
		return err
	})
	if err := CheckCycles(services); err != nil {
		t.Errorf("shipped services: %v", err)
	}
	seen := 0
	readAll(t, filepath.Join(dir, "clustertemplates"), func(data []byte) error {
		var template model.ClusterTemplate
		if err := json.Unmarshal(data, &template); err != nil {
			return err
		}
		var names []string
		for _, s := range template.Defaults.Services {
			if _, ok := services[s.Name]; !ok {
				t.Logf("template %s: service %s is not shipped", template.Name, s.Name)
				continue
			}
			names = append(names, s.Name)
		}
		if len(names) == 0 {
			return nil
		}
		seen++
		half := names[:(len(names)+1)/2]
		for _, in := range operations {
			in.Services = services
			in.Nodes = clusterOf(3, half, names)
			for i := range in.Nodes {
				in.Nodes[i].Created = in.Operation != model.OpCreate && in.Operation != model.OpGrow
			}
			g, err := Plan(in)
			if err != nil {
				t.Errorf("template %s, %s: %v", template.Name, in.Operation, err)
				continue
			}
			got, want := reach(g), required(in, g)
			for u := range want {
				for v := range want {
					if got[u][v] != want[u][v] {
						t.Errorf("template %s, %s: %s before %s is %v, rules say %v", template.Name, in.Operation, u, v, got[u][v], want[u][v])
					}
				}
			}
			if in.Operation == model.OpCreate && g.Tasks() < 9 {
				t.Errorf("template %s: a create of %d tasks", template.Name, g.Tasks())
			}
		}
		return nil
	})
	if seen == 0 {
		t.Error("no template was read")
	}
}

func readAll(t *testing.T, dir string, each func([]byte) error) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s: %v", dir, err)
	}
	slices.Sort(files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = each(data)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
