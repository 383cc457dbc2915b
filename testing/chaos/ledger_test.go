package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// checkWork compares the ledger, which the nodes have written, with the records of the mesh: nothing was made
// twice, no attempt began twice, the mesh knows every attempt, and no node is left over after the deletions.
func (l *load) checkWork(ctx context.Context) error {
	known := map[uint64]bool{} // fences
	var errs []error
	for _, id := range l.clusters {
		var tasks []model.Task
		if err := l.ask(ctx, 0, true, func() {}, func(ctx context.Context, c *client.Client) (err error) {
			tasks, _, err = c.Tasks(ctx, id, "", client.Page{Limit: 10000}, client.Read{})
			return err
		}); err != nil {
			return fmt.Errorf("tasks of operation %s: %w", id, err)
		}
		for _, t := range tasks {
			if t.Status != model.TaskSucceeded {
				errs = append(errs, fmt.Errorf("operation %s has succeeded, but its task %s is %s", id, t.ID, t.Status))
			}
			for _, a := range t.Attempts {
				known[a.Fence] = true
			}
		}
	}
	book, err := os.ReadFile(l.mesh.ledger())
	if err != nil {
		return err
	}
	began := map[string]bool{}
	for line := range strings.Lines(string(book)) {
		f := strings.Fields(line)
		if len(f) != 5 { // node, service, action, fence, event
			return fmt.Errorf("a line of the ledger is %q", line)
		}
		fence, err := strconv.ParseUint(f[3], 10, 64)
		if err != nil {
			return fmt.Errorf("a line of the ledger is %q: %w", line, err)
		}
		switch {
		case f[4] == "taken":
			errs = append(errs, fmt.Errorf("a node was made twice: %s", strings.TrimSpace(line)))
		case f[4] == "begin" && began[line]:
			errs = append(errs, fmt.Errorf("an attempt began twice: %s", strings.TrimSpace(line)))
		case !known[fence]:
			errs = append(errs, fmt.Errorf("the mesh does not know the attempt of %s", strings.TrimSpace(line)))
		}
		began[line] = true
	}
	left, err := os.ReadDir(l.mesh.nodes())
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), ".") {
			errs = append(errs, fmt.Errorf("nodes of the cluster %s are left over", e.Name()))
		}
	}
	return errors.Join(append(errs, err)...)
}
