package table

import (
	"encoding/json"

	"github.com/hashicorp/go-memdb"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// Counts are how much a tenant has of what its limits are about: by the name of a limit, and for definitions by kind. They
// follow from the rows, so that no snapshot has them.
type Counts map[string]int64

// The kinds of definitions that have tables of their own.
const (
	CountProfiles  = "profiles"
	CountSchedules = "schedules"
	CountSites     = "sites"
)

// Weight is what a row adds to the counts of its tenant.
type Weight struct {
	Tenant string
	Key    string // in Counts; "" if only the bytes count
	Number int64
	Bytes  int64 // of definitions
	// Versioned rows of the same name count once.
	Versioned bool
}

// Weigh returns the weight of a row. ok is false if no limit is about such rows.
func Weigh(row any) (w Weight, ok bool) {
	one := func(tenant, key string) Weight { return Weight{Tenant: tenant, Key: key, Number: 1} }
	switch r := row.(type) {
	case *model.Node:
		w = one(r.Tenant, model.LimitNodes.Name)
	case *model.Cluster:
		if w = one(r.Tenant, model.LimitClusters.Name); r.Status == model.ClusterTerminated {
			w.Number = 0
		}
	case *model.Operation:
		if w = one(r.Tenant, model.LimitOperations.Name); r.Status.Ended() {
			w.Number = 0
		}
	case *profile.Run:
		w = one(r.Tenant, model.LimitRuns.Name)
	case *RequestRow:
		w = one(r.Tenant(), model.LimitRequestIDs.Name)
	case *TokenRow:
		if w = one(r.Tenant, model.LimitTokens.Name); r.Session {
			w.Number = 0 // those of one user are bounded
		}
	case *UserRow:
		w = one(r.Tenant, model.LimitUsers.Name)
	case *SecretRow:
		w = one(r.Tenant, model.LimitSecrets.Name)
		w.Bytes = int64(len(r.Value))
	case *SealedRow:
		w = Weight{Tenant: r.Tenant, Bytes: int64(len(r.Sealed))}
	case *DefinitionRow:
		w = one(r.Tenant, string(r.Kind))
		w.Versioned, w.Bytes = true, int64(len(r.Body))
	case *ProgramRow:
		w = one(r.Tenant, KindProgram)
		w.Versioned, w.Bytes = true, sizeOf(logformat.EncodeProgram(&r.Program))
	case *ProfileRow:
		w = one(r.Tenant, CountProfiles)
		w.Bytes = sizeOf(logformat.EncodeProfile(&r.Profile))
	case *profile.Schedule:
		w = one(r.Tenant, CountSchedules)
		w.Bytes = sizeOf(logformat.EncodeSchedule(r))
	case *profile.Settings:
		w = Weight{Tenant: r.Tenant, Bytes: sizeOf(logformat.EncodePreferences(r))}
	case *site.Record:
		w = one(r.Tenant, CountSites)
	case *site.Generation:
		w = Weight{Tenant: r.Tenant, Bytes: int64(len(r.Document))}
	default:
		return w, false
	}
	return w, true
}

func sizeOf[M proto.Message](m M, err error) int64 {
	if err != nil {
		return 0 // every row can be encoded: snapshots have them
	}
	return int64(proto.Size(m))
}

// Add adds to a count. A count of 0 is removed, so that equal counts are equal maps.
func (c Counts) Add(key string, n int64) {
	if c[key] += n; c[key] == 0 {
		delete(c, key)
	}
}

// Tally counts all rows, by tenant.
func Tally(txn *memdb.Txn) map[string]Counts {
	out := map[string]Counts{}
	of := func(tenant string) Counts {
		c := out[tenant]
		if c == nil {
			c = Counts{}
			out[tenant] = c
		}
		return c
	}
	seen := map[string]bool{} // the names of versioned rows
	for _, name := range []string{Nodes, Clusters, Operations, Runs, Requests, Tokens, Users, Secrets, Definitions, Programs, Profiles,
		Schedules, Preferences, Sites, Generations, Sealed} {
		rows, err := txn.Get(name, "id")
		if err != nil {
			panic(err) // every table has this index
		}
		for raw := rows.Next(); raw != nil; raw = rows.Next() {
			w, ok := Weigh(raw)
			if !ok {
				continue
			}
			of(w.Tenant).Add(model.LimitDefinitionBytes.Name, w.Bytes)
			if w.Versioned {
				key := name + string(nameKey(name, raw))
				if seen[key] {
					continue
				}
				seen[key] = true
			}
			if w.Key != "" {
				of(w.Tenant).Add(w.Key, w.Number)
			}
		}
	}
	for tenant, c := range out {
		if len(c) == 0 {
			delete(out, tenant)
		}
	}
	return out
}

// Policies returns the number of policies in the latest documents of a tenant, but for those with the given names.
func Policies(txn *memdb.Txn, tenant string, except map[string]bool) int64 {
	latest := map[string]*DefinitionRow{}
	Each(txn, Definitions, "id_prefix", func(r *DefinitionRow) bool {
		if !except[r.Name] {
			latest[r.Name] = r // in the order of their versions
		}
		return true
	}, tenant, string(model.KindPolicies))
	n := int64(0)
	for _, r := range latest {
		n += PoliciesIn(r.Body)
	}
	return n
}

// PoliciesIn returns the number of policies in a stored document.
func PoliciesIn(body []byte) int64 {
	var doc model.Policies
	if json.Unmarshal(body, &doc) != nil {
		return 0
	}
	return int64(model.CountPolicies(doc.Text))
}

// ResourceUse returns the number of a tenant's plugin resources, and the bytes of all their versions.
func ResourceUse(txn *memdb.Txn, tenant string) (names, bytes int64) {
	Each(txn, Resources, "id_prefix", func(r *model.PluginResource) bool {
		names++
		for _, v := range r.Versions {
			bytes += v.Size
		}
		return true
	}, tenant)
	return names, bytes
}
