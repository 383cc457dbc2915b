package logformat

import (
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// By returns a command with its caller.
func By(who model.Caller, c *pb.Command) *pb.Command {
	c.Tenant, c.Actor, c.RequestId, c.Source, c.Agent = who.Tenant, who.Actor, who.Request, who.From, who.Agent
	return c
}

// PutTenant returns the command that writes a tenant.
func PutTenant(t *model.Tenant, createOnly bool) (*pb.Command_PutTenant, error) {
	m, err := EncodeTenant(t)
	return &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: m, CreateOnly: createOnly}}, err
}

// Secret is the encrypted value of a secret, with the users whose documents may refer to it. If UsableBy is nil, the users
// stay as they are.
type Secret struct {
	Value    *pb.SealedValue
	UsableBy []string
}

// PutSetting returns an order, such as "put" or "disable", about a setting of runs. Orders that
// write need a value: a profile.Profile, profile.Program or profile.Schedule, the properties of
// preferences, the encrypted value of a secret, or nil. The state refuses kinds and orders that do not exist.
func PutSetting(kind, name, order string, value any) (*pb.PutSetting, error) {
	p := &pb.PutSetting{Kind: SettingKinds.Number(kind), Name: name, Order: SettingOrders.Number(order), NumbersContinue: true}
	switch v := value.(type) {
	case nil:
	case profile.Profile:
		m, err := EncodeProfile(&v)
		p.Value = &pb.PutSetting_Profile{Profile: m}
		return p, err
	case profile.Program:
		m, err := EncodeProgram(&v)
		p.Value = &pb.PutSetting_Program{Program: m}
		return p, err
	case profile.Schedule:
		m, err := EncodeSchedule(&v)
		p.Value = &pb.PutSetting_Schedule{Schedule: m}
		return p, err
	case map[string]string:
		p.Value = &pb.PutSetting_Preferences{Preferences: &record.Properties{Properties: v}}
	case Secret:
		p.Value, p.UsableBy = &pb.PutSetting_Sealed{Sealed: v.Value}, v.UsableBy
		p.KeepUsers = v.UsableBy == nil
	default:
		return nil, fmt.Errorf("a setting is a %T", value)
	}
	return p, nil
}

// RunEvent returns the command that applies an event to a run. The state refuses it if the run has
// another version; version 0 matches any.
func RunEvent(run string, version uint64, e profile.Event) (*pb.Command_ChangeRuns, error) {
	m, err := EncodeRunEvent(&e)
	return &pb.Command_ChangeRuns{ChangeRuns: &pb.ChangeRuns{
		Change: &pb.ChangeRuns_Event{Event: &pb.RunEvent{Run: run, Version: version, Event: m}},
	}}, err
}

// AddResource returns the change that adds a version to a plugin resource and carries out an order
// on that version; order "" is none. The state refuses it if the tenant's resources would then take
// more than mostBytes.
func AddResource(v *model.ResourceVersion, mostBytes int64, order string) (*pb.ChangeResource, error) {
	m, err := EncodeResourceVersion(v)
	return &pb.ChangeResource{Change: &pb.ChangeResource_Add{
		Add: &pb.AddResource{Version: m, MostBytes: mostBytes, Order: ResourceOrders.Number(order)},
	}}, err
}

// SyncOrder is the word for the order about all resources of a tenant.
const SyncOrder = "sync"

// OrderResource returns the change for an order about a plugin resource.
func OrderResource(order string, k model.ResourceKey, version int) (*pb.ChangeResource, error) {
	if order == SyncOrder {
		return &pb.ChangeResource{Change: &pb.ChangeResource_Sync{Sync: &pb.SyncResources{}}}, nil
	}
	m, err := EncodeResourceKey(&k)
	return &pb.ChangeResource{Change: &pb.ChangeResource_Order{
		Order: &pb.OrderResource{Resource: m, Order: ResourceOrders.Number(order), Version: int32(version)},
	}}, err
}

// Control returns the command for an order about an operation or a cluster. The state refuses a
// word that is not an order.
func Control(id, order, reason string) *pb.Command {
	if n := ClusterOrders.Number(order); n != 0 {
		return &pb.Command{Change: &pb.Command_ControlCluster{ControlCluster: &pb.ControlCluster{Cluster: id, Order: n, Reason: reason}}}
	}
	return &pb.Command{Change: &pb.Command_ControlOperation{
		ControlOperation: &pb.ControlOperation{Operation: id, Order: OperationOrders.Number(order), Reason: reason},
	}}
}

// OrderPlan returns the command for an order about the plan of an operation.
func OrderPlan(operation string, o tree.Order) *pb.Command {
	return &pb.Command{Change: &pb.Command_OrderPlan{OrderPlan: &pb.OrderPlan{
		Operation: operation, Order: PlanOrders.Number(o.Command), Phase: o.Phase, Step: o.Step, Parameters: o.Params,
	}}}
}

// Label returns the command that sets and removes labels of a cluster.
func Label(cluster string, set map[string]string, remove []string) *pb.Command {
	return &pb.Command{Change: &pb.Command_ControlCluster{ControlCluster: &pb.ControlCluster{
		Cluster: cluster, Order: pb.ClusterOrder_CLUSTER_ORDER_LABEL, Labels: set, Unlabel: remove,
	}}}
}

// Lease returns the command that has the lease of a cluster end at the time to in place of the time was, both in Unix milliseconds. The
// state refuses it if the lease ends at another time than was.
func Lease(cluster string, was, to int64) *pb.Command {
	return leaseOrder(&pb.ControlCluster{Cluster: cluster, Order: pb.ClusterOrder_CLUSTER_ORDER_LEASE, LeaseWasMs: was, LeaseToMs: to})
}

// WarnOfLease returns the command that puts the warning on record that the lease of a cluster, which ends at the time end, ends soon.
func WarnOfLease(cluster string, end int64, message string) *pb.Command {
	return leaseOrder(&pb.ControlCluster{Cluster: cluster, Order: pb.ClusterOrder_CLUSTER_ORDER_WARN, LeaseWasMs: end, Reason: message})
}

func leaseOrder(o *pb.ControlCluster) *pb.Command {
	return &pb.Command{Change: &pb.Command_ControlCluster{ControlCluster: o}}
}
