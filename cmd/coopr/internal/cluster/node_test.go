package cluster_test

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// TestNodeOfCluster shows a node by its id, and by its cluster and any of its names.
func TestNodeOfCluster(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach")
	for _, name := range []string{"00000001-1001", "web/1001", "web/web1-1001", "web/00000001-1001", "00000001/1001"} {
		if code, out, errs := s.Exec("node", "get", name); code != 0 || !strings.Contains(out, "id: 00000001-1001\n") {
			t.Errorf("%s: %d %s%s", name, code, out, errs)
		}
	}
	for _, name := range []string{"web/1005", "web/", "/1001", "none/1001"} {
		if code, out, errs := s.Exec("node", "get", name); code != 3 || out != "" {
			t.Errorf("%s: %d %s%s", name, code, out, errs)
		}
	}
}
