package view

import (
	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
)

// AgentView reads the agent registry: agents, sessions and plugin types.
type AgentView struct{ txn *memdb.Txn }

func (v AgentView) name(id string) string {
	if a := table.Get[model.Agent](v.txn, table.Agents, "id", id); a != nil {
		return a.Name
	}
	return id
}

// Agents returns the agent registry, by id.
func (v AgentView) Agents() []model.Agent {
	return values(table.List[model.Agent](v.txn, table.Agents, "id"))
}

// Agent finds an agent by id.
func (v AgentView) Agent(id string) (model.Agent, bool) {
	return table.Found[model.Agent](v.txn, table.Agents, id)
}

// JoinTokens returns the join tokens, by id.
func (v AgentView) JoinTokens() []roster.JoinToken {
	return values(table.List[roster.JoinToken](v.txn, table.JoinTokens, "id"))
}

// Identity finds what the mesh has on record of an agent's certificates.
func (v AgentView) Identity(agent string) (roster.Identity, bool) {
	return table.Found[roster.Identity](v.txn, table.Identities, agent)
}

// Identities returns what the mesh has on record of its agents' certificates, by the agents' ids.
func (v AgentView) Identities() []roster.Identity {
	return values(table.List[roster.Identity](v.txn, table.Identities, "id"))
}

// RemovedAgents returns the ids of agents that were removed from the mesh.
func (v AgentView) RemovedAgents() []string {
	var out []string
	table.Each(v.txn, table.Identities, "id", func(a *roster.Identity) bool {
		if a.Removed != 0 {
			out = append(out, a.Agent)
		}
		return true
	})
	return out
}

// Session returns the agent to which a session belongs.
func (v AgentView) Session(id string) (agent string, ok bool) {
	s := table.Get[table.SessionRow](v.txn, table.Sessions, "id", id)
	if s == nil {
		return "", false
	}
	return s.Agent, true
}

// LastHello returns the hello after which an agent's older ones are refused.
func (v AgentView) LastHello(agent string) (lease.Hello, bool) {
	h := table.Get[table.HelloRow](v.txn, table.Hellos, "id", agent)
	if h == nil {
		return lease.Hello{}, false
	}
	return h.Last, true
}

// Session is a worker's session.
type Session struct {
	Agent string
	Epoch uint64 // the index of the entry that opened it
}

// Sessions returns all sessions, by id.
func (v AgentView) Sessions() map[string]Session {
	out := map[string]Session{}
	table.Each(v.txn, table.Sessions, "id", func(s *table.SessionRow) bool { out[s.ID] = Session{s.Agent, s.Epoch}; return true })
	return out
}

// PluginTypes returns the plugin types that agents offer, by key.
func (v AgentView) PluginTypes() []model.PluginType {
	var out []model.PluginType
	table.Each(v.txn, table.PluginTypes, "id", func(r *table.PluginRow) bool { out = append(out, r.Type); return true })
	return out
}
