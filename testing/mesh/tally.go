package mesh

import (
	"fmt"
	"time"
)

// Tally describes the life of a mesh so far in numbers: its simulated time, the faults, the starts of agents, the
// attempts of plugins, and, as the leader has them, the operations, the term and the last index of the log. A simulation
// that becomes cheaper must keep them.
func Tally(m *Mesh) string {
	line := fmt.Sprintf("tally: %.0f s, %d faults, %d starts, %d attempts", time.Since(m.begin).Seconds(), m.faults.Load(),
		m.starts.Load(), len(m.World.Attempts()))
	if l := m.Leader(); l != nil {
		if r := l.agent.Replica(); r != nil {
			v := r.Machine.View()
			line += fmt.Sprintf(", %d operations, term %d, index %d", len(v.Operations("", "")), r.Group.Stats().Term, v.Index())
		}
	}
	return line
}
