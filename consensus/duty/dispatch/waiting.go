package dispatch

import (
	"context"
	"time"
)

// Waiting describes the tasks of a tenant that are ready and have no lease.
type Waiting struct {
	Tenant string
	Tasks  int
	Oldest time.Time // since when the oldest of them has been ready, as this leader knows
}

// Waiting returns the tenants with ready tasks, by name. Tasks of operations that are paused do not count, nor do
// failed tasks before their next attempt is due.
func (d *Dispatcher) Waiting(ctx context.Context) []Waiting {
	out := make(chan []Waiting, 1)
	if !d.post(func() {
		if ctx.Err() == nil {
			out <- d.waiting()
		}
	}) {
		return nil
	}
	select {
	case list := <-out:
		return list
	case <-d.ended:
	case <-ctx.Done():
	}
	return nil
}

func (b *book) waiting() []Waiting {
	var out []Waiting
	for _, t := range b.tenants {
		w := Waiting{Tenant: t.name}
		for _, q := range t.turn {
			if !q.open {
				continue
			}
			w.Tasks += len(q.since)
			for _, at := range q.since {
				if w.Oldest.IsZero() || at.Before(w.Oldest) {
					w.Oldest = at
				}
			}
		}
		if w.Tasks > 0 {
			out = append(out, w)
		}
	}
	return out
}
