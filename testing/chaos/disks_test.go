package chaos

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coopr/coopr/testing/lab"
)

// TestChaosOfDisks has a leader whose disk takes 5 s for each write, and two voters whose disks are full at once. What
// was acknowledged is there afterwards, no agent ends, and no log is flooded. While a majority of the voters has good
// disks, clients go on.
func TestChaosOfDisks(t *testing.T) {
	demanded(t, false)
	l := lab.New(t)
	bin := programs.Build(t)
	for _, c := range []struct {
		agents int
		faults string
		goOn   bool // clients write while the fault lasts
	}{
		{3, "slowest@leader/20s", true},
		{3, "two-full@leader/15s", false},
		{5, "two-full@leader/15s", true},
	} {
		kind, _, _ := strings.Cut(c.faults, "@")
		for _, store := range []string{"boltdb", "wal"} {
			t.Run(fmt.Sprintf("%s/%d/%s", kind, c.agents, store), func(t *testing.T) {
				s, err := parseSchedule(c.faults, c.agents)
				if err != nil {
					t.Fatal(err)
				}
				dir, err := os.MkdirTemp("", "disks") // the paths of sockets must be short
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				m := &mesh{lab: l, dir: dir, store: store, keep: kept(t)}
				r := run(context.Background(), m, bin, c.agents, 1, following(s), t.Logf)
				t.Log(r)
				if r.err != nil {
					t.Fatal(r.err)
				}
				if gap := r.gaps[s[0].kind][0]; c.goOn && gap >= s[0].hold {
					t.Errorf("no client could write for %s", gap)
				}
			})
		}
	}
}
