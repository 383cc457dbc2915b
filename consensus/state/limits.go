package state

import (
	"fmt"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Bounds is the version of the default limits of tenants (docs/decisions/066). A new entry has it, so that every voter
// applies the entry with the same limits, also those of a later build.
const Bounds = 1

// limit returns a limit of a tenant, or 0 if there is none. Entries from before there were defaults know the limits of
// clusters and nodes only.
func (w *writer) limit(tenant string, l *model.Limit) int64 {
	t := table.Get[model.Tenant](w.txn, table.Tenants, "id", tenant)
	switch {
	case t == nil:
		return 0
	case w.bounds > 0:
		return l.Of(t)
	case l == model.LimitClusters || l == model.LimitNodes:
		return l.Given(t)
	}
	return 0
}

// room returns an error if a tenant has no room for so many more of what a limit is about. key is what is counted: the
// name of the limit, or a kind of definitions.
func (w *writer) room(tenant string, l *model.Limit, key string, more int64) error {
	if more <= 0 {
		return nil
	}
	return w.fits(tenant, l, key, w.counts.Of(tenant)[key], more)
}

// roomForOne is room for one more.
func (w *writer) roomForOne(tenant string, l *model.Limit) error { return w.room(tenant, l, l.Name, 1) }

// fits is room for something of which a tenant has so many.
func (w *writer) fits(tenant string, l *model.Limit, key string, used, more int64) error {
	most := w.limit(tenant, l)
	if most == 0 || used+more <= most {
		return nil
	}
	what := l.What
	if key != l.Name {
		what = key
	}
	return problem.New(problem.Quota, "tenant %s may have %d %s and has %d, and this needs %d more: delete some, or %s",
		tenant, most, what, used, more, l.Raise(tenant))
}

// size returns an error if a document is larger than those of the tenant may be.
func (w *writer) size(tenant, document string, bytes int) error {
	l := model.LimitDocumentBytes
	if most := w.limit(tenant, l); most > 0 && int64(bytes) > most {
		return problem.New(problem.TooLarge, "%s has %d bytes, and a document of tenant %s may have %d: split it, or %s",
			document, bytes, tenant, most, l.Raise(tenant))
	}
	return nil
}

// document is size and room for a document that is about to be written, in place of what has so many bytes. isNew reports
// that it is the first of its name.
func (w *writer) document(tenant, kind, name string, bytes int, isNew bool, replaced int64) error {
	if err := w.size(tenant, kind+"/"+name, bytes); err != nil {
		return err
	}
	if isNew {
		if err := w.room(tenant, model.LimitDefinitions, kind, 1); err != nil {
			return err
		}
	}
	return w.room(tenant, model.LimitDefinitionBytes, model.LimitDefinitionBytes.Name, int64(bytes)-replaced)
}

// bytesOf returns the bytes of definitions in rows, each of which may be nil.
func bytesOf[T any](rows ...*T) (bytes int64) {
	for _, r := range rows {
		if r != nil {
			weight, _ := table.Weigh(r)
			bytes += weight.Bytes
		}
	}
	return bytes
}

// mayPut is document for all definitions of a command, and checks the number of policies.
func (a tenants) mayPut(tenant string, defs []*pb.Definition, unlessSame bool) error {
	more, isNew, policies := int64(0), map[string]map[string]bool{}, map[string]bool{}
	counted := map[string]bool{} // definitions whose surplus is
	inPolicies := int64(0)
	for _, d := range defs {
		if err := a.size(tenant, d.Kind+"/"+d.Name, len(d.Body)); err != nil {
			return err
		}
		last := table.Latest(a.txn, tenant, d.Kind, d.Name)
		if last == nil {
			if isNew[d.Kind] == nil {
				isNew[d.Kind] = map[string]bool{}
			}
			isNew[d.Kind][d.Name] = true
		}
		if !unlessSame || !isSame(last, d) {
			more += int64(len(d.Body))
			if key := d.Kind + "/" + d.Name; !counted[key] {
				counted[key] = true
				more -= bytesOf(a.surplus(tenant, d.Kind, d.Name)...)
			}
		}
		if d.Kind == string(model.KindPolicies) {
			policies[d.Name] = true
			inPolicies += table.PoliciesIn(d.Body)
		}
	}
	for _, kind := range model.Kinds {
		if err := a.room(tenant, model.LimitDefinitions, string(kind), int64(len(isNew[string(kind)]))); err != nil {
			return err
		}
	}
	if err := a.room(tenant, model.LimitDefinitionBytes, model.LimitDefinitionBytes.Name, more); err != nil {
		return err
	}
	if len(policies) == 0 {
		return nil
	}
	l := model.LimitPolicies
	return a.fits(tenant, l, l.Name, table.Policies(a.txn, tenant, policies), inPolicies)
}

// grown adds an event when little room is left for what a tenant has more of.
func (w *writer) grown(tenant, key string, before, after int64) {
	l := limitOf(key)
	if w.bounds == 0 || tenant == "" || l.Rolling {
		return
	}
	if most := w.limit(tenant, l); model.Near(after, most) && !model.Near(before, most) {
		w.event(model.Event{Type: "tenant.limit", Tenant: tenant, Subject: l.Name, Status: fmt.Sprintf("%d of %d", after, most),
			Message: fmt.Sprintf("more than %d %% of the %s are used (%s); %s", model.NearLimit, l.What, key, l.Raise(tenant))})
	}
}

// forgetRequest forgets the oldest request of a tenant that has too many.
func (w *writer) forgetRequest(tenant string) {
	l := model.LimitRequestIDs
	if most := w.limit(tenant, l); most == 0 || w.counts.Of(tenant)[l.Name] <= most {
		return
	}
	if oldest := table.Get[table.RequestRow](w.txn, table.Requests, "tenant_prefix", tenant); oldest != nil {
		w.remove(table.Requests, oldest)
	}
}

// limitOf returns the limit of what is counted under a key.
func limitOf(key string) *model.Limit {
	for _, l := range model.TenantLimits {
		if l.Name == key {
			return l
		}
	}
	return model.LimitDefinitions
}

// freshNodes returns how many of the nodes that an operation writes are new. It reads them before any is written: a read
// between two writes makes the second one much slower.
func (a operations) freshNodes(tenant string, cl *model.Cluster, nodes []*model.Node) (fresh int64) {
	if table.Get[model.Node](a.txn, table.Nodes, "cluster", tenant, cl.ID) == nil {
		return int64(len(nodes))
	}
	for _, n := range nodes {
		if table.Get[model.Node](a.txn, table.Nodes, "id", tenant, n.ID) == nil {
			fresh++
		}
	}
	return fresh
}

// Counts returns how much a tenant has of what is counted. The caller does not change it.
func (m *Machine) Counts(tenant string) table.Counts { return m.counts.Of(tenant) }
