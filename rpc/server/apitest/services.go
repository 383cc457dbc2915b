package apitest

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coopr/coopr/agent/bundle"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/service"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Services returns the agent as the API's services.
func (a *Agent) Services() rest.Services {
	s, log, name := supervisor{a}, slog.New(slog.DiscardHandler), func() string { return a.name }
	router := &service.Router{ID: id(a.name), Supervisor: s, Locator: locator{a}, Transport: locator{a}}
	view := &service.Mesh{
		ID: id(a.name), Name: name, Build: "test", Slots: slots, Supervisor: s, Gossip: gossip{a}, Worker: idle{a},
		Registry: func() []model.Agent { return a.member.Machine.View().Agents() }, Retention: retention, Logs: idle{a},
		Departure: service.NewDeparture(s, func() error { return nil }), Router: router,
	}
	self := &bundle.Agent{ID: id(a.name), Build: "test", Supervisor: s, Mesh: view, Metrics: prometheus.NewRegistry(),
		Settings: func() *config.Config { return &config.Config{Name: a.name} }, Logger: log}
	return rest.Services{
		Router:      router,
		State:       &service.State{Supervisor: s},
		Tenants:     &service.Tenants{Supervisor: s},
		Tokens:      &service.Tokens{Supervisor: s, Root: Root, RootActor: "root", Now: a.clock, Started: time.Now()},
		Users:       &service.Users{Supervisor: s, Now: a.clock},
		Definitions: faultyDefinitions{&service.Definitions{Supervisor: s, Plugins: plugins{}, Agent: a.name, Logger: log}, a},
		Clusters:    faultyClusters{&service.Clusters{Supervisor: s}, a},
		Operations:  &service.Operations{Supervisor: s, Peers: peers{a.Store}, Logger: log},
		Orphans:     &service.Orphans{Supervisor: s},
		Sites:       &service.Sites{Supervisor: s},
		Resources:   faultyResources{a.resources, a},
		Runs:        &service.Runs{Supervisor: s, Now: a.clock, Random: func() uint32 { return 0 }},
		Mesh:        view,
		Inspector:   &bundle.Inspector{Self: self, Supervisor: s, Gossip: gossip{a}, Peers: peers{a.Store}},
		Raft:        &service.Raft{ID: id(a.name), Name: name, Build: "test", Supervisor: s, Gossip: gossip{a}},
	}
}
