package loop

import (
	"context"
	"time"
)

// Repeat calls fn at once, and again each time every has passed since fn began, until ctx ends. It
// returns ctx's error. It is the queue of a duty that has one job.
func Repeat(ctx context.Context, every time.Duration, fn func(ctx context.Context, now time.Time)) error {
	q := New(Config[struct{}]{Reconcile: func(ctx context.Context, _ struct{}) (time.Time, error) {
		now := time.Now()
		fn(ctx, now)
		return now.Add(every), nil
	}})
	q.Add(struct{}{})
	return q.Run(ctx)
}
