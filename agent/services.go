package agent

import (
	"math/rand/v2"
	"time"

	"github.com/coopr/coopr/agent/bundle"
	"github.com/coopr/coopr/agent/service"
	"github.com/coopr/coopr/rpc/server/rest"
)

// services returns what the routes of the API call.
func (a *Agent) services() rest.Services {
	s, name := a.supervisor, func() string { return a.settings.Load().Name }
	a.definitions = &service.Definitions{Supervisor: s, Agent: a.cfg.Name, HostExec: a.rules, Logger: a.log}
	if a.host != nil {
		a.definitions.Plugins = a.host
	}
	rootActor := "root"
	if a.cfg.Dev {
		rootActor = "dev"
	}
	router := &service.Router{ID: a.id, Supervisor: s, Locator: a.locator, Transport: a.net.forward}
	view := &service.Mesh{
		ID: a.id, Name: name, Build: a.cfg.Build, Slots: a.cfg.Worker.Slots, Supervisor: s, Gossip: a.mesh, Worker: a.worker,
		Registry: a.agents.Agents, Retention: a.cfg.Retention.Shown(), Logs: a.logs, Departure: a.departure, Router: router, Plugins: a.host,
	}
	own := &bundle.Agent{ID: a.id, Build: a.cfg.Build, Supervisor: s, Mesh: view, Metrics: a.metrics, Settings: a.settings.Load, Logger: a.log}
	return rest.Services{
		Router:  router,
		State:   &service.State{Supervisor: s},
		Tenants: &service.Tenants{Supervisor: s},
		Tokens: &service.Tokens{
			Supervisor: s, Root: a.cfg.Root, RootActor: rootActor, Started: time.Now(), Reporter: a.worker, Peers: a.desk.Peers,
		},
		Users:       &service.Users{Supervisor: s},
		Definitions: a.definitions,
		Clusters:    &service.Clusters{Supervisor: s},
		Operations:  &service.Operations{Supervisor: s, Peers: a.net.peers, Logger: a.log},
		Orphans:     &service.Orphans{Supervisor: s},
		Sites:       &service.Sites{Supervisor: s, HostExec: a.rules},
		Resources: &service.Resources{
			Supervisor: s, HostExec: a.rules, Blobs: a.blobs, MaxSize: int64(a.cfg.Limits.Resource), MaxTotal: int64(a.cfg.Limits.Resources),
		},
		Runs:      &service.Runs{Supervisor: s, HostExec: a.rules, Now: time.Now, Random: rand.Uint32},
		Mesh:      view,
		Inspector: &bundle.Inspector{Self: own, Supervisor: s, Gossip: a.mesh, Peers: a.net.peers},
		Raft:      &service.Raft{ID: a.id, Name: name, Build: a.cfg.Build, Supervisor: s, Gossip: a.mesh},
	}
}
