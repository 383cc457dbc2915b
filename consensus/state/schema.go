package state

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/plan/tree"
)

// The tables. Every key that belongs to a tenant begins with it.
const (
	tTenants     = "tenants"
	tTokens      = "tokens"
	tDefinitions = "definitions"
	tPluginTypes = "plugintypes"
	tAgents      = "agents"
	tSessions    = "sessions"
	tClusters    = "clusters"
	tNodes       = "nodes"
	tOperations  = "operations"
	tPlans       = "plans"
	tRequests    = "requests"
	tParts       = "parts"
	tValues      = "values"
	tMeta        = "meta"
	tAudit       = "audit"
	tHistory     = "history"
	tHealth      = "health"
	tQueue       = "queue"
)

// Rows are never changed once inserted: a writer inserts a changed copy.

type tokenRow struct {
	model.Token
	Hash string // SHA-256 of the token, in hexadecimal
}

type definitionRow struct {
	Tenant string
	model.StoredDefinition
}

type pluginRow struct {
	Key  string // "provider/local"
	Type model.PluginType
}

type sessionRow struct {
	ID    string
	Agent string
	Epoch uint64
}

type planRow struct {
	Operation string
	State     *plan.State
	// Tree names the phases of the graph's steps; it never changes.
	Tree *tree.Tree
	// Audit names the plan's tasks in the audit log.
	Audit *audit.Plan
}

// requestRow remembers a request id, so that the same is done once.
type requestRow struct {
	Key     string // tenant, actor and request id
	Index   uint64
	Subject string // id of what the request made
	Time    int64
}

type partRow struct {
	ID     string
	Number uint32
	Data   []byte
}

// queueRow is what a queued operation was asked for with.
type queueRow struct {
	Operation string
	Request   *operation.Request
}

// valueRow is a value that a plugin keeps about a node.
type valueRow struct {
	Node  string
	Key   string
	Value []byte
}

// theMeta is the key of the only row of tMeta.
const theMeta = "meta"

type metaRow struct {
	ID           string // "meta"
	FeatureLevel uint32
	// Mesh is the mesh's own name.
	Mesh string
}

// key indexes rows by some of their parts, each behind its length so that one
// key is never the beginning of another by accident.
type key[T any] struct {
	parts func(*T) []string
	last  func(*T) (uint32, bool) // a number behind the parts, or none
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
		default:
			return nil, fmt.Errorf("state: a key part is a %T", a)
		}
	}
	return b, nil
}

func (k key[T]) PrefixFromArgs(args ...any) ([]byte, error) { return k.FromArgs(args...) }

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

func schema() *memdb.DBSchema {
	versions := index("id", true, func(r *definitionRow) []string { return []string{r.Tenant, string(r.Kind), r.Name} })
	versions.Indexer = key[definitionRow]{
		parts: func(r *definitionRow) []string { return []string{r.Tenant, string(r.Kind), r.Name} },
		last:  func(r *definitionRow) (uint32, bool) { return uint32(r.Version), true },
	}
	parts := index("id", true, func(r *partRow) []string { return []string{r.ID} })
	parts.Indexer = key[partRow]{
		parts: func(r *partRow) []string { return []string{r.ID} },
		last:  func(r *partRow) (uint32, bool) { return r.Number, true },
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
		table(tTenants, index("id", true, func(t *model.Tenant) []string { return []string{t.Name} })),
		table(tTokens,
			index("id", true, func(t *tokenRow) []string { return []string{t.ID} }),
			index("hash", true, func(t *tokenRow) []string { return []string{t.Hash} })),
		table(tDefinitions, versions),
		table(tPluginTypes, index("id", true, func(p *pluginRow) []string { return []string{p.Key} })),
		table(tAgents, index("id", true, func(a *model.Agent) []string { return []string{a.ID} })),
		table(tSessions, index("id", true, func(s *sessionRow) []string { return []string{s.ID} })),
		table(tClusters,
			index("id", true, func(c *model.Cluster) []string { return []string{c.Tenant, c.ID} }),
			index("name", false, func(c *model.Cluster) []string { return []string{c.Tenant, c.Name} })),
		table(tNodes,
			index("id", true, func(n *model.Node) []string { return []string{n.Tenant, n.ID} }),
			index("cluster", false, func(n *model.Node) []string { return []string{n.Tenant, n.Cluster} })),
		table(tOperations,
			index("id", true, func(o *model.Operation) []string { return []string{o.ID} }),
			index("cluster", false, func(o *model.Operation) []string { return []string{o.Tenant, o.Cluster} }),
			index("active", false, active)),
		table(tPlans, index("id", true, func(p *planRow) []string { return []string{p.Operation} })),
		table(tRequests, index("id", true, func(r *requestRow) []string { return []string{r.Key} })),
		table(tParts, parts),
		table(tValues, index("id", true, func(v *valueRow) []string { return []string{v.Node, v.Key} })),
		table(tHistory, numbers),
		table(tQueue, index("id", true, func(q *queueRow) []string { return []string{q.Operation} })),
		table(tHealth,
			index("id", true, func(h *model.NodeHealth) []string { return []string{h.Tenant, h.Node} }),
			index("cluster", false, func(h *model.NodeHealth) []string { return []string{h.Tenant, h.Cluster} })),
		table(tAudit, index("id", true, func(r *auditRow) []string { return []string{r.ID} })),
		table(tMeta, index("id", true, func(m *metaRow) []string { return []string{m.ID} })),
	} {
		s.Tables[t.Name] = t
	}
	for _, t := range slices.Concat(siteTables(), runTables(), resourceTables()) {
		s.Tables[t.Name] = t
	}
	return s
}

// get reads one row, or nil.
func get[T any](txn *memdb.Txn, table, index string, args ...any) *T {
	raw, err := txn.First(table, index, args...)
	if err != nil || raw == nil {
		return nil // the schema is ours: an error here would be a wrong index name, which tests see
	}
	return raw.(*T)
}

// each walks rows in the order of their keys until fn says false.
func each[T any](txn *memdb.Txn, table, index string, fn func(*T) bool, args ...any) {
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

// list gives all rows of a walk.
func list[T any](txn *memdb.Txn, table, index string, args ...any) []*T {
	var out []*T
	each(txn, table, index, func(r *T) bool { out = append(out, r); return true }, args...)
	return out
}
