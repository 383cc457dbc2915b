// Package manual writes the manual pages and the shell completions of a program from its commands.
package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns the hidden command "manual DIR", which writes the files for packages: DIR/man/PROGRAM[-COMMAND].1, and
// DIR/completion/PROGRAM.bash, .zsh and .fish.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "manual DIR", Short: "Write the manual pages and the shell completions to a folder", Hidden: true,
		Example: "  coopr manual dist\n  coopr-agent manual dist", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return Write(c.Root(), args[0]) },
	}
}

// Write writes the manual pages and the shell completions of a program to a folder.
func Write(root *cobra.Command, dir string) error {
	for _, sub := range []string{"man", "completion"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	if err := pages(root, filepath.Join(dir, "man")); err != nil {
		return err
	}
	file := func(shell string) string { return filepath.Join(dir, "completion", root.Name()+"."+shell) }
	if err := root.GenBashCompletionFileV2(file("bash"), true); err != nil {
		return err
	}
	if err := root.GenZshCompletionFile(file("zsh")); err != nil {
		return err
	}
	return root.GenFishCompletionFile(file("fish"), true)
}

// pages writes the page of a command and those of the commands below it.
func pages(c *cobra.Command, dir string) error {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(Page(c)), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := pages(sub, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// Page returns the manual page of a command in roff, for man(7). It has no date, so that equal sources yield equal pages.
func Page(c *cobra.Command) string {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Coopr\" \"Coopr Manual\"\n", escape(strings.ToUpper(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", escape(c.UseLine()))
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(text))
	flags(&b, "OPTIONS", c.NonInheritedFlags())
	flags(&b, "GLOBAL OPTIONS", c.InheritedFlags())
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + lines(c.Example) + ".fi\n")
	}
	var others []string
	if c.HasParent() {
		others = append(others, c.Parent().CommandPath())
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, sub.CommandPath())
		}
	}
	if len(others) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, path := range others {
			end := ","
			if i == len(others)-1 {
				end = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", escape(strings.ReplaceAll(path, " ", "-")), end)
		}
	}
	return b.String()
}

// flags writes a section of flags, if there are any.
func flags(b *strings.Builder, title string, set *pflag.FlagSet) {
	first := true
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if first {
			fmt.Fprintf(b, ".SH %s\n", title)
			first = false
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", escape(f.Name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", escape(value))
		}
		b.WriteString("\n" + lines(usage))
	})
}

// paragraphs returns text in roff. Lines that begin with spaces keep their shape.
func paragraphs(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, " ") {
			b.WriteString(".nf\n" + lines(p) + ".fi\n")
			continue
		}
		b.WriteString(lines(p))
	}
	return b.String()
}

// lines returns text in roff, line by line, none of which is taken for a request.
func lines(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		line = escape(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// escape returns text as roff prints it.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
}
