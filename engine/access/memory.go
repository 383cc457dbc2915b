package access

import (
	"encoding/binary"
	"sync"
)

// maxFilters bounds the filters that a set keeps.
const maxFilters = 256

// memory holds what a set has decided. Callers ask the same again and again, and evaluating some
// thirty conditions takes ten times as long as comparing what they read. It ends with its set, when
// rights change.
type memory struct {
	mu      sync.Mutex
	filters map[question]*kept
}

// question is who asks, what for, and about which resources.
type question struct {
	who    string
	action Action
	of     Type
	tenant string
}

// kept is a filter that several goroutines use.
type kept struct {
	mu sync.Mutex
	*Filter
}

// remembered decides for a principal without its makers, and without grants. It remembers decisions
// whose policies do not read the context.
func (s *Set) remembered(p *Principal, r *Request) Decision {
	if p.Root {
		return s.one(p, r)
	}
	k := s.memory.filter(s, p, r)
	if len(k.reads.context) > 0 {
		return s.one(p, r)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.request.Context = r.Context
	d := k.decided(&r.Resource)
	k.request.Resource.Row = nil // it may hold a whole view of the state
	return d
}

func (m *memory) filter(s *Set, p *Principal, r *Request) *kept {
	q := question{p.fingerprint(), r.Action, r.Resource.Type, r.Resource.Tenant}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.filters[q]
	if k == nil {
		k = &kept{Filter: s.filter(p, r.Action, r.Resource.Type, r.Context, false)}
		k.evaluates = true
		k.cut(r.Resource.Tenant)
		if m.filters == nil || len(m.filters) == maxFilters {
			m.filters = map[question]*kept{}
		}
		m.filters[q] = k
	}
	return k
}

// fingerprint differs for principals that policies can tell apart.
func (p *Principal) fingerprint() string {
	b := make([]byte, 0, 128)
	for _, s := range append([]string{string(p.Type), p.ID, p.actsFor(), p.Name, p.Tenant}, p.Groups...) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return string(b)
}
