package member

import (
	"testing"

	"github.com/coopr/coopr/agent/mesh"
)

// An agent is alive as a candidate only if gossip hears it or it has a session.
func TestAliveByRecordIsNotAlive(t *testing.T) {
	for name, test := range map[string]struct {
		gossip, record mesh.Status
		live, want     bool
	}{
		"gossip hears it":                      {mesh.StatusAlive, mesh.StatusAlive, false, true},
		"it leaves":                            {mesh.StatusLeaving, mesh.StatusAlive, true, true},
		"gossip hears a newcomer":              {mesh.StatusAlive, mesh.StatusNone, false, true},
		"gossip is slow, but it talks to us":   {mesh.StatusNone, mesh.StatusAlive, true, true},
		"a record of before the quorum's loss": {mesh.StatusNone, mesh.StatusAlive, false, false},
		"it does not answer":                   {mesh.StatusFailed, mesh.StatusAlive, false, false},
		"its session ended":                    {mesh.StatusAlive, mesh.StatusFailed, false, false},
		"it has left":                          {mesh.StatusLeft, mesh.StatusAlive, false, false},
	} {
		m := mesh.Merge(mesh.Member{ID: "x", Status: test.gossip}, mesh.Member{ID: "x", Status: test.record})
		if c := candidate(m, test.live); c.Alive != test.want {
			t.Errorf("%s: alive %t: %+v", name, c.Alive, m)
		}
	}
}
