package table

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/effect"
	"github.com/coopr/coopr/engine/lease"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/engine/roster"
)

// The tables. Every key that belongs to a tenant begins with it.
const (
	Tenants     = "tenants"
	Tokens      = "tokens"
	Users       = "users"
	Grants      = "grants"
	Definitions = "definitions"
	PluginTypes = "plugintypes"
	Agents      = "agents"
	Sessions    = "sessions"
	Hellos      = "hellos"
	Clusters    = "clusters"
	Nodes       = "nodes"
	Operations  = "operations"
	Plans       = "plans"
	Requests    = "requests"
	Parts       = "parts"
	Values      = "values"
	Meta        = "meta"
	Audit       = "audit"
	Sinks       = "sinks"
	History     = "history"
	Health      = "health"
	Queue       = "queue"
	Retired     = "retired"
	JoinTokens  = "jointokens"
	Identities  = "identities"
)

// TokenRow is an API token.
type TokenRow struct {
	model.Token
	Hash string // SHA-256 of the token, in hexadecimal
}

// UserRow is a user.
type UserRow struct {
	model.User
	Password string // its argon2id hash, or "" without a password
}

// DefinitionRow is one version of a definition.
type DefinitionRow struct {
	Tenant string
	model.StoredDefinition
}

// RetiredRow has the number of a deleted version of a definition or a program, if it was the latest. The
// number is not used again.
type RetiredRow struct {
	Tenant, Kind, Name string
	Version            int
}

// KindProgram is the kind of programs in Retired.
const KindProgram = "programs"

// PluginRow is a plugin type that an agent offers.
type PluginRow struct {
	Key  string // "provider/local"
	Type model.PluginType
}

// SessionRow is the open session of an agent.
type SessionRow struct {
	ID    string
	Agent string
	Epoch uint64
}

// HelloRow is the newest hello of an agent, also of one that was removed.
type HelloRow struct {
	Agent string
	Last  lease.Hello
	// Removed is when the agent was removed, in Unix milliseconds, or 0.
	Removed int64
}

// PlanRow is the plan of an operation.
type PlanRow struct {
	Operation string
	State     *plan.State
	// Tree names the phases of the graph's steps; it never changes.
	Tree *tree.Tree
	// Audit names the plan's tasks in the audit log.
	Audit *audit.Plan
}

// RequestRow remembers that a request was carried out, or refused, so that a repetition changes nothing.
type RequestRow struct {
	Key     string // tenant, actor and request id
	Index   uint64
	Subject string // the id of the object that the request made
	Time    int64
	// Refusal is the code with which the request was refused, or "" if it was carried out.
	Refusal problem.Code
	// Effect is what the request wrote, or nil if that is not kept.
	Effect *effect.Rows
}

// Tenant returns the tenant of the request's caller.
func (r *RequestRow) Tenant() string {
	tenant, _, _ := strings.Cut(r.Key, "\x00")
	return tenant
}

// PartRow is a piece of a command that is not complete yet.
type PartRow struct {
	ID     string
	Number uint32
	Data   []byte
}

// QueueRow is the request of an operation that waits for its turn.
type QueueRow struct {
	Operation string
	Request   *operation.Request
}

// ValueRow is a value that a plugin stored about a node.
type ValueRow struct {
	Node  string
	Key   string
	Value []byte
}

// TheMeta is the key of the only row of Meta.
const TheMeta = "meta"

// MetaRow holds the values of the mesh as a whole.
type MetaRow struct {
	ID           string // "meta"
	FeatureLevel uint32
	// Mesh is the mesh's own name.
	Mesh string
	// LastCluster is the highest number of a cluster whose row was removed.
	LastCluster int
	// Orphans is the latest search for machines that belong to no node.
	Orphans model.OrphanSearch
	// Hold is nil unless the mesh was restored and begins no work until a person resumes it. It is never changed in place.
	Hold *roster.Hold
	// Export is the latest export of the keyring, or nil. It is never changed in place.
	Export *roster.KeyringExport
	// Differing are the ids of the agents whose copies of the state are not that of a majority, sorted. It is never changed in place.
	Differing []string
	// Identity is nil if the agents share a secret, or need none in dev mode. It is never changed in place.
	Identity *MeshIdentity
}

// MeshIdentity is how the agents of a mesh and its root token are known.
type MeshIdentity struct {
	// Mesh is the mesh's id, as certificates name it.
	Mesh string
	// CAs are the certificates of the CAs in DER; the first one issues.
	CAs [][]byte
	// Bridges lead from CAs that are not trusted any more to the first one of CAs, the earliest first.
	Bridges []Bridge
	// SealedCA is the key of the first CA, followed by that of the next one while it is replaced, and SealedGossip has the keys of gossip.
	// The keyring has sealed both.
	SealedCA, SealedGossip []byte
	RootHash               []byte // SHA-256 of the root token
}

// Bridge leads from a CA that is not trusted any more to the one that has replaced it.
type Bridge struct {
	Certificate []byte // of the later CA, signed by the earlier one, in DER
	Old         []byte // the certificate of the earlier one, in DER
	Until       int64  // in Unix milliseconds
}

// key indexes rows by a list of parts. Each part follows its length, so that one key is a prefix of
// another only if its list of parts is.
type key[T any] struct {
	parts func(*T) []string
	last  func(*T) (uint32, bool) // an optional number after the parts
}

func (k key[T]) FromObject(raw any) (bool, []byte, error) {
	row, ok := raw.(*T)
	if !ok {
		return false, nil, fmt.Errorf("state: a row is a %T", raw)
	}
	parts := k.parts(row)
	if parts == nil {
		return false, nil, nil
	}
	b := encodeKey(parts)
	if k.last != nil {
		if n, ok := k.last(row); ok {
			b = binary.BigEndian.AppendUint32(b, n)
		}
	}
	return true, b, nil
}

func (k key[T]) FromArgs(args ...any) ([]byte, error) {
	var b []byte
	for _, a := range args {
		switch v := a.(type) {
		case string:
			b = append(b, encodeKey([]string{v})...)
		case uint32:
			b = binary.BigEndian.AppendUint32(b, v)
		case rawKey:
			b = append(b, v...)
		default:
			return nil, fmt.Errorf("state: a key part is a %T", a)
		}
	}
	return b, nil
}

func (k key[T]) PrefixFromArgs(args ...any) ([]byte, error) { return k.FromArgs(args...) }

// rawKey is a whole key, or the beginning of one.
type rawKey []byte

func encodeKey(parts []string) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
		b = append(b, p...)
	}
	return b
}

func index[T any](name string, unique bool, parts func(*T) []string) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, Unique: unique, AllowMissing: true, Indexer: key[T]{parts: parts}}
}

// table returns a table with these indexes. Every row has a key in the index "id".
func table(name string, indexes ...*memdb.IndexSchema) *memdb.TableSchema {
	t := &memdb.TableSchema{Name: name, Indexes: map[string]*memdb.IndexSchema{}}
	for _, i := range indexes {
		if i.Name == "id" {
			i.AllowMissing = false
		}
		t.Indexes[i.Name] = i
	}
	return t
}

// Schema returns the tables and their indexes.
func Schema() *memdb.DBSchema {
	versions := index("id", true, func(r *DefinitionRow) []string { return []string{r.Tenant, string(r.Kind), r.Name} })
	versions.Indexer = key[DefinitionRow]{
		parts: func(r *DefinitionRow) []string { return []string{r.Tenant, string(r.Kind), r.Name} },
		last:  func(r *DefinitionRow) (uint32, bool) { return uint32(r.Version), true },
	}
	parts := index("id", true, func(r *PartRow) []string { return []string{r.ID} })
	parts.Indexer = key[PartRow]{
		parts: func(r *PartRow) []string { return []string{r.ID} },
		last:  func(r *PartRow) (uint32, bool) { return r.Number, true },
	}
	numbers := index("id", true, func(s *model.Snapshot) []string { return []string{s.Tenant, s.Cluster} })
	numbers.Indexer = key[model.Snapshot]{
		parts: func(s *model.Snapshot) []string { return []string{s.Tenant, s.Cluster} },
		last:  func(s *model.Snapshot) (uint32, bool) { return uint32(s.Number), true },
	}
	active := func(o *model.Operation) []string {
		if o.Status.Ended() {
			return nil
		}
		return []string{"active"}
	}
	s := &memdb.DBSchema{Tables: map[string]*memdb.TableSchema{}}
	for _, t := range []*memdb.TableSchema{
		table(Tenants, index("id", true, func(t *model.Tenant) []string { return []string{t.Name} })),
		table(Tokens,
			index("id", true, func(t *TokenRow) []string { return []string{t.ID} }),
			index("hash", true, func(t *TokenRow) []string { return []string{t.Hash} }),
			index("parent", false, func(t *TokenRow) []string {
				if t.Parent == "" {
					return nil
				}
				return []string{t.Parent}
			}),
			index("actor", false, func(t *TokenRow) []string { return []string{t.Tenant, t.Actor} })),
		table(JoinTokens, index("id", true, func(t *roster.JoinToken) []string { return []string{t.ID} })),
		table(Identities, index("id", true, func(a *roster.Identity) []string { return []string{a.Agent} })),
		table(Grants, index("id", true, func(g *model.Grant) []string { return []string{g.Tenant, g.ID} })),
		table(Users, index("id", true, func(u *UserRow) []string { return []string{u.Tenant, u.Name} })),
		table(Definitions, versions),
		table(Retired, index("id", true, func(r *RetiredRow) []string { return []string{r.Tenant, r.Kind, r.Name} })),
		table(PluginTypes, index("id", true, func(p *PluginRow) []string { return []string{p.Key} })),
		table(Agents, index("id", true, func(a *model.Agent) []string { return []string{a.ID} })),
		table(Sessions, index("id", true, func(s *SessionRow) []string { return []string{s.ID} })),
		table(Hellos, index("id", true, func(h *HelloRow) []string { return []string{h.Agent} })),
		table(Clusters,
			index("id", true, func(c *model.Cluster) []string { return []string{c.Tenant, c.ID} }),
			index("name", false, func(c *model.Cluster) []string { return []string{c.Tenant, c.Name} })),
		table(Nodes,
			index("id", true, func(n *model.Node) []string { return []string{n.Tenant, n.ID} }),
			index("cluster", false, func(n *model.Node) []string { return []string{n.Tenant, n.Cluster} })),
		table(Operations,
			index("id", true, func(o *model.Operation) []string { return []string{o.ID} }),
			index("cluster", false, func(o *model.Operation) []string { return []string{o.Tenant, o.Cluster} }),
			index("active", false, active)),
		table(Plans, index("id", true, func(p *PlanRow) []string { return []string{p.Operation} })),
		table(Requests,
			index("id", true, func(r *RequestRow) []string { return []string{r.Key} }),
			index("time", false, func(r *RequestRow) []string {
				return []string{string(binary.BigEndian.AppendUint64(nil, uint64(r.Time)))}
			}),
			index("tenant", false, func(r *RequestRow) []string {
				return []string{r.Tenant(), string(binary.BigEndian.AppendUint64(nil, uint64(r.Time)))}
			})),
		table(Parts, parts),
		table(Values, index("id", true, func(v *ValueRow) []string { return []string{v.Node, v.Key} })),
		table(History, numbers),
		table(Queue, index("id", true, func(q *QueueRow) []string { return []string{q.Operation} })),
		table(Health,
			index("id", true, func(h *model.NodeHealth) []string { return []string{h.Tenant, h.Node} }),
			index("cluster", false, func(h *model.NodeHealth) []string { return []string{h.Tenant, h.Cluster} })),
		table(Sinks, index("id", true, func(r *SinkRow) []string { return []string{r.Name} })),
		table(Audit, index("id", true, func(r *AuditRow) []string { return []string{r.ID} })),
		table(Meta, index("id", true, func(m *MetaRow) []string { return []string{m.ID} })),
	} {
		s.Tables[t.Name] = t
	}
	for _, t := range slices.Concat(siteTables(), runTables(), resourceTables(), sealedTables()) {
		s.Tables[t.Name] = t
	}
	return s
}

// schema is for the keys of rows.
var schema = sync.OnceValue(Schema)

// keyOf returns the key of a row in the index "id" of its table.
func keyOf(table string, row any) rawKey {
	_, key, err := schema().Tables[table].Indexes["id"].Indexer.(memdb.SingleIndexer).FromObject(row)
	if err != nil {
		panic(err) // the row is of another table
	}
	return key
}

// nameKey returns the key of a versioned row without the number of the version.
func nameKey(table string, row any) rawKey {
	key := keyOf(table, row)
	return key[:len(key)-4]
}

// Same returns the row of a table that has the key of another row, or nil.
func Same(txn *memdb.Txn, table string, row any) any {
	raw, err := txn.First(table, "id", keyOf(table, row))
	if err != nil {
		panic(err) // every table has this index
	}
	return raw
}

// Versions returns the number of versions of a versioned row's name, at most two.
func Versions(txn *memdb.Txn, table string, row any) (n int) {
	rows, err := txn.Get(table, "id_prefix", nameKey(table, row))
	if err != nil {
		panic(err) // every table has this index
	}
	for n < 2 && rows.Next() != nil {
		n++
	}
	return n
}

// Get returns the first row with a key, or nil.
func Get[T any](txn *memdb.Txn, table, index string, args ...any) *T {
	raw, err := txn.First(table, index, args...)
	if err != nil || raw == nil {
		return nil // an error is a wrong table or index name, which tests reveal
	}
	return raw.(*T)
}

// Each calls fn for rows in the order of their keys, until fn returns false.
func Each[T any](txn *memdb.Txn, table, index string, fn func(*T) bool, args ...any) {
	it, err := txn.Get(table, index, args...)
	if err != nil {
		return
	}
	for raw := it.Next(); raw != nil; raw = it.Next() {
		if !fn(raw.(*T)) {
			return
		}
	}
}

// Edition returns a value that is another once the rows that Each visits have changed. Values of different transactions can
// be compared.
func Edition(txn *memdb.Txn, table, index string, args ...any) any {
	ch, _, err := txn.FirstWatch(table, index, args...)
	if err != nil {
		panic(err) // there is no such index
	}
	return ch
}

// List returns the rows that Each visits.
func List[T any](txn *memdb.Txn, table, index string, args ...any) []*T {
	var out []*T
	Each(txn, table, index, func(r *T) bool { out = append(out, r); return true }, args...)
	return out
}

// The tables of sites (docs/spec/changes.md): their records, and their documents.
const (
	Sites       = "sites"
	Generations = "generations"
)

// siteTables returns the tables of sites.
func siteTables() []*memdb.TableSchema {
	generations := index("id", true, func(g *site.Generation) []string { return []string{g.Tenant, g.Site} })
	generations.Indexer = key[site.Generation]{
		parts: func(g *site.Generation) []string { return []string{g.Tenant, g.Site} },
		last:  func(g *site.Generation) (uint32, bool) { return uint32(g.Number), true },
	}
	return []*memdb.TableSchema{
		table(Sites, index("id", true, func(r *site.Record) []string { return []string{r.Tenant, r.Name} })),
		table(Generations, generations),
	}
}

// The tables of profiles and runs (docs/spec/profiles.md). Tenant "" is the mesh itself.
const (
	Profiles    = "profiles"
	Programs    = "programs"
	Schedules   = "schedules"
	Preferences = "preferences"
	Secrets     = "secrets"
	Runs        = "runs"
	Usages      = "usage"
)

// ProfileRow is a profile of a tenant or of the mesh.
type ProfileRow struct {
	Tenant string
	profile.Profile
}

// ProgramRow is one version of a program.
type ProgramRow struct {
	Tenant string
	profile.Program
}

// SecretRow is a value that properties refer to. The API never returns it. UsableBy are the users whose
// documents may refer to it, besides administrators.
type SecretRow struct {
	Tenant, Name string
	// Value is the value in the clear, from before values were encrypted.
	Value    string
	UsableBy []string `json:",omitempty"`
	// ID and Version name the encrypted value in Sealed. ID is "" for a value in the clear.
	ID      string `json:"-"`
	Version uint32 `json:",omitempty"`
}

// UsageRow adds up the usage of runs whose records were removed, by profile or by program.
type UsageRow struct {
	Tenant, Kind, Name string
	profile.Usage
}

// runTables returns the tables of profiles and runs.
func runTables() []*memdb.TableSchema {
	versions := index("id", true, func(r *ProgramRow) []string { return []string{r.Tenant, r.Name} })
	versions.Indexer = key[ProgramRow]{
		parts: func(r *ProgramRow) []string { return []string{r.Tenant, r.Name} },
		last:  func(r *ProgramRow) (uint32, bool) { return uint32(r.Version), true },
	}
	assigned := func(tenant string, properties map[string]string) []string {
		if owner, name, ok := profile.Assigned(tenant, properties); ok {
			return []string{owner, name}
		}
		return nil
	}
	return []*memdb.TableSchema{
		table(Profiles, index("id", true, func(r *ProfileRow) []string { return []string{r.Tenant, r.Name} })),
		table(Programs, versions),
		table(Schedules,
			index("id", true, func(r *profile.Schedule) []string { return []string{r.Tenant, r.Name} }),
			index("profile", false, func(r *profile.Schedule) []string { return assigned(r.Tenant, r.Properties) }),
			index("program", false, func(r *profile.Schedule) []string { return []string{r.Tenant, r.Program} })),
		table(Preferences,
			index("id", true, func(p *profile.Settings) []string { return []string{p.Tenant, p.Program} }),
			index("profile", false, func(p *profile.Settings) []string { return assigned(p.Tenant, p.Properties) })),
		table(Secrets, index("id", true, func(r *SecretRow) []string { return []string{r.Tenant, r.Name} })),
		table(Runs,
			index("id", true, func(r *profile.Run) []string { return []string{r.Tenant, r.ID} }),
			index("live", false, func(r *profile.Run) []string {
				if r.Over() {
					return nil
				}
				return []string{"live"}
			}),
			index("cluster", false, func(r *profile.Run) []string {
				if r.Cluster.ID == "" {
					return nil
				}
				return []string{r.Cluster.ID}
			}),
			index("profile", false, func(r *profile.Run) []string { return RunProfile(r) }),
			index("up", false, func(r *profile.Run) []string {
				if !r.Up() {
					return nil
				}
				return RunProfile(r)
			}),
			index("tenantup", false, func(r *profile.Run) []string {
				if !r.Up() {
					return nil
				}
				return []string{r.Tenant}
			}),
			index("schedule", false, func(r *profile.Run) []string {
				if r.Schedule == "" || !r.Active() {
					return nil
				}
				return []string{r.Tenant, r.Schedule}
			})),
		table(Usages, index("id", true, func(u *UsageRow) []string { return []string{u.Tenant, u.Kind, u.Name} })),
	}
}

// RunProfile returns the key of a run's profile, or nil if the run has no valid profile.
func RunProfile(r *profile.Run) []string {
	ref, err := profile.ParseRef(r.Profile)
	if err != nil {
		return nil
	}
	return []string{ref.Tenant(r.Tenant), ref.Name}
}

// The tables of plugin resources: the resources of tenants, and the sets of versions
// that operations were planned with.
const (
	Resources    = "resources"
	ResourceSets = "resourcesets"
)

func resourceTables() []*memdb.TableSchema {
	return []*memdb.TableSchema{
		table(Resources, index("id", true, func(r *model.PluginResource) []string {
			return []string{r.Tenant, string(r.Kind), r.Plugin, r.Type, r.Name}
		})),
		table(ResourceSets, index("id", true, func(s *model.ResourceSet) []string { return []string{s.Tenant, SetID(s.Number)} })),
	}
}

// SetID returns a set's number as part of a key. Keys sort as the numbers do.
func SetID(number uint64) string { return fmt.Sprintf("%020d", number) }

// ResourceArgs returns the parts of the key of a resource.
func ResourceArgs(tenant string, k model.ResourceKey) []any {
	return []any{tenant, string(k.Kind), k.Plugin, k.Type, k.Name}
}

// SinkRow is how far a sink of the audit log has come.
type SinkRow struct {
	Name   string
	Number uint64 // of the last record that it has taken
	Moved  int64  // when that was recorded
}

// AuditRow is the only row of the table Audit.
type AuditRow struct {
	ID    string // "audit"
	Trail *audit.Trail
}
