package main

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// zonesOf counts the nodes of each zone as they will be.
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

// preview shows what an operation will do before it does it; isNew says that it
// makes the cluster.
func (a *app) preview(title string, st api.StartedBody, isNew bool) {
	p := st.Preview
	fmt.Fprintf(a.out, "%s\n\n", a.paint(a.out, bold, title))
	if len(p.Layout) > 0 {
		t := table{head: []string{"NODES", "HARDWARE", "IMAGE", "SERVICES"}}
		for _, g := range p.Layout {
			t.row(strconv.Itoa(g.Count), g.HardwareType, g.ImageType, strings.Join(g.Services, ", "))
		}
		a.show(t)
		fmt.Fprintln(a.out)
	}
	if zones := zonesOf(p.Nodes); zones != "" {
		fmt.Fprintf(a.out, "Nodes by zone: %s\n\n", zones)
	}
	if len(p.Changes) > 0 {
		t := table{head: []string{"NODE", "WHAT", "SERVICES"}}
		for _, c := range p.Changes {
			var parts []string
			for _, s := range c.Add {
				parts = append(parts, "+"+s)
			}
			for _, s := range c.Remove {
				parts = append(parts, "-"+s)
			}
			t.row(c.Node, c.What, strings.Join(parts, ", "))
		}
		a.show(t)
		fmt.Fprintln(a.out)
	}
	if p.Tasks == 0 {
		fmt.Fprintln(a.out, "There is nothing to do.")
		return
	}
	if len(p.Stages) > 0 {
		t := table{head: []string{"STAGE", "TASKS", "WHAT"}}
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
			t.row(strconv.Itoa(i+1), strconv.Itoa(total), strings.Join(names, ", "))
		}
		a.show(t)
		fmt.Fprintln(a.out)
	}
	fmt.Fprintf(a.out, "%s in %s", count(p.Tasks, "task"), count(len(p.Stages), "stage"))
	if p.Cost != nil {
		fmt.Fprintf(a.out, ", at a cost of %s an hour", strconv.FormatFloat(*p.Cost, 'f', -1, 64))
	}
	fmt.Fprintln(a.out, ".")
	// Where no layout is chosen, its limits are no news.
	if isNew || len(p.Changes) > 0 {
		for _, s := range p.Tight {
			fmt.Fprintf(a.out, "At its limit: %s\n", s)
		}
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(a.out, "%s %s\n", a.paint(a.out, yellow, "warning:"), w)
	}
}
