package auditor

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Put records that a row is about to be written.
func (u *Auditor) Put(row any) {
	txn := u.txn
	switch r := row.(type) {
	case *model.Tenant:
		u.row(tenantChange(r), docOf(u, table.Get[model.Tenant](txn, table.Tenants, "id", r.Name)), u.document(r))
	case *table.TokenRow:
		u.row(tokenChange(r), u.token(table.Get[table.TokenRow](txn, table.Tokens, "id", r.ID)), u.token(r))
	case *roster.JoinToken:
		u.row(joinTokenChange(r), docOf(u, table.Get[roster.JoinToken](txn, table.JoinTokens, "id", r.ID)), u.document(r))
	case *roster.Identity:
		u.row(identityChange(r), docOf(u, table.Get[roster.Identity](txn, table.Identities, "id", r.Agent)), u.document(r))
	case *roster.Rotation:
		u.row(rotationChange(r), docOf(u, table.Get[roster.Rotation](txn, table.Rotations, "id", r.Kind)), u.document(r))
	case *table.MetaRow:
		if old := table.Mesh(txn).Hold; old != r.Hold {
			u.row(holdChange(cmp.Or(r.Hold, old)), docOf(u, old), docOf(u, r.Hold))
		}
	case *model.Grant:
		u.row(grantChange(r), docOf(u, table.Get[model.Grant](txn, table.Grants, "id", r.Tenant, r.ID)), u.document(r))
	case *table.UserRow:
		u.row(userChange(r), u.user(table.Get[table.UserRow](txn, table.Users, "id", r.Tenant, r.Name)), u.user(r))
	case *table.DefinitionRow:
		last := table.Latest(u.txn, r.Tenant, string(r.Kind), r.Name)
		u.row(definitionChange(r), u.definition(last), u.definition(r))
	case *model.Cluster:
		u.row(clusterChange(r), u.cluster(table.Get[model.Cluster](txn, table.Clusters, "id", r.Tenant, r.ID)), u.cluster(r))
	case *model.Operation:
		u.row(operationChange(r), docOf(u, table.Get[model.Operation](txn, table.Operations, "id", r.ID)), u.document(r))
	case *model.NodeHealth:
		u.row(healthChange(r), docOf(u, table.Get[model.NodeHealth](txn, table.Health, "id", r.Tenant, r.Node)), u.document(r))
	case *site.Record:
		u.row(siteChange(r), u.siteDocument(table.Get[site.Record](txn, table.Sites, "id", r.Tenant, r.Name)), u.siteDocument(r))
	case *model.PluginResource:
		old := table.Get[model.PluginResource](txn, table.Resources, "id", table.ResourceArgs(r.Tenant, r.ResourceKey)...)
		u.row(resourceChange(r), u.resource(old),
			u.resource(r))
	case *table.ProfileRow, *table.ProgramRow, *profile.Schedule, *profile.Settings, *table.SecretRow, *profile.Run:
		u.row(u.setting(r, true))
	case *table.DataKeyRow:
		u.row(dataKeyChange(r), audit.Document{}, u.document(map[string]any{"meshKey": r.MeshKey}))
	case *table.SigningKeyRow:
		u.row(&audit.Change{Type: "signingkey", Subject: strconv.FormatUint(uint64(r.Number), 10)}, audit.Document{},
			u.document(map[string]any{"public": r.PublicKey.Key}))
	case *table.TaskKeyRow:
		u.row(&audit.Change{Type: "taskkey", Subject: strconv.FormatUint(uint64(r.Number), 10)}, audit.Document{},
			u.document(map[string]any{"public": r.Public, "signs": r.Signs}))
	case *table.PlanRow:
		if table.Get[table.PlanRow](txn, table.Plans, "id", r.Operation) == nil {
			u.begun(r)
		}
	}
}

// Remove records that a row is about to be removed.
func (u *Auditor) Remove(row any) {
	none := audit.Document{}
	switch r := row.(type) {
	case *model.Tenant:
		u.row(tenantChange(r), docOf(u, table.Get[model.Tenant](u.txn, table.Tenants, "id", r.Name)), none)
	case *table.TokenRow:
		u.row(tokenChange(r), u.token(r), none)
	case *roster.JoinToken:
		u.row(joinTokenChange(r), u.document(r), none)
	case *model.Grant:
		u.row(grantChange(r), u.document(r), none)
	case *table.UserRow:
		u.row(userChange(r), u.user(r), none)
	case *table.DefinitionRow:
		u.row(definitionChange(r), u.definition(r), none)
	case *model.Cluster:
		u.row(clusterChange(r), u.cluster(r), none)
	case *model.Operation:
		u.row(operationChange(r), u.document(r), none)
	case *model.NodeHealth:
		u.row(healthChange(r), u.document(r), none)
	case *site.Record:
		u.row(siteChange(r), u.siteDocument(r), none)
	case *model.PluginResource:
		u.row(resourceChange(r), u.resource(r), none)
	case *table.DataKeyRow:
		u.row(dataKeyChange(r), u.document(map[string]any{"meshKey": r.MeshKey}), none)
	case *table.ProfileRow, *table.ProgramRow, *profile.Schedule, *profile.Settings, *table.SecretRow, *profile.Run:
		u.row(u.setting(r, false))
	}
}

// row records the change of a row. It completes the change's type with the kind of change, which
// follows from the documents.
func (u *Auditor) row(c *audit.Change, before, after audit.Document) {
	switch {
	case before.IsZero():
		c.Type += ".created"
	case after.IsZero():
		c.Type += ".deleted"
	default:
		c.Type += ".changed"
	}
	u.record(c, before, after)
}

func tenantChange(t *model.Tenant) *audit.Change {
	return &audit.Change{Type: "tenant", Tenant: t.Name, Subject: t.Name}
}

func tokenChange(t *table.TokenRow) *audit.Change {
	return &audit.Change{Type: "token", Tenant: t.Tenant, Subject: t.ID}
}

func userChange(r *table.UserRow) *audit.Change {
	return &audit.Change{Type: "user", Tenant: r.Tenant, Subject: r.Name}
}

func dataKeyChange(r *table.DataKeyRow) *audit.Change {
	return &audit.Change{Type: "datakey", Tenant: r.Tenant, Subject: strconv.FormatUint(uint64(r.Number), 10)}
}

func joinTokenChange(t *roster.JoinToken) *audit.Change {
	return &audit.Change{Type: "jointoken", Subject: t.ID}
}

func identityChange(a *roster.Identity) *audit.Change {
	return &audit.Change{Type: "identity", Subject: a.Agent}
}

func rotationChange(r *roster.Rotation) *audit.Change {
	return &audit.Change{Type: "rotation", Subject: r.Kind, Message: fmt.Sprintf("rotation %d: %s", r.Number, r.Phase)}
}

func holdChange(h *roster.Hold) *audit.Change {
	return &audit.Change{Type: "hold", Subject: h.File, Message: h.Why()}
}

func grantChange(g *model.Grant) *audit.Change {
	return &audit.Change{Type: "grant", Tenant: g.Tenant, Subject: g.ID}
}

func definitionChange(d *table.DefinitionRow) *audit.Change {
	return &audit.Change{Type: "definition", Tenant: d.Tenant, Subject: string(d.Kind) + "/" + d.Name,
		Message: fmt.Sprintf("version %d", d.Version)}
}

func clusterChange(c *model.Cluster) *audit.Change {
	return &audit.Change{Type: "cluster", Tenant: c.Tenant, Cluster: c.ID, Subject: c.Name, Message: c.Message}
}

func healthChange(h *model.NodeHealth) *audit.Change {
	return &audit.Change{Type: "health", Tenant: h.Tenant, Cluster: h.Cluster, Node: h.Node, Operation: h.Operation, Subject: h.Node}
}

func operationChange(o *model.Operation) *audit.Change {
	return &audit.Change{Type: "operation", Tenant: o.Tenant, Cluster: o.Cluster, Operation: o.ID, Subject: string(o.Type), Message: o.Message}
}

// document returns the document of a value. Fields whose names mark secrets are redacted.
func (u *Auditor) document(v any) audit.Document {
	return u.documentOf(v, func(m map[string]any) map[string]any { return model.RedactFields(model.PluginType{}, m) })
}

func (u *Auditor) documentOf(v any, show func(map[string]any) map[string]any) audit.Document {
	d, err := audit.NewDocument(v, show)
	if err != nil {
		// This does not happen: every row can be encoded as JSON, and a definition that is not JSON
		// is never accepted. If it happens all the same, the log must still show the change.
		d, _ = audit.NewDocument(map[string]string{"unreadable": err.Error()}, func(m map[string]any) map[string]any { return m })
	}
	return d
}

func docOf[T any](u *Auditor, row *T) audit.Document {
	if row == nil {
		return audit.Document{}
	}
	return u.document(row)
}

// token returns the document of a token, without its hash and its last use.
func (u *Auditor) token(t *table.TokenRow) audit.Document {
	if t == nil {
		return audit.Document{}
	}
	shown := t.Token
	shown.Used = 0
	return u.document(shown)
}

// user returns the document of a user, without the hash of its password.
func (u *Auditor) user(r *table.UserRow) audit.Document {
	if r == nil || r.Deleted != 0 {
		return audit.Document{}
	}
	return u.document(r.User)
}

func (u *Auditor) definition(d *table.DefinitionRow) audit.Document {
	if d == nil {
		return audit.Document{}
	}
	return u.documentOf(json.RawMessage(d.Body), func(m map[string]any) map[string]any {
		if d.Kind == model.KindProvider {
			return u.provider(d.Tenant, m)
		}
		return model.RedactFields(model.PluginType{}, m)
	})
}

func (u *Auditor) cluster(c *model.Cluster) audit.Document {
	if c == nil {
		return audit.Document{}
	}
	return u.documentOf(c, func(m map[string]any) map[string]any {
		out := model.RedactFields(model.PluginType{}, m)
		if p, ok := m["provider"].(map[string]any); ok {
			out["provider"] = u.provider(c.Tenant, p)
		}
		return out
	})
}

// provider redacts the fields of a provider that its plugin type declares secret, besides those
// whose names mark secrets.
func (u *Auditor) provider(tenant string, m map[string]any) map[string]any {
	out := model.RedactFields(model.PluginType{}, m)
	fields, ok := m["provisioner"].(map[string]any)
	if !ok {
		return out
	}
	name, _ := m["providertype"].(string)
	out["provisioner"] = model.RedactFields(u.pluginType(tenant, name), fields)
	return out
}

// pluginType finds a provider type. The type that an agent offers takes precedence over a
// definition of it.
func (u *Auditor) pluginType(tenant, name string) model.PluginType {
	if r := table.Get[table.PluginRow](u.txn, table.PluginTypes, "id", "provider/"+name); r != nil {
		return r.Type
	}
	if d := table.Latest(u.txn, tenant, string(model.KindProviderType), name); d != nil {
		if def, err := model.Restore(d.Kind, d.Body); err == nil {
			if t, ok := def.Value.(*model.PluginType); ok {
				return *t
			}
		}
	}
	return model.PluginType{}
}

// order returns the record of a command that is a person's order. It holds the content of the
// order; other records hold its effects. It returns nil for a command whose effects rows and plans
// record completely, and for other commands without an actor.
func (u *Auditor) order(c *pb.Command) *audit.Change {
	out := &audit.Change{Tenant: c.Tenant}
	switch ch := c.Change.(type) {
	case *pb.Command_Report, *pb.Command_ReportHealth, *pb.Command_QueueOperation, *pb.Command_Lease, *pb.Command_SaveValue, *pb.Command_Part,
		*pb.Command_OpenSession, *pb.Command_EndSession, *pb.Command_Prune, *pb.Command_Checkpoint,
		*pb.Command_PutDefinitions, *pb.Command_PutTenant, *pb.Command_DeleteTenant, *pb.Command_PutToken, *pb.Command_DeleteToken,
		*pb.Command_RenewToken, *pb.Command_PutUser, *pb.Command_DeleteUser, *pb.Command_PutGrant, *pb.Command_DeleteGrant,
		*pb.Command_TouchTokens, *pb.Command_PutDataKey, *pb.Command_PutSealed, *pb.Command_Reseal, *pb.Command_Rotate,
		*pb.Command_PutJoinToken, *pb.Command_DeleteJoinToken, *pb.Command_AdmitAgent, *pb.Command_RecordKeys,
		*pb.Command_PruneAudit, *pb.Command_MoveCursors, *pb.Command_NoteIncidents, *pb.Command_RefuseCopies,
		*pb.Command_DropSealed, *pb.Command_PutSigningKey, *pb.Command_PutTaskKey, *pb.Command_SignHead, *pb.Command_ResumeMesh,
		*pb.Command_StartOperation, *pb.Command_ChangeRuns, *pb.Command_ChangeResource:
		return nil
	case *pb.Command_ControlOperation:
		out.Type, out.Subject = "operation.order", logformat.OperationOrders.Word(ch.ControlOperation.Order)
	case *pb.Command_ControlCluster:
		out.Type, out.Subject = "operation.order", logformat.ClusterOrders.Word(ch.ControlCluster.Order)
		if ch.ControlCluster.Order == pb.ClusterOrder_CLUSTER_ORDER_WARN {
			out.Type = audit.TypeExpiring
		}
	case *pb.Command_OrderPlan:
		out.Type, out.Subject = "plan.order", logformat.PlanOrders.Word(ch.OrderPlan.Order)
	case *pb.Command_RemoveAgent:
		out.Type = "agent.removed"
	case *pb.Command_FoundMesh:
		out.Type, out.Subject = "mesh.founded", ch.FoundMesh.Mesh
	case *pb.Command_RaiseFeatureLevel:
		out.Type = "mesh.upgraded"
	case *pb.Command_NoteExport:
		out.Type, out.Subject = "keyring.exported", strconv.FormatUint(uint64(ch.NoteExport.Number), 10)
	case *pb.Command_ReportDivergence:
		switch d := ch.ReportDivergence; {
		case d.Server == "":
			out.Type = "voters.differ"
		case d.Agrees:
			out.Type, out.Subject = "voter.agrees", d.Server
		case d.Quarantine:
			out.Type, out.Subject = "voter.quarantined", d.Server
		default:
			out.Type, out.Subject = "voter.differs", d.Server
		}
	default:
		if c.Actor == "" {
			return nil
		}
	}
	m := c.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("change"))
	if field == nil {
		return nil
	}
	if out.Type == "" {
		out.Type = "order." + string(field.Name())
	}
	body := m.Get(field).Message()
	u.place(out, body)
	word := out.Subject
	if cl := table.Get[model.Cluster](u.txn, table.Clusters, "id", out.Tenant, out.Cluster); out.Type == audit.TypeExpiring && cl != nil {
		out.Subject = cl.Name
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(body.Interface())
	if err != nil {
		text = []byte("{}")
	}
	out.Before, out.After = audit.Diff(audit.Document{}, u.documentOf(json.RawMessage(text), func(m map[string]any) map[string]any {
		if _, ok := m["order"]; ok {
			m["order"] = word // the word of the API, not the enum's name
		}
		if f := c.GetFoundMesh(); f != nil { // neither sealed keys nor hashes of tokens leave the mesh
			sum := sha256.Sum256(f.Ca)
			return map[string]any{"mesh": f.Mesh, "ca_sha256": hex.EncodeToString(sum[:])}
		}
		return model.RedactFields(model.PluginType{}, m)
	}))
	return out
}

// place fills in the objects that an order is about, from the fields of its message with these
// names.
func (u *Auditor) place(out *audit.Change, body protoreflect.Message) {
	field := func(name protoreflect.Name) string {
		if f := body.Descriptor().Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			return body.Get(f).String()
		}
		return ""
	}
	out.Operation, out.Cluster, out.Node, out.Message = field("operation"), field("cluster"), field("node"), field("reason")
	if op := table.Get[model.Operation](u.txn, table.Operations, "id", out.Operation); op != nil {
		out.Tenant, out.Cluster = op.Tenant, op.Cluster
	}
	if out.Subject == "" {
		out.Subject = field("id")
	}
}

// siteDocument returns the document of a site's record for the audit log. It leaves the placement
// of hosts on agents out, because no person decides it.
func (u *Auditor) siteDocument(r *site.Record) audit.Document {
	if r == nil {
		return audit.Document{}
	}
	d := map[string]any{"generation": r.Generation, "last": r.Last}
	if r.Next != 0 {
		d["next"] = r.Next
	}
	return u.document(d)
}

func siteChange(r *site.Record) *audit.Change {
	return &audit.Change{Type: "site", Tenant: r.Tenant, Subject: r.Name}
}

func resourceChange(r *model.PluginResource) *audit.Change {
	return &audit.Change{Type: "resource", Tenant: r.Tenant, Subject: r.ResourceKey.String()}
}

// resource returns the document of a resource for the audit log: its versions and their status. It
// leaves out the checksums of secret versions.
func (u *Auditor) resource(r *model.PluginResource) audit.Document {
	if r == nil {
		return audit.Document{}
	}
	versions := map[string]any{}
	for _, v := range r.Versions {
		doc := map[string]any{"status": v.Status, "size": v.Size}
		if !v.Secret {
			doc["sha256"] = v.SHA256
		}
		versions[strconv.Itoa(v.Version)] = doc
	}
	return u.documentOf(versions, func(m map[string]any) map[string]any { return m })
}
