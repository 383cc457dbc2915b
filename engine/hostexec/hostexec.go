// Package hostexec decides what may run on an agent's own machine for a tenant (docs/security.md,
// "Control hosts"). Two conditions apply. The caller must have the right named "host:exec", which is
// checked with the request. The agent must have the setting host_exec, which is checked before the
// work begins.
package hostexec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// May reports whether a caller has the right named "host:exec". No other function decides this.
func May(who model.Caller) bool { return who.Role == model.RoleSuperadmin || who.Follows }

// Acting returns the caller for what the mesh does later in a user's name, such as a queued
// operation: with the highest role that the user's tokens have now, or with none. tokens are all
// tokens of the mesh. The tokens of root and dev are not among them.
func Acting(tokens []model.Token, tenant, actor string) model.Caller {
	who := model.Caller{Tenant: tenant, Actor: actor}
	if actor == "root" || actor == "dev" {
		who.Role, who.Root = model.RoleSuperadmin, true // no token can be issued in these names
		return who
	}
	order := []model.Role{"", model.RoleRead, model.RoleUser, model.RoleAdmin, model.RoleSuperadmin}
	for _, t := range tokens {
		if t.Actor != actor || t.Tenant != tenant && t.Role != model.RoleSuperadmin {
			continue
		}
		if slices.Index(order, t.Role) > slices.Index(order, who.Role) {
			who.Role = t.Role
		}
	}
	return who
}

// Use is something that runs on an agent's own machine.
type Use struct {
	// What is a noun phrase for messages: "a node of provider type local".
	What string
	// Interpreter is the automator that interprets the tenant's documents, such as "ansible";
	// "" if the use is of another kind.
	Interpreter string
	// At is the host that the use is about, an address or a name in lower case. The use counts only if that is the machine of an agent
	// (Rules.Own). "" counts always.
	At string
}

// Rules are the settings of the agents. The zero value is the strictest.
type Rules struct {
	// HostExec is the setting host_exec of this agent.
	HostExec bool
	// Interpreters are the automators that tenants may use without host:exec, as
	// "TENANT/AUTOMATOR"; the tenant "*" means all of them.
	Interpreters []string
	// Unconfined is set if this agent's machine cannot confine what runs on it, and may not run it
	// unconfined.
	Unconfined bool
	// Own returns the addresses and names of machines of agents, besides loopback. It may be nil.
	Own func() []string
}

// Among returns the rules with the addresses of a mesh's agents among the own ones.
func (r Rules) Among(agents func() []model.Agent) Rules {
	own := r.Own
	r.Own = func() (all []string) {
		if own != nil {
			all = own()
		}
		for _, a := range agents() {
			for _, address := range []string{a.PeerAddr, a.APIAddr, a.GossipAddr} {
				if address != "" {
					all = append(all, hostOf(address))
				}
			}
		}
		return all
	}
	return r
}

// Here returns the uses that count: all but those at hosts that are not an agent's machine.
func (r Rules) Here(uses []Use) (here []Use) {
	var own map[string]bool // nil: not asked for yet
	for _, u := range uses {
		if u.At != "" && own == nil {
			own = map[string]bool{}
			if r.Own != nil {
				for _, host := range r.Own() {
					own[host] = true
				}
			}
		}
		if u.At == "" || own[u.At] {
			here = append(here, u)
		}
	}
	return here
}

// CheckInterpreter returns what is wrong with an entry of Interpreters, or "".
func CheckInterpreter(entry string) string {
	tenant, name, ok := strings.Cut(entry, "/")
	if !ok || tenant == "" || !interpreters[name] {
		return fmt.Sprintf("%q: write it as TENANT/AUTOMATOR, such as acme/ansible; * means all tenants", entry)
	}
	return ""
}

func (r Rules) interprets(tenant, name string) bool {
	return slices.Contains(r.Interpreters, tenant+"/"+name) || slices.Contains(r.Interpreters, "*/"+name)
}

// Ask returns problem.Forbidden if the caller may not request one of the uses.
func (r Rules) Ask(who model.Caller, uses []Use) error {
	if May(who) {
		return nil
	}
	for _, u := range r.Here(uses) {
		if u.Interpreter == "" {
			return problem.New(problem.Forbidden, "%s runs on a control host: %s lacks the right host:exec, which only superadmins have",
				u.What, who.Actor)
		}
		if !r.interprets(who.Tenant, u.Interpreter) {
			return problem.New(problem.Forbidden, "%s runs on a control host: %s lacks the right host:exec, which only superadmins have, and "+
				"the agents' setting interpreters does not have %s/%s", u.What, who.Actor, who.Tenant, u.Interpreter)
		}
	}
	return nil
}

// Run returns problem.Forbidden if this agent's settings do not allow it to carry out one of the uses for a
// tenant.
func (r Rules) Run(tenant string, uses []Use) error {
	uses = r.Here(uses)
	if r.Unconfined && len(uses) > 0 {
		return problem.New(problem.Forbidden, "%s runs on the agent's machine, which cannot confine it, because its kernel has no Landlock: "+
			"use a newer kernel, or set isolation.unconfined on this agent", uses[0].What)
	}
	if r.HostExec {
		return nil
	}
	for _, u := range uses {
		if u.Interpreter == "" {
			return problem.New(problem.Forbidden, "%s runs on the agent's machine: the setting host_exec of this agent is off", u.What)
		}
		if !r.interprets(tenant, u.Interpreter) {
			return problem.New(problem.Forbidden, "%s runs on the agent's machine: the setting host_exec of this agent is off, and its setting "+
				"interpreters does not have %s/%s", u.What, tenant, u.Interpreter)
		}
	}
	return nil
}
