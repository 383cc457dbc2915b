package raftgroup_test

import (
	"testing"
	"time"

	"github.com/coopr/coopr/testing/doubles/grouptest"
)

func TestSnapshotTime(t *testing.T) {
	box(t, 1, grouptest.Options{}, func(t *testing.T, c *grouptest.Cluster) {
		c.Apply("one")
		g := c.Leader().Group()
		if at := g.Stats().Snapshot; !at.IsZero() {
			t.Errorf("before the first snapshot: %v", at)
		}
		_, rc, err := g.Snapshot(bg)
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
		if at := g.Stats().Snapshot; at.IsZero() || at.After(time.Now()) {
			t.Errorf("after a snapshot: %v", at)
		}
	})
}
