package operation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// named returns the ids of the nodes that a field of a request names by id, number, host name or the host name's first part.
func named(field string, names []string, at Input) ([]string, error) {
	var fs model.Faults
	var out []string
	for i, name := range names {
		id := ""
		var known []string
		for _, n := range at.Nodes {
			short, _, _ := strings.Cut(n.Hostname, ".")
			known = append(known, short)
			if name == n.ID || name == n.Hostname || name == short || name == strconv.Itoa(n.Number) {
				id = n.ID
			}
		}
		path := fmt.Sprintf("%s[%d]", field, i)
		if id == "" {
			what := fmt.Sprintf("cluster %s has no node %q", at.Cluster.Name, name)
			if hint := near(name, known); hint != "" {
				what += hint + " `coopr node list --cluster " + at.Cluster.Name + "` shows all"
			} else {
				what += ": `coopr node list --cluster " + at.Cluster.Name + "` shows them"
			}
			fs.Add(path, what)
			continue
		}
		if slices.Contains(out, id) {
			fs.Add(path, fmt.Sprintf("node %s is named twice", name))
		}
		out = append(out, id)
	}
	return out, fs.Err()
}

// spared returns the ids of the nodes that a request leaves alone, or nil if it is about all nodes. It fails if nothing is left to do:
// because no node is left, or because no node that is left has one of the services that the request names.
func spared(req Request, at Input) (map[string]bool, error) {
	if !req.Chosen() {
		return nil, nil
	}
	field, names := "nodeNames", req.NodeNames
	if req.ExcludedNodeNames != nil {
		field, names = "excludedNodeNames", req.ExcludedNodeNames
	}
	ids, err := named(field, names, at)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	carried := map[string]bool{}
	for _, n := range at.Nodes {
		if out[n.ID] = slices.Contains(ids, n.ID) == (req.ExcludedNodeNames != nil); !out[n.ID] {
			for _, s := range n.Services {
				carried[s] = true
			}
		}
	}
	var fs model.Faults
	if !slices.ContainsFunc(at.Nodes, func(n *model.Node) bool { return !out[n.ID] }) {
		fs.Add(field, fmt.Sprintf("names all nodes of cluster %s, so nothing is left to %s", at.Cluster.Name, req.Type))
		return nil, fs
	}
	for i, s := range req.Services {
		if !carried[s] {
			fs.Add(fmt.Sprintf("services[%d]", i), fmt.Sprintf("service %s is on none of the chosen nodes, so nothing is left to %s there: "+
				"`coopr node list --cluster %s -o wide` shows the services of all nodes", s, req.Type, at.Cluster.Name))
		}
	}
	return out, fs.Err()
}
