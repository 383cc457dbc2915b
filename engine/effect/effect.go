// Package effect describes what one write did. The answer to a write is made from its effect, because
// the state may have changed again before the answer is sent.
package effect

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
)

// Rows are the objects that a write made or changed, as they were right after it. Most are nil.
// Readers do not change them.
type Rows struct {
	// Definitions are the latest versions of the definitions that were written.
	Definitions []model.StoredDefinition
	Tenant      *model.Tenant
	Token       *model.Token
	User        *model.User
	Grant       *model.Grant
	JoinToken   *roster.JoinToken
	Profile     *profile.Profile
	Program     *profile.Program
	Schedule    *profile.Schedule
	Run         *profile.Run
	// Operation is the operation that began or that an order was about, or the last one of Cluster.
	Operation *model.Operation
	// Progress counts the tasks of Operation after an order.
	Progress model.Progress
	// Begun is the cluster of an operation that began.
	Begun *model.Cluster
	// Cluster is the cluster that an order was about, and Nodes is the number of its nodes.
	Cluster *model.Cluster
	Nodes   int
	// Resources are the versions that were written. After a sync they are those in force.
	Resources []model.ResourceVersion
	// Generation is the number of the generation of a site that began.
	Generation uint64
}

// Kept returns the part of the effect that is remembered with the request, so that a repeated
// request has the same answer. It lacks what the repeated request has itself, and what is large.
func (r *Rows) Kept() *Rows {
	out := &Rows{
		Tenant: r.Tenant, Token: r.Token, User: r.User, Grant: r.Grant, JoinToken: r.JoinToken, Profile: r.Profile, Schedule: r.Schedule,
		Operation: r.Operation, Progress: r.Progress, Cluster: r.Cluster, Nodes: r.Nodes, Resources: r.Resources, Generation: r.Generation,
	}
	for _, d := range r.Definitions {
		d.Body = nil
		out.Definitions = append(out.Definitions, d)
	}
	if r.Program != nil {
		out.Program = &profile.Program{Version: r.Program.Version}
	}
	if r.Run != nil {
		run := *r.Run
		run.Program = profile.Program{Name: run.Program.Name, Version: run.Program.Version}
		out.Run = &run
	}
	return out
}
