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

// TestNodesOfCommands names nodes in each form that commands about them accept.
func TestNodesOfCommands(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Work(nil)
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "4")
	for _, args := range []string{
		"node restart web/1001", "node restart web/web1-1001 nginx", "node restart web 1001 nginx", "node restart 00000001/1001",
		"node replace web/1002 --yes", "node replace web 1002 --yes",
		"cluster replace-node web/1001 web/1002 --yes", "cluster replace-node web 1001 web/1002 --yes",
		"cluster shrink web/1002 web/1003 --yes", "cluster shrink web --nodes 1 --yes",
	} {
		if code, out, errs := s.Exec(append(strings.Fields(args), "--dry-run")...); code != 0 {
			t.Errorf("%s: %d %s%s", args, code, out, errs)
		}
	}
	for args, want := range map[string]string{
		"node restart":                          "CLUSTER is missing",
		"node restart web":                      "NODE is missing",
		"node restart web/":                     `"web/" does not name a node: give CLUSTER/NODE`,
		"node pause /1001":                      `"/1001" does not name a node`,
		"node replace web/1001 1002 --yes":      `unexpected argument "1002"`,
		"cluster shrink web/1001 shop/1002 -y":  "node shop/1002 is not in cluster web; give the nodes of one cluster",
		"cluster replace-node web --yes":        "NODE is missing",
		"cluster replace-node shop web/1001 -y": "node web/1001 is not in cluster shop",
	} {
		if code, out, errs := s.Exec(strings.Fields(args)...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s%s", args, code, out, errs)
		}
	}
	for args, want := range map[string]string{
		"node restart |":                              "web/",
		"node get w|":                                 "web/",
		"node get 00000001-100|":                      "00000001-1000 00000001-1001 00000001-1002 00000001-1003",
		"node get web/web1-100|":                      "web/web1-1000 web/web1-1001 web/web1-1002 web/web1-1003",
		"node get web/web1-1001 |":                    "",
		"node pause web/web1-1001|":                   "web/web1-1001",
		"node pause web web1-1001|":                   "web1-1001",
		"node pause web/web1-1001 |":                  "",
		"cluster shrink w|":                           "web",
		"cluster shrink web/web1-1001 web/web1-1002|": "web/web1-1002",
		"cluster shrink web/web1-1001 web1-1002|":     "web1-1002",
		"cluster replace-node web web1-1003|":         "web1-1003",
	} {
		_, out, _ := s.Exec(append([]string{"__complete"}, strings.Split(strings.TrimSuffix(args, "|"), " ")...)...)
		var names []string
		for _, line := range strings.Split(out, "\n") {
			if name, _, _ := strings.Cut(line, "\t"); name != "" && !strings.HasPrefix(name, ":") {
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s completes to %q, not %q", args, got, want)
		}
	}
}
