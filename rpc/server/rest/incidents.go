package rest

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/bounds"
	"github.com/coopr/coopr/rpc/api"
)

// witnessed are the routes whose success is in the audit log although they change nothing, or more than the log shows, by the type of
// the record.
var witnessed = map[string]string{
	"login":              model.IncidentLogin,
	"finishLogin":        model.IncidentLogin,
	"exportAudit":        "audit.exported",
	"exportDefinitions":  "definitions.exported",
	"saveSnapshot":       "snapshot.saved",
	"restoreSnapshot":    "snapshot.restored",
	"getResourceContent": "resource.read",   // which may be secret
	"getAgentLog":        "agent.inspected", // with names and addresses of all tenants
	"examineAgent":       "agent.inspected",
}

// LoggedIn notes who has logged in by a request.
func LoggedIn(ctx context.Context, t model.Token) {
	n := noteOf(ctx)
	n.tenant, n.actor = t.Tenant, t.Actor
}

// incident notes a request for the audit log if it was refused, or its route is witnessed.
func (s *Server) incident(r *http.Request, status int, n *note) {
	if n.forwarded {
		return // the leader notes it
	}
	i := model.Incident{Tenant: n.tenant, Actor: n.actor, Action: n.route, Source: addressOf(r), Agent: s.entry(r),
		Request: n.request}
	login := witnessed[n.route] == model.IncidentLogin || n.route == "beginLogin"
	switch {
	case status == http.StatusForbidden && !login:
		i.Type = model.IncidentRefused
	case (status == http.StatusUnauthorized || status == http.StatusForbidden) && login:
		i.Type = model.IncidentLoginRefused
	case status == http.StatusUnauthorized:
		i.Type = model.IncidentTokenRefused
	case status >= 200 && status < 300 && n.actor != "":
		i.Type, i.Object = witnessed[n.route], r.URL.Path
	}
	if i.Type == "" || s.Mesh == nil {
		return
	}
	if i.Actor == "" {
		i.Source = bounds.Source(i.Source).String()
	}
	s.Mesh.Note(i)
}

// IncidentOf returns an incident about a request that its route commits by itself.
func IncidentOf(s *Server, r *http.Request, kind, object string) model.Incident {
	n := noteOf(r.Context())
	return model.Incident{Type: kind, Tenant: n.tenant, Actor: n.actor, Action: n.route, Object: object, Source: addressOf(r),
		Agent: s.entry(r), Request: n.request}
}

// addressOf returns the address of the client that made a request, or "" if it is not known.
func addressOf(r *http.Request) string {
	if a := clientOf(r); a.IsValid() {
		return a.String()
	}
	return ""
}

// entry returns the name of the agent that a client talked to.
func (s *Server) entry(r *http.Request) string {
	if ofAgent(r.Context()) {
		return r.Header.Get(api.HeaderForwarded)
	}
	return s.name
}
