package mesh

import (
	"context"
	"errors"
	"net/http"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByAgent names an agent in the path.
type ByAgent struct {
	Agent string `path:"agent" doc:"The agent's id or name"`
}

// inspectRoutes registers the routes that show the insides of agents.
func inspectRoutes(s *rest.Server) {
	const tag = "operator"
	// byVoter has a voter answer what this agent may not ask another agent.
	byVoter := func(err error, w http.ResponseWriter, r *http.Request, again func() error) error {
		switch {
		case !errors.Is(err, problem.NoLeader):
			return err
		case rest.ByVoter(s, w, r):
			return nil
		}
		return again()
	}
	rest.Stream(
		s,
		rest.Route{
			ID: "getAgentLog", Method: http.MethodGet, Path: "/v1/agents/{agent}/log", Tag: tag, Bare: true, Rule: rest.Rule{Local: true},
			Summary:     "Get the latest lines of an agent's log, or follow it",
			Description: "Any agent answers about itself, and every voter about all agents. The lines may be about any tenant.",
		},
		"text/plain; charset=utf-8",
		"The lines; with follow they go on until the reader disconnects",
		func(ctx context.Context, _ *rest.Call, in *struct {
			ByAgent
			Follow bool   `query:"follow" doc:"Send new lines, instead of the latest ones, until the reader disconnects"`
			Level  string `query:"level" enum:"debug,info,warn,error" default:"info" doc:"The lowest level of new lines. It may be lower than that of the agent's setting log.level."`
		}, w http.ResponseWriter, r *http.Request) error {
			show := func() error { return s.Inspector.Log(r.Context(), in.Agent, in.Level, in.Follow, w) }
			err := byVoter(show(), w, r, show)
			if err != nil && r.Context().Err() != nil {
				return rest.Ended(r.Context()) // or the reader is gone
			}
			return err
		},
	)
	rest.Stream(
		s,
		rest.Route{
			ID: "examineAgent", Method: http.MethodGet, Path: "/v1/agents/{agent}/debug", Tag: tag, Bare: true, Rule: rest.Rule{Local: true},
			Summary: "Get an archive of an agent's inner state, for a debug bundle",
			Description: "Status, members, Raft group, configuration without secrets, metrics, profiles, the findings of doctor and the latest " +
				"lines of the log. Any agent answers about itself, and every voter about all agents.",
		},
		"application/gzip",
		"A tar archive, compressed by gzip, whose last file is manifest.json",
		func(ctx context.Context, _ *rest.Call, in *struct {
			ByAgent
			Seconds int `query:"seconds" minimum:"0" maximum:"60" default:"2" doc:"How long the agent measures"`
		}, w http.ResponseWriter, r *http.Request) error {
			show := func() error { return s.Inspector.Examine(r.Context(), in.Agent, in.Seconds, w) }
			return byVoter(show(), w, r, show)
		},
	)
}
