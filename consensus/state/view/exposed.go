package view

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
)

// Exposed names something of a tenant that has a secret in it. Kind is as in the API's paths: secrets, a kind of definitions, resources,
// sites, clusters, or users.
type Exposed struct{ Tenant, Kind, Name string }

// Exposed returns what has secrets that whoever has the keys of the mesh can decrypt, by tenant and kind. A cluster is among it only for
// values that its tenant's secrets, definitions and sites do not have, such as a password that a plugin returned. A
// user is among it for a refresh token, with which the user's identity provider is asked.
func (v SealedView) Exposed() (out []Exposed) {
	known := map[SealedKey]bool{}
	for _, r := range table.List[table.SecretRow](v.txn, table.Secrets, "id") {
		known[SealedKey{r.Tenant, model.SealedRef{ID: r.ID, Version: r.Version}}] = true
		out = append(out, Exposed{r.Tenant, "secrets", r.Name})
	}
	document := func(x Exposed, body []byte) {
		refs := model.SealedRefs(body)
		for _, r := range refs {
			known[SealedKey{x.Tenant, r}] = true
		}
		if len(refs) > 0 {
			out = append(out, x)
		}
	}
	for _, r := range table.List[table.DefinitionRow](v.txn, table.Definitions, "id") {
		document(Exposed{r.Tenant, string(r.Kind), r.Name}, r.Body)
	}
	for _, g := range table.List[site.Generation](v.txn, table.Generations, "id") {
		document(Exposed{g.Tenant, "sites", g.Site}, g.Document)
	}
	for _, r := range table.List[model.PluginResource](v.txn, table.Resources, "id") {
		if slices.ContainsFunc(r.Versions, func(x model.ResourceVersion) bool { return x.Secret }) {
			out = append(out, Exposed{r.Tenant, "resources", r.ResourceKey.String()})
		}
	}
	for _, c := range table.List[model.Cluster](v.txn, table.Clusters, "id") {
		refs := c.SealedRefs()
		for _, n := range table.List[model.Node](v.txn, table.Nodes, "cluster", c.Tenant, c.ID) {
			results, _ := json.Marshal(n.Results) // what was read from the state can be written
			refs = append(refs, model.SealedRefs(results)...)
			for _, r := range table.List[table.ValueRow](v.txn, table.Values, "id_prefix", n.ID) {
				refs = append(refs, model.SealedRefs(r.Value)...)
			}
		}
		if slices.ContainsFunc(refs, func(r model.SealedRef) bool { return !known[SealedKey{c.Tenant, r}] }) {
			out = append(out, Exposed{c.Tenant, "clusters", c.Name})
		}
	}
	for _, u := range table.List[table.UserRow](v.txn, table.Users, "id") {
		if _, ok := v.LatestSealed("", table.LoginID(u.Tenant, u.Name)); ok {
			out = append(out, Exposed{u.Tenant, "users", u.Name})
		}
	}
	slices.SortFunc(out, func(a, b Exposed) int {
		if n := strings.Compare(a.Tenant, b.Tenant); n != 0 {
			return n
		}
		if n := strings.Compare(a.Kind, b.Kind); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	return slices.Compact(out) // a definition has versions, a site generations
}
