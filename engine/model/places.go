package model

import (
	"fmt"
	"strings"
)

// Places returns the zones and hosts in which nodes may be made. The provider's "provisioner"
// lists them under these names, as "a, b" or as a list.
func (p *Provider) Places() (zones, hosts []string) {
	return names(p.Provisioner["zones"]), names(p.Provisioner["hosts"])
}

func names(v any) []string {
	var out []string
	add := func(s string) {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	switch v := v.(type) {
	case string:
		for part := range strings.SplitSeq(v, ",") {
			add(part)
		}
	case []any:
		for _, one := range v {
			add(fmt.Sprint(one))
		}
	}
	return out
}

// Found sets the place of the machine from a provider's results.
func (n *Node) Found(results map[string]any) {
	if s, _ := results["zone"].(string); s != "" {
		n.Zone = s
	}
	if s, _ := results["host"].(string); s != "" {
		n.Host = s
	}
}

// ResultMachine is the key of a node's result that names the agent's machine on
// which the node lives. It is set only for nodes of a local provider.
const ResultMachine = "machine"

// AgentMachine returns the name of the agent's machine on which the node lives,
// or "" if any agent can reach the node.
func (n *Node) AgentMachine() string {
	machine, _ := n.Results[ResultMachine].(string)
	return machine
}
