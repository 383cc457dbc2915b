package server_test

import (
	"log/slog"
	"testing"

	"github.com/coopr/coopr/agent/bundle"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/logtap"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// noting is a mesh that hands over what is noted for the audit log.
type noting struct {
	rest.Mesh
	notes chan model.Incident
}

func (n noting) Note(i model.Incident) { n.notes <- i }

// A reader of an agent's log or inner state sees names of all tenants, and is in the audit log.
func TestInspectionsAreNoted(t *testing.T) {
	notes := make(chan model.Incident, 10)
	w := serve(t, newAgent(t), func(s *rest.Services) {
		s.Mesh = noting{s.Mesh, notes}
		s.Inspector.(*bundle.Inspector).Self.Logger = slog.New(logtap.New().Handler(slog.DiscardHandler))
	})
	for _, x := range []struct{ path, action string }{
		{"/v1/agents/a/log", "getAgentLog"}, {"/v1/agents/a/debug?seconds=0", "examineAgent"},
	} {
		w.must(200, apitest.Super, "GET", x.path, "")
		if i := <-notes; i.Type != "agent.inspected" || i.Action != x.action || i.Object == "" || i.Actor == "" {
			t.Errorf("%s: %+v", x.path, i)
		}
		w.must(403, apitest.Admin, "GET", x.path, "")
		if i := <-notes; i.Type != model.IncidentRefused || i.Action != x.action {
			t.Errorf("%s: %+v", x.path, i)
		}
	}
}
