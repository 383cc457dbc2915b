package state_test

import (
	"testing"

	pb "github.com/coopr/coopr/rpc/proto"
)

// The result of a provider's task places a node; the output of a service's script does not.
func TestPlaceIsTheProvidersToTell(t *testing.T) {
	m := fresh(t)
	const op = "00000001-001"
	do(t, m, entry(1, 1, tenant("one", 0, 0), session("s1", "a1"), start("one", "00000001", "a", 1, "", "")))
	index := uint64(1)
	for _, x := range []struct {
		task         uint32
		output, want string
	}{
		{1, `{"result":{"zone":"b","host":"h7"}}`, "b h7"}, // CREATE, after the barrier
		{2, `{"result":{"zone":"c"}}`, "c h7"},             // CONFIRM
		{3, `{"result":{"zone":"x","host":"x"}}`, "c h7"},  // INSTALL
		{4, `{"result":{"zone":7}}`, "c h7"},
	} {
		index++
		do(t, m, entry(index, int64(index), lease(op, "s1", x.task)))
		fence := index
		index++
		if a := do(t, m, entry(index, int64(index), report(op, x.task, fence, pb.Outcome_OUTCOME_SUCCEEDED, x.output)))[0]; len(a.Refused) > 0 {
			t.Fatal(a)
		}
		n, ok := m.View().Node("one", "00000001-1000")
		if !ok || n.Zone+" "+n.Host != x.want {
			t.Errorf("after task %d the node is at %s %s, not at %s", x.task, n.Zone, n.Host, x.want)
		}
	}
}
