// Package definition holds the commands for definitions: templates, services, providers, hardware and images.
package definition

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// noun is a kind of definition, as the command line names it.
type noun struct {
	kind    model.Kind
	use     string
	word    string
	example string // a name for the examples
	columns []string
	cells   func(map[string]any) []string
}

// nouns returns all kinds of definitions.
func nouns() []noun {
	return []noun{
		{model.KindClusterTemplate, "template", "cluster template", "shop", []string{"SERVICES", "PROVIDER"}, func(d map[string]any) []string {
			defaults, _ := d["defaults"].(map[string]any)
			var names []string
			list, _ := defaults["services"].([]any)
			for _, s := range list {
				if m, ok := s.(map[string]any); ok {
					s = m["name"]
				}
				names = append(names, fmt.Sprint(s))
			}
			return []string{strings.Join(names, ","), text(defaults["provider"])}
		}},
		{model.KindPartialTemplate, "partial", "partial template", "monitoring", []string{"IMMUTABLE"}, func(d map[string]any) []string {
			b, _ := d["immutable"].(bool)
			return []string{output.YesNo(b)}
		}},
		{model.KindService, "service", "service", "nginx", []string{"ACTIONS"}, func(d map[string]any) []string {
			p, _ := d["provisioner"].(map[string]any)
			actions, _ := p["actions"].(map[string]any)
			return []string{strings.Join(keys(actions), ",")}
		}},
		{model.KindProvider, "provider", "provider", "local", []string{"TYPE"}, func(d map[string]any) []string {
			return []string{text(d["providertype"])}
		}},
		{model.KindHardwareType, "hardwaretype", "hardware type", "small", []string{"PROVIDERS"}, providers},
		{model.KindImageType, "imagetype", "image type", "debian", []string{"PROVIDERS"}, providers},
	}
}

// withArticle returns a noun with its article: "a service", "an image type".
func withArticle(word string) string {
	if strings.Contains("aeio", word[:1]) {
		return "an " + word
	}
	return "a " + word
}

// providers returns the cell with the providers of a hardware or image type.
func providers(d map[string]any) []string {
	m, _ := d["providermap"].(map[string]any)
	return []string{strings.Join(keys(m), ",")}
}

// text returns a value as text; nil is empty.
func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// keys returns the sorted keys of a map.
func keys(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// Commands returns a command for each kind of definition.
func Commands(app cli.App) []*cobra.Command {
	var out []*cobra.Command
	for _, n := range nouns() {
		out = append(out, definitionCmd(app, n))
	}
	return out
}

func definitionCmd(app cli.App, n noun) *cobra.Command {
	out := app.Printer()
	plural := n.word + "s"
	list := cli.List(app, cli.Listing[json.RawMessage]{
		Use: "list", Short: "List the " + plural, Example: fmt.Sprintf("  coopr %s list\n  coopr %s list -o yaml", n.use, n.use),
		Empty: "There are no " + plural + " yet. To add some: coopr import DIR",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]json.RawMessage, client.Meta, error) {
			return c.Definitions(ctx, n.kind, read)
		},
		Rows: func(items []json.RawMessage) output.Table {
			t := output.Table{Head: append(append([]string{"NAME", "VERSION"}, n.columns...), "DESCRIPTION", "LABEL"), Wide: 1}
			for _, raw := range items {
				var d map[string]any
				_ = json.Unmarshal(raw, &d)
				t.Row(append(append([]string{text(d["name"]), text(d["version"])}, n.cells(d)...), text(d["description"]),
					text(d["label"]))...)
			}
			return t
		},
	})

	var version int
	get := &cobra.Command{
		Use: "get NAME", Short: "Show " + withArticle(n.word) + ", in its latest or another version", Args: cli.Args("NAME"),
		Example:           fmt.Sprintf("  coopr %s get %s\n  coopr %s get %s --version 1 -o json", n.use, n.example, n.use, n.example),
		ValidArgsFunction: cli.CompleteDefinitions(app, n.kind),
	}
	get.Flags().IntVar(&version, "version", 0, "version (default: the latest)")
	cli.FormFlag(get, output.FormYAML, output.FormJSON)
	get.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (json.RawMessage, error) {
		d, _, err := c.Definition(ctx, n.kind, args[0], version, client.Read{})
		return d, err
	}, nil)

	put := &cobra.Command{
		Use: "put FILE", Short: "Write " + withArticle(n.word) + " from a JSON or YAML file; -: standard input", Args: cli.Args("FILE"),
		Example: fmt.Sprintf("  coopr %s put %s.yaml\n  coopr %s get %s | sed s/old/new/ | coopr %s put -", n.use, n.example, n.use,
			n.example, n.use),
	}
	put.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		data, err := cli.ReadFile(app, args[0])
		if err != nil {
			return err
		}
		def, err := decode.Definition(n.kind, data)
		if err != nil {
			return cli.InFile(err, args[0])
		}
		body, err := model.Encode(def)
		if err != nil {
			return err
		}
		written, meta, err := c.PutDefinition(ctx, n.kind, def.Name, body)
		if err != nil {
			return err
		}
		var base model.Base
		if err := json.Unmarshal(written, &base); err != nil {
			return err
		}
		how := ""
		if meta.Repeated {
			how = ", which existed already"
		}
		out.Printf("%s %s was written as version %d%s.\n", n.word, def.Name, base.Version, how)
		return nil
	})

	var one int
	var force bool
	del := &cobra.Command{
		Use: "delete NAME", Short: "Delete " + withArticle(n.word) + ", or one version of it", Args: cli.Args("NAME"),
		Example:           fmt.Sprintf("  coopr %s delete %s --yes\n  coopr %s delete %s --version 2", n.use, n.example, n.use, n.example),
		ValidArgsFunction: cli.CompleteDefinitions(app, n.kind),
	}
	del.Flags().IntVar(&one, "version", 0, "delete only this version")
	del.Flags().BoolVar(&force, "force", false, "delete it even if it is in use")
	what := func(args []string) string {
		if one > 0 {
			return fmt.Sprintf("version %d of %s %s", one, n.word, args[0])
		}
		return fmt.Sprintf("all versions of %s %s", n.word, args[0])
	}
	del.RunE = cli.Confirmed(app, func(args []string) string { return "Delete " + what(args) + "?" },
		func(ctx context.Context, c *client.Client, args []string) error {
			_, err := c.DeleteDefinition(ctx, n.kind, args[0], one, force)
			if err == nil {
				out.Printf("Deleted %s.\n", what(args))
			}
			return err
		})

	versions := &cobra.Command{
		Use: "versions NAME", Short: "List the versions of " + withArticle(n.word), Args: cli.Args("NAME"),
		Example:           fmt.Sprintf("  coopr %s versions %s", n.use, n.example),
		ValidArgsFunction: cli.CompleteDefinitions(app, n.kind),
	}
	cli.FormFlag(versions, output.FormTable, output.FormJSON, output.FormYAML, output.FormWide)
	versions.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		all, _, err := c.Versions(ctx, n.kind, args[0], client.Read{})
		if err != nil {
			return err
		}
		if out.Structured() {
			return out.Encode(all)
		}
		t := output.Table{Head: []string{"VERSION", "DESCRIPTION"}}
		for _, raw := range all {
			var base model.Base
			if err := json.Unmarshal(raw, &base); err != nil {
				return err
			}
			t.Row(strconv.Itoa(base.Version), base.Description)
		}
		out.Show(t)
		return nil
	})
	all := cli.Group(n.use, "Manage "+plural, list, get, put, del, versions)
	if n.kind == model.KindClusterTemplate {
		all.AddCommand(templateLintCmd(app), templateSolveCmd(app))
	}
	if n.kind == model.KindProvider {
		all.AddCommand(orphansCmd(app))
	}
	return all
}
