package hostexec

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// interpreters are the automators that interpret a tenant's documents on the agent's machine. The
// other automators work on the node.
var interpreters = map[string]bool{"ansible": true}

// Transport is the result "transport" of nodes that are folders of an agent's machine.
const Transport = "local"

// Provider returns the uses of a provider type with these values of its fields.
func Provider(providerType string, fields map[string]any) []Use {
	switch providerType {
	case "local":
		return []Use{{What: "a node of provider type local"}}
	case "docker":
		engine := text(fields["engine"])
		scheme, address, _ := strings.Cut(engine, "://")
		if engine == "" || scheme == "unix" {
			return []Use{{What: "a Docker engine behind a unix socket"}}
		}
		return []Use{at("the Docker engine "+engine, address)}
	case "libvirt":
		return libvirt(fields)
	case "hosts":
		return machines(fields)
	}
	return nil
}

// at returns the use of a host: of this machine if it is a loopback address, or else of an agent's machine if it is one.
func at(what, address string) Use {
	if here(address) {
		return Use{What: what}
	}
	return Use{What: what, At: hostOf(address)}
}

func libvirt(fields map[string]any) (uses []Use) {
	daemons := append(list(fields["daemons"]), list(fields["host"])...)
	if len(daemons) == 0 {
		return []Use{{What: "a libvirt daemon behind a unix socket"}}
	}
	for _, d := range daemons {
		if _, address, ok := strings.Cut(d, "="); ok {
			d = address
		}
		u := Use{What: "the libvirt daemon " + d}
		if !strings.HasPrefix(d, "/") {
			u = at(u.What, d)
		}
		uses = append(uses, u)
	}
	return uses
}

// machines returns the uses of an inventory's entries and jump hosts. Of names, only that of the machine itself is recognized.
func machines(fields map[string]any) (uses []Use) {
	var entries []any
	switch v := fields["inventory"].(type) {
	case []any:
		entries = v
	case string:
		for line := range strings.Lines(v) {
			entries = append(entries, line)
		}
	}
	if jumps, ok := fields["ssh_jump"].([]any); ok {
		entries = append(entries, jumps...)
	}
	for _, e := range entries {
		address := ""
		switch e := e.(type) {
		case string:
			words := strings.Fields(e)
			if len(words) > 0 && !strings.Contains(words[0], "=") {
				address = words[0]
			}
			for _, w := range words {
				if a, ok := strings.CutPrefix(w, "address="); ok {
					address = a
				}
			}
		case map[string]any:
			address = text(e["address"])
		}
		if address != "" {
			uses = append(uses, at("the machine "+address+", which is an agent's own,", address))
		}
	}
	return uses
}

// reached returns the uses of the hosts through which a node is reached by SSH, from the results of its provider. Without a host key
// nothing connects to a node.
func reached(in *model.TaskConfig) (uses []Use) {
	if in.Results["ssh_host_keys"] == nil {
		return nil
	}
	hosts := []string{text(in.Results["ssh_address"]), in.IPAddresses["access_v4"], in.IPAddresses["bind_v4"]}
	if jumps, ok := in.Results["ssh_jump"].([]any); ok {
		for _, j := range jumps {
			if m, ok := j.(map[string]any); ok {
				hosts = append(hosts, text(m["address"]))
			}
		}
	}
	for _, h := range hosts {
		if h != "" {
			uses = append(uses, at("a node at "+h+", which is the agent's own machine,", h))
		}
	}
	return uses
}

// hostOf returns the host of an address with or without a port: an address of IP in its usual form, or a name in lower case.
func hostOf(address string) string {
	address = strings.ToLower(strings.TrimSpace(address))
	if ap, err := netip.ParseAddrPort(address); err == nil {
		return ap.Addr().Unmap().WithZone("").String()
	}
	if a, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return a.Unmap().WithZone("").String()
	}
	host, _, _ := strings.Cut(address, ":")
	return strings.TrimSuffix(host, ".")
}

// here reports whether an address, with or without a port, is a loopback or an unspecified one.
func here(address string) bool {
	address = strings.ToLower(strings.TrimSpace(address))
	if ap, err := netip.ParseAddrPort(address); err == nil {
		return local(ap.Addr())
	}
	if a, err := netip.ParseAddr(strings.Trim(address, "[]")); err == nil {
		return local(a)
	}
	host := hostOf(address)
	// Resolvers also read numbers with fewer than four parts, as in 127.1 and 0x7f.1.
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "localhost.localdomain" ||
		host == "ip6-localhost" || host == "ip6-loopback" || strings.Trim(host, "0123456789abcdefx.") == "" && host[0] >= '0' && host[0] <= '9'
}

func local(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsUnspecified()
}

func text(v any) string {
	if v == nil {
		return ""
	}
	return strings.TrimSpace(fmt.Sprint(v))
}

// list returns the parts of a list, or of a text with commas.
func list(v any) (out []string) {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			out = append(out, text(x))
		}
	case string:
		for s := range strings.SplitSeq(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}

// Automator returns the uses of an automator type.
func Automator(name string) []Use {
	if !interpreters[name] {
		return nil
	}
	return []Use{{What: "automator " + name, Interpreter: name}}
}

// Service returns the uses of a service's actions.
func Service(s *model.Service) (out []Use) {
	for _, key := range slices.Sorted(maps.Keys(s.Provisioner.Actions)) {
		for _, u := range Automator(s.Provisioner.Actions[key].Type) {
			u.What = "action " + key + " of service " + s.Name + " with " + u.What
			out = append(out, u)
		}
	}
	return out
}

// Steps returns the uses of the steps of plans that are done on an agent.
func Steps(plans []model.Plan) (out []Use) {
	for _, p := range plans {
		for _, ph := range p.Phases {
			if slices.ContainsFunc(ph.Steps, func(s model.PlanSteps) bool { return s.OnAgent() }) {
				out = append(out, Use{What: "a step on an agent in phase " + ph.Name + " of plan " + p.Name})
			}
		}
	}
	return out
}

// Written returns problem.Forbidden if whoever wrote a service had not the right host:exec, so that none of its actions may be done on an
// agent, whoever starts them.
func Written(s *model.Service) error {
	if s.HostExec {
		return nil
	}
	return problem.New(problem.Forbidden, "service %s, version %d: its actions may not be done on an agent, because %s, who wrote it, lacked "+
		"the right host:exec; have somebody with that right write it, and upgrade the cluster", s.Name, s.Version, s.Author)
}

// Definition returns the uses of a definition. Only providers, services and templates have any.
func Definition(d model.Definition) []Use {
	switch v := d.Value.(type) {
	case *model.Provider:
		return Provider(v.ProviderType, v.Provisioner)
	case *model.Service:
		return Service(v)
	case *model.ClusterTemplate:
		return Steps(v.Plans)
	case *model.PartialTemplate:
		return Steps(v.Plans)
	}
	return nil
}

// Cluster returns the uses of a cluster: those of its provider and of the services on it.
func Cluster(cl *model.Cluster) []Use {
	out := Provider(cl.Provider.ProviderType, cl.Provider.Provisioner)
	for _, name := range slices.Sorted(maps.Keys(cl.Definitions)) {
		s := cl.Definitions[name]
		out = append(out, Service(&s)...)
	}
	return out
}

// Code returns the uses of a cluster's service: those of its definition, and those of the cluster's nodes, on which its
// definition runs.
func Code(cl *model.Cluster, service string) []Use {
	s := cl.Definitions[service]
	return append(Provider(cl.Provider.ProviderType, cl.Provider.Provisioner), Service(&s)...)
}

// Host returns the uses of a change object's host and type.
func Host(host, automator string) []Use {
	if strings.HasPrefix(host, "agent:") {
		return []Use{{What: "host " + host + " of a change object"}}
	}
	return Automator(automator)
}

// Task returns the uses of a task. plugin is the provider type or the automator that carries it out.
func Task(plugin string, automator bool, in *model.TaskConfig) []Use {
	if !automator {
		return Provider(plugin, in.Provider.Provisioner)
	}
	if in.Results["transport"] == Transport {
		return []Use{{What: "a node of provider type local"}}
	}
	return append(Automator(plugin), reached(in)...)
}
