package logformat

import (
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// EncodeIncident returns the message of an incident.
func EncodeIncident(i *model.Incident) *pb.Incident {
	out := &pb.Incident{Type: i.Type, Tenant: i.Tenant, Actor: i.Actor, Action: i.Action, Object: i.Object, Source: i.Source, Agent: i.Agent,
		Request: i.Request}
	if i.Counted() || i.Count > 1 {
		out.Count, out.FirstMs, out.LastMs = i.Count, i.First, i.Last
	}
	return out
}

// DecodeIncident returns the incident of a message.
func DecodeIncident(m *pb.Incident) model.Incident {
	return model.Incident{Type: m.Type, Tenant: m.Tenant, Actor: m.Actor, Action: m.Action, Object: m.Object, Source: m.Source,
		Agent: m.Agent, Request: m.Request, Count: m.Count, First: m.FirstMs, Last: m.LastMs}
}
