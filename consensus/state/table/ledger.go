package table

import (
	"maps"
	"sync"

	"github.com/hashicorp/go-memdb"

	"github.com/coopr/coopr/engine/model"
)

// Ledger has the counts of all tenants. Any goroutine may read it.
type Ledger struct{ all sync.Map }

// Of returns how much a tenant has of what is counted. The caller does not change it.
func (l *Ledger) Of(tenant string) Counts {
	c, _ := l.all.Load(tenant)
	counts, _ := c.(Counts)
	return counts
}

// Count counts all rows, in place of what the ledger had.
func (l *Ledger) Count(txn *memdb.Txn) {
	l.all.Clear()
	for tenant, c := range Tally(txn) {
		l.all.Store(tenant, c)
	}
}

// Page has the counts that one batch of entries changes. Grown is called when one has grown.
type Page struct {
	Ledger  *Ledger
	Grown   func(tenant, key string, before, after int64)
	changed map[string]Counts
}

// Of returns the counts of a tenant as the batch has left them so far. The caller does not change them.
func (p *Page) Of(tenant string) Counts {
	if c, ok := p.changed[tenant]; ok {
		return c
	}
	return p.Ledger.Of(tenant)
}

// Keep makes the counts of the page those of the ledger.
func (p *Page) Keep() {
	for tenant, c := range p.changed {
		if len(c) == 0 {
			p.Ledger.all.Delete(tenant)
		} else {
			p.Ledger.all.Store(tenant, c)
		}
	}
}

// Put counts a row of a table that is about to be written.
func (p *Page) Put(txn *memdb.Txn, table string, row any) { p.weigh(txn, table, row, false) }

// Remove counts a row of a table that is about to be removed.
func (p *Page) Remove(txn *memdb.Txn, table string, row any) { p.weigh(txn, table, row, true) }

func (p *Page) weigh(txn *memdb.Txn, table string, row any, gone bool) {
	now, ok := Weigh(row)
	if !ok {
		return
	}
	var old Weight
	have := Same(txn, table, row)
	switch {
	case have != nil:
		old, _ = Weigh(have)
	case gone:
		return
	}
	if gone {
		now.Number, now.Bytes = 0, 0
	}
	number := now.Number - old.Number
	if now.Versioned {
		number = 0
		switch n := Versions(txn, table, row); {
		case gone && n == 1:
			number = -1
		case !gone && n == 0:
			number = 1
		}
	}
	if now.Key != "" {
		p.Add(now.Tenant, now.Key, number)
	}
	p.Add(now.Tenant, model.LimitDefinitionBytes.Name, now.Bytes-old.Bytes)
}

// Add adds to a count of a tenant.
func (p *Page) Add(tenant, key string, n int64) {
	if n == 0 {
		return
	}
	c, ok := p.changed[tenant]
	if !ok {
		if c = maps.Clone(p.Ledger.Of(tenant)); c == nil {
			c = Counts{}
		}
		if p.changed == nil {
			p.changed = map[string]Counts{}
		}
		p.changed[tenant] = c
	}
	before := c[key]
	c.Add(key, n)
	if n > 0 {
		p.Grown(tenant, key, before, before+n)
	}
}
