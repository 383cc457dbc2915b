package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// sealed changes data keys and encrypted values. It has no keys: the proposer encrypts, so that all voters
// have the same bytes.
type sealed struct{ *writer }

// owner checks that the tenant of a data key or a value exists. Those of the mesh itself have none.
func (a sealed) owner(tenant string) error {
	if tenant == "" {
		return nil
	}
	return a.tenant(tenant)
}

func (a sealed) putDataKey(p *pb.PutDataKey) Answer {
	if err := a.owner(p.Tenant); err != nil {
		return Answer{Err: err}
	}
	latest := uint32(0)
	if k, ok := a.view().DataKey(p.Tenant); ok {
		latest = k.Number
	}
	if active, ok := a.view().ActiveMeshKey(); ok && active != p.MeshKey {
		return refuse(problem.Stale, "data key %d of tenant %q is encrypted with mesh key %d, and key %d is in use", p.Number, p.Tenant,
			p.MeshKey, active)
	}
	if p.Number != latest+1 {
		return refuse(problem.Stale, "data key %d of tenant %q cannot follow data key %d", p.Number, p.Tenant, latest)
	}
	a.put(table.DataKeys, &table.DataKeyRow{
		Tenant: p.Tenant, Number: p.Number, MeshKey: p.MeshKey, MeshPrint: p.MeshPrint, Wrapped: p.Wrapped,
	})
	return Answer{}
}

func (a sealed) putSealed(p *pb.PutSealed) Answer {
	if err := a.owner(p.Tenant); err != nil {
		return Answer{Err: err}
	}
	bytes := int64(0)
	for i, v := range p.Values {
		bytes += int64(len(v.Sealed))
		if err := a.follows(p.Tenant, v); err != nil {
			return Answer{Err: err}
		}
		for _, other := range p.Values[:i] {
			if other.Id == v.Id {
				return refuse(problem.Invalid, "a value is there twice")
			}
		}
	}
	if err := a.room(p.Tenant, model.LimitDefinitionBytes, model.LimitDefinitionBytes.Name, bytes); err != nil {
		return Answer{Err: err}
	}
	for _, v := range p.Values {
		a.putValue(p.Tenant, v)
	}
	return Answer{}
}

// follows returns an error unless a version of a value follows the latest one, and its data key is there. Below
// logformat.RotationLevel there may be voters that only compare the key with the oldest one, and all of them have to apply an entry alike.
func (a sealed) follows(tenant string, v *pb.SealedValue) error {
	latest := uint32(0)
	if row, ok := a.view().LatestSealed(tenant, v.GetId()); ok {
		latest = row.Version
	}
	number := table.KeyNumber(v.GetSealed())
	oldest, ok := a.view().OldestDataKey(tenant)
	gone := ok && number < oldest.Number
	if _, there := a.view().DataKeyOf(tenant, number); !there && table.Mesh(a.txn).FeatureLevel >= logformat.RotationLevel {
		gone = true
	}
	if gone {
		return problem.New(problem.Stale, "the value is encrypted with a key that is not there, or not any more: write it again")
	}
	if v.GetId() == "" || v.GetVersion() != latest+1 {
		return problem.New(problem.Stale, "version %d of a value cannot follow version %d: it was changed meanwhile", v.GetVersion(), latest)
	}
	return nil
}

// putValue writes a version of a value.
func (a sealed) putValue(tenant string, v *pb.SealedValue) {
	a.put(table.Sealed, &table.SealedRow{Tenant: tenant, ID: v.Id, Version: v.Version, Sealed: v.Sealed, Created: a.now})
}

// of returns the encrypted value of a secret, or nil.
func (a sealed) of(r *table.SecretRow) *table.SealedRow {
	if r == nil || r.ID == "" {
		return nil
	}
	return table.Get[table.SealedRow](a.txn, table.Sealed, "id", r.Tenant, r.ID, r.Version)
}

// dropOf removes the encrypted value of a secret, if there is one.
func (a sealed) dropOf(r *table.SecretRow) {
	if v := a.of(r); v != nil {
		a.drop(table.Sealed, v)
	}
}

// reseal replaces secrets in the clear by encrypted ones. It skips those that were changed meanwhile.
func (a sealed) reseal(p *pb.Reseal) Answer {
	for _, s := range p.Secrets {
		have := table.Get[table.SecretRow](a.txn, table.Secrets, "id", s.Tenant, s.Name)
		if have == nil || have.ID != "" || a.follows(s.Tenant, s.Value) != nil {
			continue
		}
		a.putValue(s.Tenant, s.Value)
		a.put(table.Secrets, &table.SecretRow{
			Tenant: have.Tenant, Name: have.Name, UsableBy: have.UsableBy, ID: s.Value.Id, Version: s.Value.Version,
		})
		a.batch.Resealed = true
	}
	for _, r := range p.Providers {
		if err := a.resealProvider(r); err != nil {
			return Answer{Err: err}
		}
	}
	for _, k := range p.Keys {
		a.rewrap(k.Key, k.Was)
	}
	for _, v := range p.Values {
		row := table.Get[table.SealedRow](a.txn, table.Sealed, "id", v.Tenant, v.Value.GetId(), v.Value.GetVersion())
		_, known := a.view().DataKeyOf(v.Tenant, table.KeyNumber(v.Value.GetSealed()))
		if row != nil && known && row.DataKeyNumber() < table.KeyNumber(v.Value.Sealed) {
			next := *row
			next.Sealed = v.Value.Sealed
			a.rewrite(table.Sealed, &next)
		}
	}
	if m := p.Mesh; m != nil {
		a.rewrapMesh(m)
	}
	for _, k := range p.Drop {
		a.dropKey(k.Tenant, k.Number)
	}
	return Answer{}
}

// rewrap replaces a data key by the same one that another mesh key encrypts, if it is still as it was.
func (a sealed) rewrap(k *pb.PutDataKey, was []byte) {
	row := table.Get[table.DataKeyRow](a.txn, table.DataKeys, "id", k.GetTenant(), k.GetNumber())
	if row == nil || !bytes.Equal(row.Wrapped, was) {
		return
	}
	next := *row
	next.MeshKey, next.MeshPrint, next.Wrapped = k.MeshKey, k.MeshPrint, k.Wrapped
	a.rewrite(table.DataKeys, &next)
}

// rewrapMesh does the same with the keys of the CA and of gossip.
func (a sealed) rewrapMesh(p *pb.ResealedMesh) {
	m := table.Mesh(a.txn)
	if m.Identity == nil || !bytes.Equal(m.Identity.SealedCA, p.WasCa) || !bytes.Equal(m.Identity.SealedGossip, p.WasGossip) {
		return
	}
	next := *m.Identity
	next.SealedCA, next.SealedGossip = p.Ca, p.Gossip
	m.Identity = &next
	a.put(table.Meta, &m)
	a.batch.Agents = true // voters have the key of the CA on their disks, too
}

// dropKey removes a data key that a newer one follows, unless it has encrypted a value that is there.
func (a sealed) dropKey(tenant string, number uint32) {
	latest, ok := a.view().DataKey(tenant)
	row := table.Get[table.DataKeyRow](a.txn, table.DataKeys, "id", tenant, number)
	if !ok || row == nil || latest.Number <= number {
		return
	}
	used := false
	table.Each(a.txn, table.Sealed, "id_prefix", func(r *table.SealedRow) bool {
		used = r.DataKeyNumber() == number
		return !used
	}, tenant)
	if !used {
		a.remove(table.DataKeys, row)
	}
}

// resealProvider replaces the fields of a provider, which stays the same in all other respects: nobody has changed it.
func (a sealed) resealProvider(r *pb.ResealedProvider) error {
	if a.there(r.Tenant, r.Body) != nil || a.there(r.Tenant, r.Fields) != nil {
		return nil
	}
	if r.Definition != "" {
		row := table.Get[table.DefinitionRow](a.txn, table.Definitions, "id", r.Tenant, string(model.KindProvider), r.Definition,
			uint32(r.Version))
		if row != nil {
			next := *row
			next.Body = r.Body
			a.replace(table.Definitions, &next)
		}
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(r.Fields, &fields); err != nil {
		return problem.New(problem.Unsupported, "fields of a provider: %v", err)
	}
	if r.ClusterVersion == 0 {
		if row := table.Get[model.Snapshot](a.txn, table.History, "id", r.Tenant, r.Cluster, uint32(r.History)); row != nil {
			next, cl := *row, *row.State
			cl.Provider.Provisioner, next.State = fields, &cl
			a.replace(table.History, &next)
		}
		return nil
	}
	if row := table.Get[model.Cluster](a.txn, table.Clusters, "id", r.Tenant, r.Cluster); row != nil && row.Version == r.ClusterVersion {
		next := *row
		next.Provider.Provisioner = fields
		a.replace(table.Clusters, &next)
	}
	return nil
}

// replace is rewrite for a row that had values in the clear.
func (a sealed) replace(table string, row any) {
	a.rewrite(table, row)
	a.batch.Resealed = true
}

// rewrite is put without a record in the audit log, for a row that is the same but for its form.
func (a sealed) rewrite(table string, row any) {
	a.counts.Put(a.txn, table, row)
	if err := a.txn.Insert(table, row); err != nil {
		panic(fmt.Sprintf("state: insert into %s: %v", table, err))
	}
}

// dropSealed removes values. The leader has found that nothing names them. One that is named again since then stays: an operation may
// have been planned from a version of a provider that was deleted meanwhile.
func (a sealed) dropSealed(p *pb.DropSealed) Answer {
	var named map[view.SealedKey]bool
	ofTenant := func(n *pb.SealedName) bool { return n.Tenant != "" } // documents name no values of the mesh itself
	if a.exact() && slices.ContainsFunc(p.Values, ofTenant) {
		named = a.view().NamedSealed()
	}
	for _, n := range p.Values {
		if named[view.SealedKey{Tenant: n.Tenant, SealedRef: model.SealedRef{ID: n.Id, Version: n.Version}}] {
			continue
		}
		if r := table.Get[table.SealedRow](a.txn, table.Sealed, "id", n.Tenant, n.Id, n.Version); r != nil {
			a.drop(table.Sealed, r)
		}
	}
	return Answer{}
}

// exact reports whether entries may depend on what names encrypted values. Below logformat.SealedLevel there may be voters that
// do not check it, and all of them have to apply an entry alike.
func (a sealed) exact() bool { return table.Mesh(a.txn).FeatureLevel >= logformat.SealedLevel }

// thereIn is like there, for the fields of a provider or a configuration. The values that have names are not looked for: what a cluster
// lacks already must not keep it from other operations.
func (a sealed) thereIn(tenant string, fields, have map[string]any) error {
	if !model.HasSealedRef(fields) {
		return nil
	}
	body, err1 := json.Marshal(fields)
	old, err2 := json.Marshal(have)
	if err := errors.Join(err1, err2); err != nil {
		return problem.New(problem.Unsupported, "fields of a document: %v", err)
	}
	return a.there(tenant, body, model.SealedRefs(old)...)
}

// thereInCluster is like thereIn, for all that a cluster names. have is the cluster as it is now, or nil.
func (a sealed) thereInCluster(cl, have *model.Cluster) error {
	if !a.anywhere() {
		var now map[string]any
		if have != nil {
			now = have.Provider.Provisioner
		}
		return a.thereIn(cl.Tenant, cl.Provider.Provisioner, now)
	}
	var known []model.SealedRef
	if have != nil {
		known = have.SealedRefs()
	}
	return a.allThere(cl.Tenant, cl.SealedRefs(), known)
}

// anywhere reports whether other documents than providers may name encrypted values. Below logformat.RotationLevel there may be voters
// that do not look for them, and all of them have to apply an entry alike.
func (a sealed) anywhere() bool { return table.Mesh(a.txn).FeatureLevel >= logformat.RotationLevel }

// there returns an error if a document names an encrypted value, besides those given, that the state does not have.
func (a sealed) there(tenant string, body []byte, besides ...model.SealedRef) error {
	if !a.exact() {
		return nil
	}
	return a.allThere(tenant, model.SealedRefs(body), besides)
}

func (a sealed) allThere(tenant string, refs, besides []model.SealedRef) error {
	for _, ref := range refs {
		if _, ok := a.view().Sealed(tenant, ref.ID, ref.Version); !ok && !slices.Contains(besides, ref) {
			return problem.New(problem.Stale, "a value that was kept is gone meanwhile: write it again")
		}
	}
	return nil
}
