package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestEveryCommandHelps looks at each command's help: it has an example, and
// the example is one that the command line takes.
func TestEveryCommandHelps(t *testing.T) {
	s := newSession(t)
	var walk func(path []string)
	n := 0
	walk = func(path []string) {
		a := &app{env: func(string) string { return "" }, now: time.Now, out: &bytes.Buffer{}, err: &bytes.Buffer{}}
		cmd, _, err := a.root().Find(path)
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
		if code, out, _ := s.exec(append(path, "--help")...); code != 0 || out == "" {
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
		words := splitWords(strings.TrimSpace(part))
		if len(words) == 0 || words[0] != "coopr" {
			continue
		}
		a := &app{env: func(string) string { return "" }, now: time.Now, out: &bytes.Buffer{}, err: &bytes.Buffer{}}
		root := a.root()
		root.SetArgs(words[1:])
		cmd, rest, err := root.Find(words[1:])
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

// splitWords splits a line as a shell would, as far as examples go.
func splitWords(line string) []string {
	var words []string
	var word strings.Builder
	quote := rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && r == ' ':
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(r)
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}
