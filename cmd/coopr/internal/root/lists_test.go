package root_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

// TestEveryListIsFiltered runs every command that shows a list with --filter, --sort and --limit, which the agent must understand.
func TestEveryListIsFiltered(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach")
	s.As(apitest.Root)
	s.Env["COOPR_TENANT"] = "acme"
	args := map[string][]string{"coopr task list": {"00000001-001"}, "coopr cluster history": {"web"}, "coopr change history": nil}
	lists := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Flags().Lookup("sort") == nil {
			return
		}
		more, ok := args[cmd.CommandPath()]
		if ok && more == nil {
			return // there is no site
		}
		lists++
		run := append(slices.Clone(strings.Fields(cmd.CommandPath())[1:]), more...)
		if code, _, errs := s.Exec(append(slices.Clone(run), "--limit", "1")...); code != 0 {
			t.Errorf("%v --limit 1: %d %s", run, code, errs)
		}
		for _, flag := range []string{"--filter=nonsense=1", "--sort=nonsense"} {
			if code, _, errs := s.Exec(append(slices.Clone(run), flag)...); code != 1 || !strings.Contains(errs, `unknown field "nonsense"`) {
				t.Errorf("%v %s: %d %s", run, flag, code, errs)
			}
		}
	}
	walk(root.Command())
	if lists < 25 {
		t.Errorf("only %d lists", lists)
	}
	s.Env["COOPR_TENANT"] = ""
	s.As(apitest.User)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"node", "list", "--sort=-nodenum", "--limit", "1"}, "web1-1001"},
		{[]string{"node", "list", "--filter", "nodenum=1000"}, "web1-1000"},
		{[]string{"cluster", "list", "--filter", "name~EB,numNodes=2", "--filter", "labels.team="}, "web"},
		{[]string{"cluster", "list", "--filter", "name=x"}, "Nothing matches."},
	} {
		if code, out, errs := s.Exec(c.args...); code != 0 || !strings.Contains(out, c.want) || strings.Count(out, "\n") > 2 {
			t.Errorf("%v: %d %s %s", c.args, code, out, errs)
		}
	}
}
