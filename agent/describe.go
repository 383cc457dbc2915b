package agent

import (
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// self returns this agent's entry in gossip.
func (a *Agent) self() mesh.Self {
	now := a.settings.Load()
	return mesh.Self{
		Name: now.Name, RPCAddr: a.net.mux.Addr().String(), APIAddr: a.net.apiAddr(), Build: a.cfg.Build,
		FeatureLevel: state.FeatureLevel, Zone: now.Zone, Class: now.Class, Eligible: a.cfg.Eligible,
		BootstrapExpect: a.cfg.BootstrapExpect, Leaving: a.departure != nil && a.departure.Leaving(),
	}
}

// hello returns the description of this agent that begins a session with the leader.
func (a *Agent) hello() *pb.Hello {
	now := a.settings.Load()
	h := &pb.Hello{
		Agent: a.id, Name: now.Name, Slots: uint32(a.cfg.Worker.Slots), Build: a.cfg.Build, FeatureLevel: state.FeatureLevel,
		Zone: now.Zone, Class: now.Class, PeerAddr: a.net.mux.Addr().String(), ApiAddr: a.net.apiAddr(), GossipAddr: a.mesh.Addr(),
		Eligible: a.cfg.Eligible, Machine: a.cfg.Machine, Process: a.objects.Process(),
	}
	if m, ok := a.mesh.Member(a.id); ok {
		h.Incarnation = m.Epoch
	}
	for _, t := range a.plugins.Types() {
		t.Class = "automator"
		if t.Kind == model.KindProviderType {
			t.Class = "provider"
		}
		if t.PluginType.Plugin == "" {
			t.PluginType.Plugin = t.Checksum
		}
		if m, err := logformat.EncodePluginType(&t.PluginType); err == nil {
			h.Plugins = append(h.Plugins, m)
		}
	}
	return h
}
