package logformat

import (
	"encoding/json"

	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// EncodeRegistry returns the message of the agent registry, with the ids of agents that were removed from the mesh.
func EncodeRegistry(agents []model.Agent, removed []string) *pb.AgentRegistry {
	e := &encoder{}
	return &pb.AgentRegistry{Agents: list(agents, e.agent), Removed: removed}
}

// DecodeRegistry is the inverse of EncodeRegistry.
func DecodeRegistry(m *pb.AgentRegistry) []model.Agent {
	d := &decoder{}
	return list(m.GetAgents(), d.agent)
}

// EncodeOrders returns the message of the leader's orders for a site.
func EncodeOrders(x *site.Orders) (*pb.SiteOrders, error) { return encode(x, (*encoder).orders) }

// DecodeOrders is the inverse of EncodeOrders. It fails if the message is missing or JSON in it is
// damaged.
func DecodeOrders(m *pb.SiteOrders) (*site.Orders, error) { return decode(m, (*decoder).orders) }

func (e *encoder) orders(x site.Orders) *pb.SiteOrders {
	return &pb.SiteOrders{
		Tenant:     x.Tenant,
		Site:       x.Site,
		Epoch:      x.Epoch,
		Version:    x.Version,
		Gone:       x.Gone,
		Generation: x.Generation,
		Next:       x.Next,
		Parts:      list(x.Parts, e.sitePart),
		Mine:       x.Mine,
		Turned:     x.Turned,
		Agents:     x.Agents,
		Nodes:      table(x.Nodes, e.nodeAccess),
		Paused:     x.Paused,
		Lives:      list(x.Lives, e.livingObject),
		Removing:   numbers[int32](x.Removing),
		Released:   numbers[int32](x.Released),
		Probe:      x.Probe,
		Call:       x.Call,

		TakesEvents: x.TakesEvents,
		EventsTaken: x.EventsTaken,
	}
}

func (d *decoder) orders(m *pb.SiteOrders) site.Orders {
	return site.Orders{
		Tenant:     m.Tenant,
		Site:       m.Site,
		Epoch:      m.Epoch,
		Version:    m.Version,
		Gone:       m.Gone,
		Generation: m.Generation,
		Next:       m.Next,
		Parts:      list(m.Parts, d.sitePart),
		Mine:       m.Mine,
		Turned:     m.Turned,
		Agents:     m.Agents,
		Nodes:      table(m.Nodes, d.nodeAccess),
		Paused:     m.Paused,
		Lives:      list(m.Lives, d.livingObject),
		Removing:   numbers[object.ID](m.Removing),
		Released:   numbers[object.ID](m.Released),
		Probe:      m.Probe,
		Call:       m.Call,

		TakesEvents: m.TakesEvents,
		EventsTaken: m.EventsTaken,
	}
}

func (e *encoder) sitePart(x site.Part) *pb.SitePart {
	return &pb.SitePart{
		Generation: x.Generation,
		Document:   e.json(x.Document),
		ObjectIds:  numbers[int32](x.IDs),
		Sealed:     e.optional(x.Sealed != nil, x.Sealed),
		Values:     table(x.Values, func(v json.RawMessage) []byte { return v }),
	}
}

func (d *decoder) sitePart(m *pb.SitePart) site.Part {
	return site.Part{
		Generation: m.GetGeneration(),
		Document:   document[*site.Document](d, m.GetDocument()),
		IDs:        numbers[object.ID](m.GetObjectIds()),
		Sealed:     document[*site.Document](d, m.GetSealed()),
		Values:     table(m.GetValues(), func(v []byte) json.RawMessage { return v }),
	}
}

func (e *encoder) nodeAccess(x site.Access) *pb.NodeAccess {
	return &pb.NodeAccess{
		Hostname:    x.Hostname,
		IpAddresses: x.IPAddresses,
		SshUser:     x.SSHUser,
		Results:     e.optional(len(x.Results) > 0, x.Results),
	}
}

func (d *decoder) nodeAccess(m *pb.NodeAccess) site.Access {
	return site.Access{
		Hostname:    m.GetHostname(),
		IPAddresses: m.GetIpAddresses(),
		SSHUser:     m.GetSshUser(),
		Results:     document[map[string]any](d, m.GetResults()),
	}
}

func (e *encoder) livingObject(x site.Lived) *pb.LivingObject {
	return &pb.LivingObject{
		Id:   int32(x.ID),
		Inc:  x.Inc,
		Host: x.Host,
	}
}

func (d *decoder) livingObject(m *pb.LivingObject) site.Lived {
	return site.Lived{
		ID:   object.ID(m.GetId()),
		Inc:  m.GetInc(),
		Host: m.GetHost(),
	}
}
