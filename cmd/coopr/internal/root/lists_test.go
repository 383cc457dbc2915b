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
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--label", "env=test", "--label", `note=a|"b"`, "--detach")
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
		for _, flag := range []string{"--filter", "--sort"} {
			fields := completions(s, append(slices.Clone(run), flag, "")...)
			if len(fields) == 0 {
				t.Errorf("%v %s completes to nothing", run, flag)
			}
			for _, field := range fields {
				if flag == "--filter" && !strings.HasSuffix(field, "=") {
					field += "team="
				} else if strings.HasSuffix(field, ".") {
					field += "team"
				}
				if code, _, errs := s.Exec(append(slices.Clone(run), flag, field)...); code != 0 {
					t.Errorf("%v %s %s: %d %s", run, flag, field, code, errs)
				}
			}
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
		{[]string{"cluster", "list", "-l", "env=test,team!=red", "-l", `note=a|"b"`, "--filter", "name=web"}, "web"},
		{[]string{"cluster", "list", "-l", "env!=test"}, "Nothing matches."},
		{[]string{"cluster", "list", "-l", "env=tes"}, "Nothing matches."},
		{[]string{"cluster", "list", "--label", "env="}, "Nothing matches."},
	} {
		if code, out, errs := s.Exec(c.args...); code != 0 || !strings.Contains(out, c.want) || strings.Count(out, "\n") > 2 {
			t.Errorf("%v: %d %s %s", c.args, code, out, errs)
		}
	}
}

// TestLabelsOfLists refuses labels of another form, and lists whose rows have no labels.
func TestLabelsOfLists(t *testing.T) {
	s := clitest.New(t)
	for args, want := range map[string]string{
		"cluster list -l env":        `"env" must have the form KEY=VALUE or KEY!=VALUE`,
		"cluster list -l =x":         `"=x" must have`,
		"cluster list -l env=a,b":    `"b" must have`,
		"cluster list -l e=1,=2":     `"=2" must have`,
		"template list -l env=test":  "unknown shorthand flag",
		"operation list -l env=test": "unknown shorthand flag",
	} {
		if code, out, errs := s.Exec(strings.Fields(args)...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s%s", args, code, out, errs)
		}
	}
}

// completions returns what completes the last word.
func completions(s *clitest.Session, args ...string) []string {
	_, out, _ := s.Exec(append([]string{"__complete"}, args...)...)
	words := strings.Split(out, "\n")
	return words[:max(0, len(words)-2)] // without the directive
}

// TestFieldsAreCompleted completes fields of lists, also after others.
func TestFieldsAreCompleted(t *testing.T) {
	s := clitest.New(t)
	for _, x := range []struct{ list, flag, start, want string }{
		{"cluster", "--filter", "na", "name="},
		{"cluster", "--filter", "name=shop,lab", "name=shop,labels."},
		{"cluster", "--filter", "status=act", ""},
		{"cluster", "--sort", "name,-numN", "name,-numNodes"},
		{"cluster", "--sort=", "-nam", "-name"},
		{"cluster", "--sort", "service", ""}, // has several values
		{"cluster", "--filter", "services", "services="},
		{"node", "--filter", "hostn", "hostname="},
		{"template", "--sort", "na", "name"},
	} {
		args := []string{x.list, "list", x.flag, x.start}
		if strings.HasSuffix(x.flag, "=") {
			args = []string{x.list, "list", x.flag + x.start}
		}
		if got := strings.Join(completions(s, args...), " "); got != x.want {
			t.Errorf("%s list %s %s completes to %q, not %q", x.list, x.flag, x.start, got, x.want)
		}
	}
}
