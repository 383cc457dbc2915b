package root_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

// TestFilesOnlyForFiles checks that the shell offers its files only where a file or a folder is expected.
func TestFilesOnlyForFiles(t *testing.T) {
	files := map[string]bool{"file": true, "config": true, "dir": true, "ca-cert": true, "key": true, "exclude": true}
	n := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if _, args, _ := strings.Cut(cmd.Use, " "); cmd.Runnable() && !cmd.HasSubCommands() {
			if cmd.ValidArgsFunction == nil && !strings.Contains(args, "FILE") && !strings.Contains(args, "DIR") {
				t.Errorf("%s: arguments %q complete to files", cmd.CommandPath(), args)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" {
				return
			}
			n++
			if _, ok := cmd.GetFlagCompletionFunc(f.Name); ok == files[f.Name] {
				t.Errorf("%s --%s: %s: has a completion of its own: %v", cmd.CommandPath(), f.Name, f.Usage, ok)
			}
		})
	}
	walk(root.Command())
	if n < 300 {
		t.Errorf("only %d flags", n)
	}
}

// TestIDsAreCompleted completes ids that nobody types.
func TestIDsAreCompleted(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"task", "get", ""}, "00000001-001/\tcreate"},
		{[]string{"task", "log", "00000001-001/0"}, "00000001-001/0\tCREATE web1-1000"},
		{[]string{"audit", "list", "--node", ""}, "00000001-1000\t"},
		{[]string{"events", "--cluster", "w"}, "web\t"},
		{[]string{"cluster", "grow", "web", "--on-failure", "p"}, "pause\n"},
		{[]string{"cluster", "create", "x", "--services", "ng"}, "nginx\t"},
		{[]string{"leave", ""}, "a\t"},
		{[]string{"template", "lint", "sh"}, "shop\tA web shop\n:0\n"}, // or a file
		{[]string{"policy", "put", "rails", ""}, ":0\n"},
		{[]string{"template", "solve", "shop", "--hardware", "sm"}, "small\tOne core\n:4\n"},
	} {
		if code, out, errs := s.Exec(append([]string{"__complete"}, x.args...)...); code != 0 || !strings.Contains(out, x.want) {
			t.Errorf("%v: %d\n%s\n%s", x.args, code, out, errs)
		}
	}
}
