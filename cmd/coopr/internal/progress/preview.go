package progress

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/api"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// zonesOf counts the nodes of each zone after the operation.
func zonesOf(nodes []model.Node) string {
	n := map[string]int{}
	for i := range nodes {
		if nodes[i].Zone != "" && !nodes[i].Leaves {
			n[nodes[i].Zone]++
		}
	}
	var out []string
	for _, zone := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%s %d", zone, n[zone]))
	}
	return strings.Join(out, ", ")
}

// preview shows what an operation would do. creates is true if it creates the cluster.
func preview(out *output.Printer, title string, st api.StartedBody, creates bool) {
	p := st.Preview
	out.Printf("%s\n\n", out.Paint(output.Bold, title))
	defer func() {
		for _, w := range p.Warnings {
			out.Printf("%s %s\n", out.Paint(output.Yellow, "warning:"), w)
		}
	}()
	if len(p.Layout) > 0 {
		t := output.Table{Head: []string{"NODES", "HARDWARE", "IMAGE", "SERVICES"}}
		for _, g := range p.Layout {
			t.Row(strconv.Itoa(g.Count), g.HardwareType, g.ImageType, strings.Join(g.Services, ", "))
		}
		out.Show(t)
		out.Println()
	}
	if zones := zonesOf(p.Nodes); zones != "" {
		out.Printf("Nodes by zone: %s\n\n", zones)
	}
	if len(p.Changes) > 0 {
		t := output.Table{Head: []string{"NODE", "CHANGE", "SERVICES"}}
		for _, c := range p.Changes {
			var parts []string
			for _, s := range c.Add {
				parts = append(parts, "+"+s)
			}
			for _, s := range c.Remove {
				parts = append(parts, "-"+s)
			}
			t.Row(c.Node, c.What, strings.Join(parts, ", "))
		}
		out.Show(t)
		out.Println()
	}
	if p.Tasks == 0 {
		out.Println("There is nothing to do.")
		return
	}
	if len(p.Stages) > 0 {
		t := output.Table{Head: []string{"STAGE", "TASKS", "ACTIONS"}}
		for i, stage := range p.Stages {
			names := make([]string, 0, len(stage))
			total := 0
			for name, n := range stage {
				names = append(names, name)
				total += n
			}
			sort.Strings(names)
			for j, name := range names {
				if n := stage[name]; n > 1 {
					names[j] = fmt.Sprintf("%s ×%d", name, n)
				}
			}
			t.Row(strconv.Itoa(i+1), strconv.Itoa(total), strings.Join(names, ", "))
		}
		out.Show(t)
		out.Println()
	}
	out.Printf("%s in %s", words.Count(p.Tasks, "task"), words.Count(len(p.Stages), "stage"))
	if p.Cost != nil {
		out.Printf(", at a cost of %s per hour", strconv.FormatFloat(*p.Cost, 'f', -1, 64))
	}
	out.Println(".")
	// Limits matter only if the operation chose a layout.
	if creates || len(p.Changes) > 0 {
		for _, s := range p.Tight {
			out.Printf("Limit reached: %s\n", s)
		}
	}
}
