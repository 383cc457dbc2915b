package state

import (
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/effect"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// effect returns what a command wrote, or nil for a command whose answer needs only the subject. It
// is called right after the command was carried out.
func (a *applier) effect(c *pb.Command, subject string) *effect.Rows {
	switch ch := c.Change.(type) {
	case *pb.Command_PutDefinitions:
		out := &effect.Rows{}
		for _, d := range ch.PutDefinitions.Definitions {
			if last := table.Latest(a.txn, c.Tenant, d.Kind, d.Name); last != nil {
				out.Definitions = append(out.Definitions, last.StoredDefinition)
			}
		}
		return out
	case *pb.Command_PutTenant:
		return &effect.Rows{Tenant: table.Get[model.Tenant](a.txn, table.Tenants, "id", subject)}
	case *pb.Command_PutUser:
		if u := table.Get[table.UserRow](a.txn, table.Users, "id", ch.PutUser.User.GetTenant(), subject); u != nil {
			return &effect.Rows{User: &u.User}
		}
	case *pb.Command_PutGrant:
		return &effect.Rows{Grant: table.Get[model.Grant](a.txn, table.Grants, "id", ch.PutGrant.Grant.GetTenant(), subject)}
	case *pb.Command_PutJoinToken:
		return &effect.Rows{JoinToken: table.Get[roster.JoinToken](a.txn, table.JoinTokens, "id", subject)}
	case *pb.Command_PutToken, *pb.Command_RenewToken:
		if t := table.Get[table.TokenRow](a.txn, table.Tokens, "id", subject); t != nil {
			return &effect.Rows{Token: &t.Token}
		}
	case *pb.Command_StartOperation, *pb.Command_QueueOperation:
		out := &effect.Rows{Operation: table.Get[model.Operation](a.txn, table.Operations, "id", subject)}
		if op := out.Operation; op != nil {
			out.Begun = table.Get[model.Cluster](a.txn, table.Clusters, "id", op.Tenant, op.Cluster)
		}
		return out
	case *pb.Command_ControlOperation, *pb.Command_OrderPlan:
		return a.operationEffect(subject)
	case *pb.Command_ControlCluster:
		cl := table.Get[model.Cluster](a.txn, table.Clusters, "id", c.Tenant, subject)
		if cl == nil {
			return nil
		}
		out := a.operationEffect(cl.Operation)
		out.Cluster = cl
		table.Each(a.txn, table.Nodes, "cluster", func(*model.Node) bool { out.Nodes++; return true }, cl.Tenant, cl.ID)
		return out
	case *pb.Command_ChangeRuns:
		return a.runsEffect(c, ch.ChangeRuns, subject)
	case *pb.Command_ChangeSite:
		if next := ch.ChangeSite.GetNext(); next != nil {
			return &effect.Rows{Generation: next.Generation.GetNumber()}
		}
	case *pb.Command_ChangeResource:
		return a.resourceEffect(c, ch.ChangeResource)
	}
	return nil
}

func (a *applier) operationEffect(id string) *effect.Rows {
	out := &effect.Rows{Operation: table.Get[model.Operation](a.txn, table.Operations, "id", id)}
	if s := a.plan(id); s != nil && out.Operation != nil {
		out.Progress = s.Progress()
	}
	return out
}

func (a *applier) runsEffect(c *pb.Command, ch *pb.ChangeRuns, subject string) *effect.Rows {
	switch ch.Change.(type) {
	case *pb.ChangeRuns_Start, *pb.ChangeRuns_Event:
		return &effect.Rows{Run: table.Get[profile.Run](a.txn, table.Runs, "id", c.Tenant, subject)}
	}
	put := ch.GetPut()
	if put == nil {
		return nil
	}
	tenant := c.Tenant
	if put.System {
		tenant = ""
	}
	out := &effect.Rows{}
	switch put.Kind {
	case pb.SettingKind_SETTING_KIND_PROFILE:
		if p := table.Get[table.ProfileRow](a.txn, table.Profiles, "id", tenant, put.Name); p != nil {
			out.Profile = &p.Profile
		}
	case pb.SettingKind_SETTING_KIND_PROGRAM:
		if p := table.LatestProgram(a.txn, tenant, put.Name); p != nil {
			out.Program = &p.Program
		}
	case pb.SettingKind_SETTING_KIND_SCHEDULE:
		out.Schedule = table.Get[profile.Schedule](a.txn, table.Schedules, "id", tenant, put.Name)
	}
	return out
}

func (a *applier) resourceEffect(c *pb.Command, ch *pb.ChangeResource) *effect.Rows {
	out := &effect.Rows{}
	named := func(k model.ResourceKey, version int) {
		r := table.Get[model.PluginResource](a.txn, table.Resources, "id", table.ResourceArgs(c.Tenant, k)...)
		if r == nil {
			return
		}
		if version == 0 {
			version = r.Versions[len(r.Versions)-1].Version
		}
		if v := r.Find(version); v != nil {
			out.Resources = append(out.Resources, *v)
		}
	}
	switch x := ch.Change.(type) {
	case *pb.ChangeResource_Add:
		if v, err := logformat.DecodeResourceVersion(x.Add.Version); err == nil {
			named(v.ResourceKey, 0)
		}
	case *pb.ChangeResource_Order:
		if k, err := logformat.DecodeResourceKey(x.Order.Resource); err == nil && x.Order.Version > 0 {
			named(*k, int(x.Order.Version))
		}
	case *pb.ChangeResource_Sync:
		table.Each(a.txn, table.Resources, "id_prefix", func(r *model.PluginResource) bool {
			for _, v := range r.Versions {
				if v.Status == model.ResourceActive {
					out.Resources = append(out.Resources, v)
				}
			}
			return true
		}, c.Tenant)
	}
	return out
}
