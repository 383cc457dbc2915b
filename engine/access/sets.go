package access

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/coopr/coopr/engine/model"
)

// Stored reads stored definitions and grants. The documents of the mesh are those of the tenant "".
type Stored interface {
	// Definitions returns the latest version of each definition of a kind, by name.
	Definitions(tenant string, kind model.Kind) []model.StoredDefinition
	// Edition returns a value that is another once a definition of a kind has changed.
	Edition(tenant string, kind model.Kind) any
	// Grants returns a tenant's grants. GrantEdition returns a value that is another once these, or the rights of their
	// granters, have changed.
	Grants(tenant string) []model.Grant
	GrantEdition(tenant string) any
	// Acting returns a user as a caller, with the rights that the user has now.
	Acting(tenant, actor string) model.Caller
}

// Sets makes the sets of policies for tenants from the stored documents, and keeps them until the documents
// change. The zero value is ready for use, also by several goroutines at once.
type Sets struct {
	mu   sync.Mutex
	kept map[string]keptSet // by tenant
	docs map[Document]parsed
}

type keptSet struct {
	edition   edition
	mesh, own []model.StoredDefinition
	grants    []Grant
	set       *Set
}

// edition differs for states with different documents.
type edition struct{ mesh, own, grants any }

// parsed is a document that was parsed before; parsing costs most of making a set.
type parsed struct {
	policies *Policies
	faults   model.Faults
}

// The bounds on what Sets keeps.
const (
	maxSets = 200
	maxDocs = 2000
)

// Of returns the policies of the mesh and of a tenant. If a stored document has faults, nobody but superadmins may do
// anything: nobody knows what the document forbids.
func (s *Sets) Of(d Stored, tenant string) *Set {
	s.mu.Lock()
	k, ok := s.kept[tenant]
	s.mu.Unlock()
	at := edition{mesh: d.Edition("", model.KindPolicies)}
	if tenant != "" {
		at.own, at.grants = d.Edition(tenant, model.KindPolicies), d.GrantEdition(tenant)
	}
	if ok && k.edition == at {
		return k.set
	}
	next := keptSet{edition: at, mesh: d.Definitions("", model.KindPolicies), set: k.set}
	if tenant != "" {
		next.own, next.grants = d.Definitions(tenant, model.KindPolicies), grantsOf(d, tenant)
	}
	if !ok || !slices.EqualFunc(k.mesh, next.mesh, same) || !slices.EqualFunc(k.own, next.own, same) ||
		!reflect.DeepEqual(k.grants, next.grants) {
		next.set = s.make(next, tenant)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil || !ok && len(s.kept) >= maxSets {
		s.kept = map[string]keptSet{}
	}
	s.kept[tenant] = next
	return next.set
}

// make makes the set of documents.
func (s *Sets) make(k keptSet, tenant string) *Set {
	all, unreadable := readable(k.mesh, k.own, tenant, s.parse)
	set, faults := setOf(all, k.grants)
	if faults = append(unreadable, faults...); len(faults) > 0 {
		set.fault = faults
	}
	return set
}

// parse parses a document that it has not parsed before.
func (s *Sets) parse(d Document) (*Policies, model.Faults) {
	s.mu.Lock()
	p, ok := s.docs[d]
	s.mu.Unlock()
	if !ok {
		p.policies, p.faults = Parse(d, nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.docs == nil || len(s.docs) >= maxDocs {
			s.docs = map[Document]parsed{}
		}
		s.docs[d] = p
	}
	return p.policies, p.faults
}

func same(a, b model.StoredDefinition) bool { return a.Name == b.Name && bytes.Equal(a.Body, b.Body) }

// SetOf returns the set of stored documents, those of the mesh and those of a tenant, and the faults that they have
// together. Documents with faults of their own are left out.
func SetOf(mesh, own []model.StoredDefinition, tenant string) (*Set, model.Faults) {
	all, _ := readable(mesh, own, tenant, func(d Document) (*Policies, model.Faults) { return Parse(d, nil) })
	return setOf(all, nil)
}

// setOf is like NewSet. If there are too many policies, the set has the built-in ones and no grants.
func setOf(all []*Policies, grants []Grant) (*Set, model.Faults) {
	set, faults := NewSet(all, grants)
	if len(faults) > 0 {
		set, _ = NewSet(nil, nil)
	}
	return set, faults
}

// readable returns the documents that can be read, and the faults of the others.
func readable(mesh, own []model.StoredDefinition, tenant string, parse func(Document) (*Policies, model.Faults)) (all []*Policies,
	faults model.Faults) {
	for i, d := range slices.Concat(mesh, own) {
		of := tenant
		if i < len(mesh) {
			of = ""
		}
		doc, err := documentOf(d, of)
		if err != nil {
			faults = append(faults, &model.Fault{Subject: "policies/" + d.Name, Message: err.Error()})
			continue
		}
		p, fs := parse(doc)
		if faults = append(faults, fs...); len(fs) == 0 {
			all = append(all, p)
		}
	}
	return all, faults
}

// documentOf decodes a stored document.
func documentOf(d model.StoredDefinition, tenant string) (Document, error) {
	def, err := model.Restore(d.Kind, d.Body)
	if err != nil {
		return Document{}, err
	}
	p, ok := def.Value.(*model.Policies)
	if !ok {
		return Document{}, fmt.Errorf("it is a %T", def.Value)
	}
	return Document{Name: d.Name, Tenant: tenant, Text: p.Text}, nil
}

// ParseStored is like Parse, for a stored document.
func ParseStored(d model.StoredDefinition, tenant string, known Known) (*Policies, model.Faults) {
	doc, err := documentOf(d, tenant)
	if err != nil {
		return nil, model.Faults{{Subject: "policies/" + d.Name, Message: err.Error()}}
	}
	return Parse(doc, known)
}
