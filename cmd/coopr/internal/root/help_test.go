package root_test

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

// TestEveryCommandHelps checks that the help of each command has an example, and that the command line
// accepts the example.
func TestEveryCommandHelps(t *testing.T) {
	s := clitest.New(t)
	var walk func(path []string)
	n := 0
	walk = func(path []string) {
		cmd, _, err := root.Command().Find(path)
		if err != nil {
			t.Fatal(err)
		}
		n++
		if cmd.Name() == "completion" || cmd.Name() == "help" {
			return
		}
		if !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		if code, out, _ := s.Exec(append(path, "--help")...); code != 0 || out == "" {
			t.Errorf("%s --help: %d", cmd.CommandPath(), code)
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			checkExample(t, line)
		}
		for _, sub := range cmd.Commands() {
			walk(append(append([]string{}, path...), sub.Name()))
		}
	}
	walk(nil)
	if n < 60 {
		t.Errorf("only %d commands", n)
	}
}

// checkExample parses one line of an example, without running it.
func checkExample(t *testing.T, line string) {
	t.Helper()
	for _, part := range strings.Split(line, "|") {
		part, _, _ = strings.Cut(part, ">")
		words := clitest.SplitWords(strings.TrimSpace(part))
		if len(words) == 0 || words[0] != "coopr" {
			continue
		}
		cmd, rest, err := root.Command().Find(words[1:])
		if err != nil || cmd.HasSubCommands() {
			t.Errorf("example %q: no such command: %v", line, err)
			continue
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Errorf("example %q: %v", line, err)
			continue
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Errorf("example %q: %v", line, err)
		}
	}
}
