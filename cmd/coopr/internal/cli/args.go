package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
	"github.com/coopr/coopr/internal/words"
)

// Group returns a command that only has other commands below it.
func Group(use, short string, cmds ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: NoSuchCommand, RunE: Help, DisableFlagsInUseLine: true}
	c.AddCommand(cmds...)
	return c
}

// Help shows the help of a command.
func Help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// NoSuchCommand refuses an unknown command and suggests the name nearest to it.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	hint := ""
	if near := words.Nearest(args[0], names); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return Usage(cmd, "there is no command %q%s", cmd.CommandPath()+" "+args[0], hint)
}

// Args requires exactly the named arguments. A name that ends in … may be repeated, one that begins
// with a bracket may be left out.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		for i, name := range names {
			if len(given) <= i && !strings.HasPrefix(name, "[") {
				return Usage(cmd, "%s is missing", strings.TrimSuffix(name, "…"))
			}
		}
		if len(given) > len(names) && (len(names) == 0 || !strings.HasSuffix(names[len(names)-1], "…")) {
			return Usage(cmd, "unexpected argument %q", given[len(names)])
		}
		return nil
	}
}

// formsKey is the annotation of a command that lists the forms of its output.
const formsKey = "forms"

// FormFlag adds --output to a command; the first form is the default.
func FormFlag(cmd *cobra.Command, forms ...string) {
	cmd.Flags().StringP("output", "o", forms[0], "output format: "+strings.Join(forms, ", "))
	CompleteValues(cmd, "output", forms...)
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[formsKey] = strings.Join(forms, ",")
}

// ReadForm sets the printer's form to the one that the command line asks for.
func ReadForm(out *output.Printer, cmd *cobra.Command) error {
	forms := cmd.Annotations[formsKey]
	if forms == "" {
		out.Form = output.FormTable
		return nil
	}
	out.Form, _ = cmd.Flags().GetString("output")
	if !slices.Contains(strings.Split(forms, ","), out.Form) {
		return Usage(cmd, "--output: there is no format %q; use one of %s", out.Form, strings.ReplaceAll(forms, ",", ", "))
	}
	return nil
}

// Pair splits a flag's value of the form name=value.
func Pair(text string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(text, "=")
	return name, value, ok && name != ""
}
