package state

import (
	"crypto/subtle"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// maxJoinTokens bounds the join tokens of a mesh.
const maxJoinTokens = 1000

// identities changes what the mesh knows of its agents' certificates: its CA, join tokens, and admitted agents.
type identities struct{ *writer }

// found writes the identity of a new mesh.
func (a identities) found(p *pb.FoundMesh) Answer {
	m := table.Mesh(a.txn)
	if m.Identity != nil {
		return Answer{Subject: m.Identity.Mesh}
	}
	first, err := logformat.DecodeAgentIdentity(p.First)
	if err != nil {
		return refuse(problem.Unsupported, "the first agent of the mesh: %v", err)
	}
	m.ID = table.TheMeta
	m.Identity = &table.MeshIdentity{
		Mesh: p.Mesh, CAs: [][]byte{p.Ca}, SealedCA: p.SealedCa, SealedGossip: p.SealedGossip, RootHash: p.RootHash,
	}
	a.put(table.Meta, &m)
	first.Admitted, first.Issued = a.now, a.now
	a.put(table.Identities, first)
	for _, t := range p.Tokens {
		token, err := logformat.DecodeJoinToken(t)
		if err != nil {
			return refuse(problem.Unsupported, "a join token: %v", err)
		}
		token.Created = a.now
		a.put(table.JoinTokens, token)
	}
	a.batch.Agents = true
	a.event(model.Event{Type: "mesh.founded", Subject: p.Mesh})
	return Answer{Subject: p.Mesh}
}

func (a identities) putJoinToken(c *pb.Command, p *pb.PutJoinToken) Answer {
	t, err := logformat.DecodeJoinToken(p.Token)
	if err != nil {
		return refuse(problem.Unsupported, "join token: %v", err)
	}
	if table.Mesh(a.txn).Identity == nil {
		return refuse(problem.Conflict, "the agents of this mesh share a secret: there are no join tokens")
	}
	left := 0
	for _, old := range table.List[roster.JoinToken](a.txn, table.JoinTokens, "id") {
		switch {
		case old.ID == t.ID:
			return refuse(problem.Conflict, "join token %q exists", t.ID)
		case old.Expires <= a.now:
			a.remove(table.JoinTokens, old)
		default:
			left++
		}
	}
	if left >= maxJoinTokens {
		return refuse(problem.Quota, "the mesh has %d join tokens: revoke some first", left)
	}
	t.Created, t.Creator = a.now, c.Actor
	a.put(table.JoinTokens, t)
	a.event(model.Event{Type: "jointoken.changed", Subject: t.ID, Actor: c.Actor})
	return Answer{Subject: t.ID}
}

func (a identities) deleteJoinToken(c *pb.Command, id string) Answer {
	t := table.Get[roster.JoinToken](a.txn, table.JoinTokens, "id", id)
	if t == nil {
		return refuse(problem.NotFound, "there is no join token %q", id)
	}
	a.remove(table.JoinTokens, t)
	a.event(model.Event{Type: "jointoken.deleted", Subject: id, Actor: c.Actor})
	return Answer{Subject: id}
}

// repeatTime is how long an agent may ask for the answer to its admission again, in milliseconds.
const repeatTime = 60 * 60 * 1000

// admit uses a join token for an agent. An agent that asks again with the same key has been admitted: the answer was lost.
func (a identities) admit(p *pb.AdmitAgent) Answer {
	old := table.Get[roster.Identity](a.txn, table.Identities, "id", p.Agent)
	t := table.Get[roster.JoinToken](a.txn, table.JoinTokens, "id", p.Token)
	switch {
	case old != nil && old.Removed == 0 && old.Token == p.Token && old.Newest() == p.Key && a.now < old.Admitted+repeatTime:
		return Answer{Subject: p.Agent}
	case t == nil || subtle.ConstantTimeCompare(t.Hash, p.Hash) != 1:
		return refuse(problem.Unauthorized, "the mesh does not know this join token: it was revoked, or belongs to another mesh")
	case t.Expires <= a.now:
		return refuse(problem.Unauthorized, "join token %s has ended: make another", t.ID)
	case t.Uses <= 0:
		return refuse(problem.Unauthorized, "join token %s has been used up: make another", t.ID)
	case old != nil && old.Removed != 0:
		return refuse(problem.Conflict, "agent %s was removed from the mesh: delete its data_dir, and it joins as a new agent", p.Agent)
	case old != nil:
		return refuse(problem.Conflict, "agent %s is in the mesh with another key: delete its data_dir, and it joins as a new agent", p.Agent)
	}
	next := *t
	next.Uses--
	a.put(table.JoinTokens, &next)
	a.put(table.Identities, &roster.Identity{
		Agent: p.Agent, Role: t.Role, Zone: t.Zone, Names: t.Names, API: t.API, Keys: []string{p.Key}, Issued: a.now, Token: t.ID,
		Admitted: a.now,
	})
	a.batch.Agents = true
	a.event(model.Event{Type: "agent.admitted", Subject: p.Agent, Message: t.Role + " with join token " + t.ID})
	return Answer{Subject: p.Agent}
}

// recordKeys records the keys of renewed certificates. Keys of agents that are not in the mesh are forgotten.
func (a identities) recordKeys(p *pb.RecordKeys) Answer {
	for _, agent := range slices.Sorted(maps.Keys(p.Keys)) { // in one order on all voters, for the audit log
		key := p.Keys[agent]
		old := table.Get[roster.Identity](a.txn, table.Identities, "id", agent)
		if old == nil || old.Removed != 0 || old.Newest() == key || p.Issued[agent] < old.Issued {
			continue
		}
		next := old.WithKey(key, p.Issued[agent])
		a.put(table.Identities, &next)
	}
	return Answer{}
}

// removed marks an agent as removed: its certificates are not renewed, and its connections are refused.
func (a identities) removed(agent string) {
	old := table.Get[roster.Identity](a.txn, table.Identities, "id", agent)
	if old == nil || old.Removed != 0 {
		return
	}
	next := *old
	next.Removed = a.now
	for _, r := range a.view().Rotations() {
		next.Removed = max(next.Removed, r.Begun) // the clock of the leader before may have been ahead
	}
	a.put(table.Identities, &next)
	a.batch.Agents, a.batch.Rotations = true, true // the agent has the key of gossip
}

// of returns what the mesh has on record of an agent, or an error if it may not be in the mesh. The identity is nil in a mesh
// whose agents share a secret.
func (a identities) of(agent string) (*roster.Identity, error) {
	if table.Mesh(a.txn).Identity == nil {
		return nil, nil
	}
	i := table.Get[roster.Identity](a.txn, table.Identities, "id", agent)
	if i == nil || i.Removed != 0 {
		return nil, problem.New(problem.Forbidden, "agent %q is not in the mesh: it was removed, or has never been admitted", agent)
	}
	return i, nil
}

// replace takes over the identity of a mesh and of its agents from another state. The feature level is not below that of the mesh: it is
// about the builds of its members.
func (a identities) replace(own *View) {
	m := table.Mesh(a.txn)
	m.ID, m.Identity, m.FeatureLevel = table.TheMeta, own.MeshIdentity(), max(m.FeatureLevel, own.FeatureLevel())
	a.put(table.Meta, &m)
	for _, i := range table.List[roster.Identity](a.txn, table.Identities, "id") {
		a.remove(table.Identities, i)
	}
	for _, t := range table.List[roster.JoinToken](a.txn, table.JoinTokens, "id") {
		a.remove(table.JoinTokens, t)
	}
	for _, i := range own.Identities() {
		a.put(table.Identities, &i)
	}
	for _, t := range own.JoinTokens() {
		a.put(table.JoinTokens, &t)
	}
}
