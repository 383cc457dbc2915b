package access

import (
	"bytes"
	"slices"
	"sync"

	"github.com/coopr/coopr/engine/model"
)

// maxSets bounds the sets of policies that Sets keeps.
const maxSets = 200

// Definitions reads stored definitions. The documents of the mesh are those of the tenant "".
type Definitions interface {
	// Definitions returns the latest version of each definition of a kind, by name.
	Definitions(tenant string, kind model.Kind) []model.StoredDefinition
}

// Sets makes the sets of policies for tenants from the stored documents, and keeps them until the documents
// change. The zero value is ready for use, also by several goroutines at once.
type Sets struct {
	mu   sync.Mutex
	kept map[string]keptSet // by tenant
}

type keptSet struct {
	mesh, own []model.StoredDefinition
	set       *Set
}

// Of returns the policies of the mesh and of a tenant. If a stored document has faults, the set allows superadmins
// what it otherwise allows them, and nobody else anything: nobody knows what the document forbids.
func (s *Sets) Of(d Definitions, tenant string) *Set {
	mesh := d.Definitions("", model.KindPolicies)
	var own []model.StoredDefinition
	if tenant != "" {
		own = d.Definitions(tenant, model.KindPolicies)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.kept[tenant]; ok && slices.EqualFunc(k.mesh, mesh, same) && slices.EqualFunc(k.own, own, same) {
		return k.set
	}
	set, err := SetOf(mesh, own, tenant)
	if err != nil {
		set = faulty(err)
	}
	if s.kept == nil || len(s.kept) >= maxSets {
		s.kept = map[string]keptSet{}
	}
	s.kept[tenant] = keptSet{mesh, own, set}
	return set
}

// faulty returns the set for documents with faults.
func faulty(err error) *Set {
	s := emptySet()
	for _, b := range builtins() {
		if b.of.Name == "superadmin" {
			s.add(b)
		}
	}
	s.fault = err
	return s
}

func same(a, b model.StoredDefinition) bool { return a.Name == b.Name && bytes.Equal(a.Body, b.Body) }

// SetOf returns the set of stored documents: those of the mesh, and those of a tenant.
func SetOf(mesh, own []model.StoredDefinition, tenant string) (*Set, error) {
	var all []*Policies
	var faults model.Faults
	for i, d := range slices.Concat(mesh, own) {
		of := tenant
		if i < len(mesh) {
			of = ""
		}
		p, fs := ParseStored(d, of, nil)
		all, faults = append(all, p), append(faults, fs...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	set, faults := NewSet(all, nil)
	return set, faults.Err()
}

// ParseStored is like Parse, for a stored document.
func ParseStored(d model.StoredDefinition, tenant string, known Known) (*Policies, model.Faults) {
	def, err := model.Restore(d.Kind, d.Body)
	if err != nil {
		return nil, model.Faults{{Subject: "policies/" + d.Name, Message: err.Error()}}
	}
	text := ""
	if p, ok := def.Value.(*model.Policies); ok {
		text = p.Text
	}
	return Parse(Document{Name: d.Name, Tenant: tenant, Text: text}, known)
}
