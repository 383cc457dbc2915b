package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
)

// TestRepeat checks that a job is done at once and then at fixed times, however long it takes.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begun := time.Now()
		var at []time.Duration
		err := loop.Repeat(ctx, time.Minute, func(_ context.Context, now time.Time) {
			if at = append(at, now.Sub(begun)); len(at) == 3 {
				stop()
			}
			time.Sleep(10 * time.Second)
		})
		if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(at, want) || !errors.Is(err, context.Canceled) {
			t.Errorf("done at %v, %v", at, err)
		}
	})
}
