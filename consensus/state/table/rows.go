package table

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// encodeRow returns the record of a row. history writes the nodes of a cluster's snapshot before
// that record.
func encodeRow(raw any, history *historyWriter) (rec *pb.SnapshotRecord, err error) {
	rec = &pb.SnapshotRecord{}
	switch r := raw.(type) {
	case *model.Tenant:
		x := &pb.SnapshotRecord_Tenant{}
		x.Tenant, err = logformat.EncodeTenant(r)
		rec.Row = x
	case *TokenRow:
		x := &pb.TokenRow{Hash: r.Hash}
		x.Token, err = logformat.EncodeToken(&r.Token)
		rec.Row = &pb.SnapshotRecord_Token{Token: x}
	case *UserRow:
		x := &pb.UserRow{Password: r.Password}
		x.User, err = logformat.EncodeUser(&r.User)
		rec.Row = &pb.SnapshotRecord_User{User: x}
	case *model.Grant:
		x := &pb.SnapshotRecord_Grant{}
		x.Grant, err = logformat.EncodeGrant(r)
		rec.Row = x
	case *DefinitionRow:
		rec.Row = &pb.SnapshotRecord_Definition{Definition: &pb.DefinitionRow{
			Tenant: r.Tenant, Kind: string(r.Kind), Name: r.Name, Version: int64(r.Version), Body: r.Body, Index: r.Index,
			Author: r.Author, HostExec: r.HostExec,
		}}
	case *SinkRow:
		rec.Row = &pb.SnapshotRecord_Sink{Sink: &pb.SinkRow{Name: r.Name, Number: r.Number, MovedMs: r.Moved}}
	case *RetiredRow:
		rec.Row = &pb.SnapshotRecord_Definition{Definition: &pb.DefinitionRow{
			Tenant: r.Tenant, Kind: r.Kind, Name: r.Name, Version: int64(r.Version), Deleted: true,
		}}
	case *PluginRow:
		x := &pb.SnapshotRecord_PluginType{}
		x.PluginType, err = logformat.EncodePluginType(&r.Type)
		rec.Row = x
	case *model.Agent:
		x := &pb.SnapshotRecord_Agent{}
		x.Agent, err = logformat.EncodeAgent(r)
		rec.Row = x
	case *SessionRow:
		rec.Row = &pb.SnapshotRecord_Session{Session: &pb.SessionRow{Id: r.ID, Agent: r.Agent, Epoch: r.Epoch}}
	case *HelloRow:
		rec.Row = &pb.SnapshotRecord_Hello{Hello: &pb.HelloRow{
			Agent: r.Agent, Incarnation: r.Last.Incarnation, Number: r.Last.Number, RemovedMs: r.Removed,
		}}
	case *model.Cluster:
		x := &pb.SnapshotRecord_Cluster{}
		x.Cluster, err = logformat.EncodeCluster(r)
		rec.Row = x
	case *model.Node:
		x := &pb.SnapshotRecord_Node{}
		x.Node, err = logformat.EncodeNode(r)
		rec.Row = x
	case *model.Operation:
		x := &pb.SnapshotRecord_Operation{}
		x.Operation, err = logformat.EncodeOperation(r)
		rec.Row = x
	case *PlanRow:
		x := &pb.SnapshotRecord_Plan{}
		x.Plan, err = encodePlan(r)
		rec.Row = x
	case *RequestRow:
		x := &pb.RequestRow{Key: r.Key, Index: r.Index, Subject: r.Subject, Time: r.Time, Refusal: string(r.Refusal)}
		x.Effect, err = encodeEffect(r.Effect)
		rec.Row = &pb.SnapshotRecord_Request{Request: x}
	case *PartRow:
		rec.Row = &pb.SnapshotRecord_Part{Part: &pb.PartRow{Id: r.ID, Number: r.Number, Data: r.Data}}
	case *ValueRow:
		rec.Row = &pb.SnapshotRecord_Value{Value: &pb.ValueRow{Node: r.Node, Key: r.Key, Value: r.Value}}
	case *MetaRow:
		x := &pb.MetaRow{FeatureLevel: r.FeatureLevel, Mesh: r.Mesh, LastCluster: int64(r.LastCluster), OrphansMs: r.Orphans.At,
			Differing: r.Differing}
		for _, f := range r.Orphans.Found {
			x.Orphans = append(x.Orphans, &pb.FoundOrphan{Tenant: f.Tenant, ProviderType: f.ProviderType, Id: f.ID, SinceMs: f.Since})
		}
		if i := r.Identity; i != nil {
			x.Identity = &pb.MeshIdentity{Mesh: i.Mesh, Cas: i.CAs, SealedCa: i.SealedCA, SealedGossip: i.SealedGossip, RootHash: i.RootHash}
			for _, b := range i.Bridges {
				x.Identity.Bridges = append(x.Identity.Bridges, &pb.Bridge{Certificate: b.Certificate, Old: b.Old, Until: b.Until})
			}
		}
		if h := r.Hold; h != nil {
			x.Hold = &pb.Hold{File: h.File, SinceMs: h.Since, Actor: h.Actor}
		}
		if e := r.Export; e != nil {
			x.Export = &pb.KeyringExport{Number: e.Number, Print: e.Print, TimeMs: e.At}
		}
		rec.Row = &pb.SnapshotRecord_Meta{Meta: x}
	case *roster.JoinToken:
		x := &pb.SnapshotRecord_JoinToken{}
		x.JoinToken, err = logformat.EncodeJoinToken(r)
		rec.Row = x
	case *roster.Identity:
		x := &pb.SnapshotRecord_Identity{}
		x.Identity, err = logformat.EncodeAgentIdentity(r)
		rec.Row = x
	case *roster.Rotation:
		x := &pb.SnapshotRecord_Rotation{}
		x.Rotation, err = logformat.EncodeRotation(r)
		rec.Row = x
	case *model.Snapshot:
		x := &pb.SnapshotRecord_History{}
		x.History, err = history.encode(r)
		rec.Row = x
	case *model.NodeHealth:
		x := &pb.SnapshotRecord_Health{}
		x.Health, err = logformat.EncodeNodeHealth(r)
		rec.Row = x
	case *QueueRow:
		x := &pb.QueueRow{Operation: r.Operation}
		x.Request, err = logformat.EncodeOperationRequest(r.Request)
		rec.Row = &pb.SnapshotRecord_Queue{Queue: x}
	case *site.Record:
		x := &pb.SnapshotRecord_Site{}
		x.Site, err = logformat.EncodeSite(r)
		rec.Row = x
	case *site.Generation:
		x := &pb.SnapshotRecord_Generation{}
		x.Generation, err = logformat.EncodeGeneration(r)
		rec.Row = x
	case *model.PluginResource:
		x := &pb.SnapshotRecord_Resource{}
		x.Resource, err = logformat.EncodePluginResource(r)
		rec.Row = x
	case *model.ResourceSet:
		x := &pb.SnapshotRecord_ResourceSet{}
		x.ResourceSet, err = logformat.EncodeResourceSet(r)
		rec.Row = x
	case *DataKeyRow:
		rec.Row = &pb.SnapshotRecord_DataKey{DataKey: &pb.PutDataKey{
			Tenant: r.Tenant, Number: r.Number, MeshKey: r.MeshKey, MeshPrint: r.MeshPrint, Wrapped: r.Wrapped,
		}}
	case *SealedRow:
		rec.Row = &pb.SnapshotRecord_Sealed{Sealed: &pb.SealedRow{
			Tenant: r.Tenant, Value: &pb.SealedValue{Id: r.ID, Version: r.Version, Sealed: r.Sealed}, CreatedMs: r.Created,
		}}
	case *SigningKeyRow:
		rec.Row = &pb.SnapshotRecord_SigningKey{SigningKey: &pb.SigningKeyRow{
			Number: r.Number, Public: r.Key, Signature: r.Signature, CreatedMs: r.Created,
		}}
	case *TaskKeyRow:
		rec.Row = &pb.SnapshotRecord_TaskKey{TaskKey: &pb.TaskKeyRow{Number: r.Number, Public: r.Public, SignsMs: r.Signs, CreatedMs: r.Created}}
	default:
		err = encodeRunRow(raw, rec)
	}
	return rec, err
}

// encodeRunRow is encodeRow for the tables of profiles and runs.
func encodeRunRow(raw any, rec *pb.SnapshotRecord) (err error) {
	switch r := raw.(type) {
	case *ProfileRow:
		x := &pb.ProfileRow{Tenant: r.Tenant}
		x.Profile, err = logformat.EncodeProfile(&r.Profile)
		rec.Row = &pb.SnapshotRecord_Profile{Profile: x}
	case *ProgramRow:
		x := &pb.ProgramRow{Tenant: r.Tenant}
		x.Program, err = logformat.EncodeProgram(&r.Program)
		rec.Row = &pb.SnapshotRecord_Program{Program: x}
	case *profile.Schedule:
		x := &pb.SnapshotRecord_Schedule{}
		x.Schedule, err = logformat.EncodeSchedule(r)
		rec.Row = x
	case *profile.Settings:
		x := &pb.SnapshotRecord_Preferences{}
		x.Preferences, err = logformat.EncodePreferences(r)
		rec.Row = x
	case *SecretRow:
		rec.Row = &pb.SnapshotRecord_Secret{Secret: &pb.SecretRow{
			Tenant: r.Tenant, Name: r.Name, Value: r.Value, UsableBy: r.UsableBy, SealedId: r.ID, SealedVersion: r.Version,
		}}
	case *profile.Run:
		x := &pb.SnapshotRecord_Run{}
		x.Run, err = logformat.EncodeRun(r)
		rec.Row = x
	case *UsageRow:
		x := &pb.UsageRow{Tenant: r.Tenant, Kind: logformat.SettingKinds.Number(r.Kind), Name: r.Name}
		x.Usage, err = logformat.EncodeUsage(&r.Usage)
		rec.Row = &pb.SnapshotRecord_Usage{Usage: x}
	default:
		return fmt.Errorf("a row is a %T", raw)
	}
	return err
}

// decodeRow returns the row of a record and its table.
func decodeRow(rec *pb.SnapshotRecord, history *historyReader) (table string, row any, err error) {
	switch x := rec.Row.(type) {
	case *pb.SnapshotRecord_Tenant:
		table = Tenants
		row, err = logformat.DecodeTenant(x.Tenant)
	case *pb.SnapshotRecord_Token:
		t, err := logformat.DecodeToken(x.Token.Token)
		if err != nil {
			return "", nil, err
		}
		return Tokens, &TokenRow{Hash: x.Token.Hash, Token: *t}, nil
	case *pb.SnapshotRecord_User:
		u, err := logformat.DecodeUser(x.User.User)
		if err != nil {
			return "", nil, err
		}
		return Users, &UserRow{Password: x.User.Password, User: *u}, nil
	case *pb.SnapshotRecord_Grant:
		table = Grants
		row, err = logformat.DecodeGrant(x.Grant)
	case *pb.SnapshotRecord_JoinToken:
		table = JoinTokens
		row, err = logformat.DecodeJoinToken(x.JoinToken)
	case *pb.SnapshotRecord_Identity:
		table = Identities
		row, err = logformat.DecodeAgentIdentity(x.Identity)
	case *pb.SnapshotRecord_Rotation:
		table = Rotations
		row, err = logformat.DecodeRotation(x.Rotation)
	case *pb.SnapshotRecord_Definition:
		d := x.Definition
		if d.Deleted {
			return Retired, &RetiredRow{Tenant: d.Tenant, Kind: d.Kind, Name: d.Name, Version: int(d.Version)}, nil
		}
		return Definitions, &DefinitionRow{Tenant: d.Tenant, StoredDefinition: model.StoredDefinition{
			Kind: model.Kind(d.Kind), Name: d.Name, Version: int(d.Version), Body: d.Body, Index: d.Index, Author: d.Author, HostExec: d.HostExec,
		}}, nil
	case *pb.SnapshotRecord_Sink:
		return Sinks, &SinkRow{Name: x.Sink.Name, Number: x.Sink.Number, Moved: x.Sink.MovedMs}, nil
	case *pb.SnapshotRecord_PluginType:
		t, err := logformat.DecodePluginType(x.PluginType)
		if err != nil {
			return "", nil, err
		}
		return PluginTypes, &PluginRow{Key: t.Key(), Type: *t}, nil
	case *pb.SnapshotRecord_Agent:
		table = Agents
		row, err = logformat.DecodeAgent(x.Agent)
	case *pb.SnapshotRecord_Session:
		return Sessions, &SessionRow{ID: x.Session.Id, Agent: x.Session.Agent, Epoch: x.Session.Epoch}, nil
	case *pb.SnapshotRecord_Hello:
		h := x.Hello
		return Hellos, &HelloRow{Agent: h.Agent, Last: lease.Hello{Incarnation: h.Incarnation, Number: h.Number}, Removed: h.RemovedMs}, nil
	case *pb.SnapshotRecord_Cluster:
		table = Clusters
		row, err = logformat.DecodeCluster(x.Cluster)
	case *pb.SnapshotRecord_Node:
		table = Nodes
		row, err = logformat.DecodeNode(x.Node)
	case *pb.SnapshotRecord_Operation:
		table = Operations
		row, err = logformat.DecodeOperation(x.Operation)
	case *pb.SnapshotRecord_Plan:
		table = Plans
		row, err = decodePlan(x.Plan)
	case *pb.SnapshotRecord_Request:
		r := x.Request
		e, err := decodeEffect(r.Effect)
		if err != nil {
			return "", nil, err
		}
		return Requests, &RequestRow{
			Key: r.Key, Index: r.Index, Subject: r.Subject, Time: r.Time, Refusal: problem.Code(r.Refusal), Effect: e,
		}, nil
	case *pb.SnapshotRecord_Part:
		return Parts, &PartRow{ID: x.Part.Id, Number: x.Part.Number, Data: x.Part.Data}, nil
	case *pb.SnapshotRecord_Value:
		return Values, &ValueRow{Node: x.Value.Node, Key: x.Value.Key, Value: x.Value.Value}, nil
	case *pb.SnapshotRecord_Meta:
		m := x.Meta
		r := &MetaRow{ID: TheMeta, FeatureLevel: m.FeatureLevel, Mesh: m.Mesh, LastCluster: int(m.LastCluster),
			Orphans: model.OrphanSearch{At: m.OrphansMs}, Differing: m.Differing}
		for _, f := range m.Orphans {
			r.Orphans.Found = append(r.Orphans.Found, model.FoundOrphan{Tenant: f.Tenant, ProviderType: f.ProviderType, ID: f.Id, Since: f.SinceMs})
		}
		if i := m.Identity; i != nil {
			r.Identity = &MeshIdentity{Mesh: i.Mesh, CAs: i.Cas, SealedCA: i.SealedCa, SealedGossip: i.SealedGossip, RootHash: i.RootHash}
			for _, b := range i.Bridges {
				r.Identity.Bridges = append(r.Identity.Bridges, Bridge{Certificate: b.Certificate, Old: b.Old, Until: b.Until})
			}
		}
		if h := m.Hold; h != nil {
			r.Hold = &roster.Hold{File: h.File, Since: h.SinceMs, Actor: h.Actor}
		}
		if e := m.Export; e != nil {
			r.Export = &roster.KeyringExport{Number: e.Number, Print: e.Print, At: e.TimeMs}
		}
		return Meta, r, nil
	case *pb.SnapshotRecord_History:
		table = History
		row, err = history.snapshot(x.History)
	case *pb.SnapshotRecord_Health:
		table = Health
		row, err = logformat.DecodeNodeHealth(x.Health)
	case *pb.SnapshotRecord_Queue:
		req, err := logformat.DecodeOperationRequest(x.Queue.Request)
		if err != nil {
			return "", nil, err
		}
		return Queue, &QueueRow{Operation: x.Queue.Operation, Request: req}, nil
	case *pb.SnapshotRecord_Site:
		table = Sites
		row, err = logformat.DecodeSite(x.Site)
	case *pb.SnapshotRecord_Generation:
		table = Generations
		row, err = logformat.DecodeGeneration(x.Generation)
	case *pb.SnapshotRecord_Resource:
		table = Resources
		row, err = logformat.DecodePluginResource(x.Resource)
	case *pb.SnapshotRecord_ResourceSet:
		table = ResourceSets
		row, err = logformat.DecodeResourceSet(x.ResourceSet)
	case *pb.SnapshotRecord_SigningKey:
		k := x.SigningKey
		return SigningKeys, &SigningKeyRow{
			PublicKey: signing.PublicKey{Number: k.Number, Key: k.Public, Signature: k.Signature}, Created: k.CreatedMs,
		}, nil
	case *pb.SnapshotRecord_TaskKey:
		k := x.TaskKey
		return TaskKeys, &TaskKeyRow{
			TaskKey: signing.TaskKey{Number: k.Number, Public: k.Public, Signs: k.SignsMs}, Created: k.CreatedMs,
		}, nil
	case *pb.SnapshotRecord_DataKey:
		k := x.DataKey
		return DataKeys, &DataKeyRow{Tenant: k.Tenant, Number: k.Number, MeshKey: k.MeshKey, MeshPrint: k.MeshPrint, Wrapped: k.Wrapped}, nil
	case *pb.SnapshotRecord_Sealed:
		v := x.Sealed.Value
		return Sealed, &SealedRow{
			Tenant: x.Sealed.Tenant, ID: v.GetId(), Version: v.GetVersion(), Sealed: v.GetSealed(), Created: x.Sealed.CreatedMs,
		}, nil
	default:
		return decodeRunRow(rec)
	}
	return table, row, err
}

// decodeRunRow is decodeRow for the tables of profiles and runs.
func decodeRunRow(rec *pb.SnapshotRecord) (table string, row any, err error) {
	switch x := rec.Row.(type) {
	case *pb.SnapshotRecord_Profile:
		p, err := logformat.DecodeProfile(x.Profile.Profile)
		if err != nil {
			return "", nil, err
		}
		return Profiles, &ProfileRow{Tenant: x.Profile.Tenant, Profile: *p}, nil
	case *pb.SnapshotRecord_Program:
		p, err := logformat.DecodeProgram(x.Program.Program)
		if err != nil {
			return "", nil, err
		}
		return Programs, &ProgramRow{Tenant: x.Program.Tenant, Program: *p}, nil
	case *pb.SnapshotRecord_Schedule:
		table = Schedules
		row, err = logformat.DecodeSchedule(x.Schedule)
	case *pb.SnapshotRecord_Preferences:
		table = Preferences
		row, err = logformat.DecodePreferences(x.Preferences)
	case *pb.SnapshotRecord_Secret:
		s := x.Secret
		return Secrets, &SecretRow{
			Tenant: s.Tenant, Name: s.Name, Value: s.Value, UsableBy: s.UsableBy, ID: s.SealedId, Version: s.SealedVersion,
		}, nil
	case *pb.SnapshotRecord_Run:
		table = Runs
		row, err = logformat.DecodeRun(x.Run)
	case *pb.SnapshotRecord_Usage:
		u, err := logformat.DecodeUsage(x.Usage.Usage)
		if err != nil {
			return "", nil, err
		}
		return Usages, &UsageRow{Tenant: x.Usage.Tenant, Kind: logformat.SettingKinds.Word(x.Usage.Kind), Name: x.Usage.Name, Usage: *u}, nil
	default:
		return "", nil, errors.New("a record belongs to a table that this build does not know")
	}
	return table, row, err
}

func encodePlan(p *PlanRow) (*pb.PlanRow, error) {
	m := &pb.PlanRow{Operation: p.Operation, Graph: p.State.Graph.Encode()}
	m.State = p.State.Encode()
	if p.Tree != nil {
		var err error
		if m.Tree, err = logformat.EncodePlanTree(p.Tree); err != nil {
			return nil, err
		}
	}
	if p.Audit != nil {
		m.Audit = p.Audit.ID
	}
	return m, nil
}

func decodePlan(m *pb.PlanRow) (*PlanRow, error) {
	g, err := plan.DecodeGraph(m.Graph)
	if err != nil {
		return nil, err
	}
	row := &PlanRow{Operation: m.Operation, Audit: unlinked(m.Audit)}
	if m.Tree != nil {
		if row.Tree, err = PlanTree(g, m.Tree); err != nil {
			return nil, err
		}
	}
	row.State, err = plan.DecodeState(g, m.State)
	return row, err
}

// historyWriter writes snapshots of clusters. Snapshots share the records of nodes that did not
// change between them, so each record (model.Node) is written once, and the snapshots' rows refer
// to it. In a restored state, several equal records may take the place of a shared one. These are
// written once too, so that equal states give equal bytes.
type historyWriter struct {
	written map[*model.Node]uint32
	bodies  map[[sha256.Size]byte]uint32
	node    func(*record.Node)
}

func (w *historyWriter) encode(s *model.Snapshot) (*pb.HistoryRow, error) {
	if w.written == nil {
		w.written, w.bodies = map[*model.Node]uint32{}, map[[sha256.Size]byte]uint32{}
	}
	state, err := logformat.EncodeCluster(s.State)
	if err != nil {
		return nil, err
	}
	row := &pb.HistoryRow{
		Tenant: s.Tenant, Cluster: s.Cluster, Number: int64(s.Number), Time: s.Time, Operation: s.Operation, Moment: s.Moment,
		State: state, Nodes: make([]uint32, len(s.Nodes)),
	}
	for i, n := range s.Nodes {
		at, ok := w.written[n]
		if !ok {
			if at, err = w.place(n); err != nil {
				return nil, err
			}
			w.written[n] = at
		}
		row.Nodes[i] = at
	}
	return row, nil
}

// place returns the position of a node among the written nodes. It writes the node first, unless an
// equal node is there already.
func (w *historyWriter) place(n *model.Node) (uint32, error) {
	m, err := logformat.EncodeNode(n)
	if err != nil {
		return 0, err
	}
	body, err := logformat.Marshal(m)
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256(body)
	at, ok := w.bodies[sum]
	if !ok {
		w.node(m)
		at = uint32(len(w.bodies))
		w.bodies[sum] = at
	}
	return at, nil
}

// historyReader holds the nodes that were read so far. Later history rows refer to them by
// position.
type historyReader []*model.Node

func (r *historyReader) node(m *record.Node) error {
	n, err := logformat.DecodeNode(m)
	*r = append(*r, n)
	return err
}

func (r *historyReader) snapshot(m *pb.HistoryRow) (*model.Snapshot, error) {
	cl, err := logformat.DecodeCluster(m.State)
	if err != nil {
		return nil, err
	}
	s := &model.Snapshot{
		Tenant: m.Tenant, Cluster: m.Cluster, Number: int(m.Number), Time: m.Time, Operation: m.Operation, Moment: m.Moment,
		State: cl, Nodes: make([]*model.Node, len(m.Nodes)),
	}
	for i, at := range m.Nodes {
		if int(at) >= len(*r) {
			return nil, fmt.Errorf("snapshot %d of cluster %s refers to a node that is missing", s.Number, s.Cluster)
		}
		s.Nodes[i] = (*r)[at]
	}
	return s, nil
}

// PlanTree decodes the phases of a plan. It fails if they do not fit the plan's graph.
func PlanTree(g *plan.Graph, m *record.PlanTree) (*tree.Tree, error) {
	t, err := logformat.DecodePlanTree(m)
	if err != nil {
		return nil, err
	}
	return t, t.Fits(g)
}

// RequestKey returns the key of the row that remembers a caller's request id.
func RequestKey(tenant, actor, request string) string {
	return tenant + "\x00" + actor + "\x00" + request
}

// These are the kinds of rows in Usages.
const (
	UsedByProfile = "profile"
	UsedByProgram = "program"
)
