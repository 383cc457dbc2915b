package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// readInto decodes a YAML or JSON file and refuses unknown fields; "-" is the standard input.
func readInto(app cli.App, file string, into any) error {
	data, err := cli.ReadFile(app, file)
	if err == nil {
		err = decode.Strict(data, into)
	}
	if err != nil {
		return cli.InFile(err, file)
	}
	return nil
}

// ProfileCommand returns the command "profile".
func ProfileCommand(app cli.App) *cobra.Command {
	list := cli.List(app, cli.Listing[profile.Profile]{
		Use: "list", Short: "List profiles", Example: "  coopr profile list\n  coopr profile list -o wide",
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]profile.Profile, client.Meta, error) {
			return c.Profiles(ctx, true, read)
		},
		Rows: func(items []profile.Profile) output.Table {
			t := output.Table{Head: []string{"NAME", "PROVISIONER", "STATUS", "LABEL", "KEEPS FAILED", "KEEPS KILLED"}, Wide: 2}
			for _, p := range items {
				t.Row(shownProfile(p.Ref()), p.Provisioner.Name, p.Status, p.Label, kept(p.KeepAlive.Failed, ""), kept(p.KeepAlive.Killed, ""))
			}
			return t
		},
	})
	return cli.Group("profile", "Manage profiles, by which the clusters of runs are created",
		list, profileShowCmd(app, "get", "Show a profile with its properties, assignments and usage"), profilePutCmd(app, "create", true),
		profilePutCmd(app, "edit", false),
		profileVerbCmd(app, "delete", "Delete a profile that is disabled and not in use", func(ctx context.Context, c *client.Client,
			name string) error {
			return c.DeleteProfile(ctx, name)
		}),
		profileVerbCmd(app, "enable", "Enable a profile", func(ctx context.Context, c *client.Client, name string) error {
			return c.EnableProfile(ctx, name, true)
		}),
		profileVerbCmd(app, "disable", "Disable a profile: no new runs can use it", func(ctx context.Context, c *client.Client,
			name string) error {
			return c.EnableProfile(ctx, name, false)
		}),
		profileStatsCmd(app), profileAssignCmd(app), profileUnassignCmd(app), profileFindCmd(app), provisionersCmd(app))
}

// shownProfile returns the name of a profile, with its scope unless that is the tenant.
func shownProfile(r profile.Ref) string {
	if r.Scope == profile.User {
		return r.Name
	}
	return r.String()
}

func profileShowCmd(app cli.App, use, short string) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: use + " NAME", Aliases: []string{"show"}, Short: short, Args: cli.Args("NAME"),
		Example: "  coopr profile show small\n  coopr profile show SYSTEM:native", ValidArgsFunction: completeProfiles(app)}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (api.ProfileDetails, error) {
		p, _, err := c.Profile(ctx, args[0], client.Read{})
		return p, err
	}, func(p api.ProfileDetails) {
		out.Printf("%s (%s)\n", p.Ref(), out.Paint(output.ColourOf(strings.ToLower(p.Status)), p.Status))
		for _, line := range []string{p.Label, p.Description} {
			if line != "" {
				out.Println(line)
			}
		}
		out.Printf("\nProvisioner: %s\n", p.Provisioner.Name)
		if len(p.Provisioner.Properties) > 0 {
			t := output.Table{Head: []string{"PROPERTY", "VALUE", "EDITABLE", "RANGE"}}
			for _, q := range p.Provisioner.Properties {
				t.Row(q.Name, q.Value, output.YesNo(!q.Locked()), q.Range.String())
			}
			out.Show(t)
		}
		out.Printf("\nNodes are kept after a failure: %s; after a stop with --keep: %s\n", kept(p.KeepAlive.Failed, "no"),
			kept(p.KeepAlive.Killed, "until they are deleted by hand"))
		out.Printf("Time limit for provisioning: %s; for deletion: %s\n", cmp.Or(p.Timeout, profile.DefaultTimeout),
			cmp.Or(p.DeprovisionTimeout, profile.DefaultDeprovision))
		if runs, launching := p.Limits.Bounds(); runs != profile.Unlimited || launching != profile.Unlimited {
			out.Printf("Runs at a time, including runs whose nodes are kept: %s; of these in provisioning: %s\n", bound(runs), bound(launching))
		}
		if len(p.Assigned) > 0 {
			out.Printf("Assigned to: %s\n", strings.Join(p.Assigned, ", "))
		}
		out.Println()
		showUsage(out, p.Usage)
	})
	return cmd
}

// kept returns how long nodes are kept, or none if no time is set.
func kept(m model.Millis, none string) string {
	if m == 0 {
		return none
	}
	return m.String()
}

// bound returns a limit as text.
func bound(n int) string {
	if n == profile.Unlimited {
		return "any number"
	}
	return fmt.Sprintf("at most %d", n)
}

// existsError is the error of creating what exists already.
type existsError string

func (e existsError) Error() string { return string(e) }

// Is makes the command end with the exit code of a conflict.
func (existsError) Is(target error) bool { return target == client.ErrConflict }

// showUsage shows what the runs of a profile have used.
func showUsage(out *output.Printer, u profile.Usage) {
	t := output.Table{Head: []string{"RUNS", "COMPLETED", "FAILED", "KILLED", "REJECTED", "ACTIVE", "NODES UP", "NODE-MINUTES",
		"PROVISIONING"}}
	took := ""
	if u.Provisioned > 0 {
		took = (time.Duration(u.ProvisioningMillis/u.Provisioned) * time.Millisecond).Round(time.Millisecond).String()
	}
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	t.Row(n(u.Runs), n(u.Completed), n(u.Failed), n(u.Killed), n(u.Rejected), n(u.Active), n(u.NodesUp), n(u.NodeMinutes), took)
	out.Show(t)
}

func profileStatsCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "stats NAME", Short: "Show the results and the usage of the runs of a profile", Args: cli.Args("NAME"),
		Example: "  coopr profile stats small", ValidArgsFunction: completeProfiles(app)}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Show(app, func(ctx context.Context, c *client.Client, args []string) (profile.Usage, error) {
		p, _, err := c.Profile(ctx, args[0], client.Read{})
		return p.Usage, err
	}, func(u profile.Usage) { showUsage(out, u) })
	return cmd
}

// profileFlags holds the flags that describe a profile.
type profileFlags struct {
	file, provisioner, label, description, keepFailed, keepKilled, timeout string
	properties, locked, ranges                                             []string
	runs                                                                   int
}

func profilePutCmd(app cli.App, use string, create bool) *cobra.Command {
	out := app.Printer()
	var f profileFlags
	short := "Change a profile; values without a flag stay unchanged"
	if create {
		short = "Create a profile"
	}
	cmd := &cobra.Command{Use: use + " NAME", Short: short, Args: cli.Args("NAME"),
		Example: "  coopr profile " + use + " small --provisioner local -p numMachines=3 --range numMachines=2..10 --keep-failed 1h\n" +
			"  coopr profile " + use + " big -f big.yaml"}
	if !create {
		cmd.ValidArgsFunction = completeProfiles(app)
	}
	s := cmd.Flags()
	s.StringVarP(&f.file, "file", "f", "", "YAML or JSON file with the profile; -: standard input")
	s.StringVar(&f.provisioner, "provisioner", "", "provisioner that creates the clusters; coopr profile provisioners lists them")
	s.StringArrayVarP(&f.properties, "property", "p", nil, "property that runs can override, as NAME=value; may be repeated")
	s.StringArrayVarP(&f.locked, "locked", "l", nil, "property that runs cannot override, as NAME=value; may be repeated")
	s.StringArrayVar(&f.ranges, "range", nil,
		"bounds of a numeric property, as NAME=MIN..MAX, NAME=MIN.. or NAME=..MAX; NAME= removes them; may be repeated")
	s.StringVar(&f.label, "label", "", "display name")
	s.StringVar(&f.description, "description", "", "description")
	s.StringVar(&f.keepFailed, "keep-failed", "", "how long to keep the nodes of a failed run, such as 1h")
	s.StringVar(&f.keepKilled, "keep-killed", "", "how long to keep the nodes of a run that was stopped with --keep")
	s.StringVar(&f.timeout, "timeout", "", "time limit for provisioning (default 5m)")
	cli.CompleteFlag(cmd, "provisioner", completeProvisioners(app))
	s.IntVar(&f.runs, "max-runs", -1, "largest number of runs at a time, including runs whose nodes are kept; -1: no limit")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		var p profile.Profile
		switch have, _, err := c.Profile(ctx, args[0], client.Read{}); {
		case create && err == nil:
			return existsError(fmt.Sprintf("profile %s exists already; to change it: coopr profile edit %s", have.Ref(), args[0]))
		case create && errors.Is(err, client.ErrNotFound):
		case err != nil:
			return err
		default:
			p = have.Profile
		}
		if f.file != "" {
			var shown api.ProfileDetails // as coopr profile get shows it
			if err := readInto(app, f.file, &shown); err != nil {
				return err
			}
			p = shown.Profile
		}
		p.Name, p.Scope, p.Status, p.Created, p.Version = "", "", "", 0, 0
		if err := f.into(cmd, &p); err != nil {
			return err
		}
		p, _, err := c.PutProfile(ctx, args[0], p)
		if err != nil {
			return err
		}
		out.Printf("Profile %s was %s.\n", p.Ref(), map[bool]string{true: "created", false: "changed"}[create])
		return nil
	})
	return cmd
}

// into applies the flags to a profile.
func (f *profileFlags) into(cmd *cobra.Command, p *profile.Profile) error {
	for flag, into := range map[string]*string{"provisioner": &p.Provisioner.Name, "label": &p.Label, "description": &p.Description} {
		if v, _ := cmd.Flags().GetString(flag); v != "" {
			*into = v
		}
	}
	for flag, into := range map[string]*model.Millis{"keep-failed": &p.KeepAlive.Failed, "keep-killed": &p.KeepAlive.Killed,
		"timeout": &p.Timeout} {
		if v, _ := cmd.Flags().GetString(flag); v != "" {
			m, err := millis(v)
			if err != nil {
				return cli.Usage(cmd, "--%s: %v", flag, err)
			}
			*into = m
		}
	}
	if cmd.Flags().Changed("max-runs") {
		p.Limits.Runs = &f.runs
	}
	for i, list := range [][]string{f.properties, f.locked} {
		for _, pair := range list {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return cli.Usage(cmd, "property %q must have the form NAME=value", pair)
			}
			q := profile.Property{Name: name, Value: value}
			if i == 1 {
				q.Editable = new(bool)
			}
			p.Provisioner.Properties = withProperty(p.Provisioner.Properties, q)
		}
	}
	for _, pair := range f.ranges {
		name, value, _ := strings.Cut(pair, "=")
		i := slices.IndexFunc(p.Provisioner.Properties, func(q profile.Property) bool { return q.Name == name })
		if i < 0 {
			return cli.Usage(cmd, "--range: the profile has no property %q: give it a value with -p", name)
		}
		var bounds *profile.Range
		if value != "" {
			var err error
			if bounds, err = profile.ParseRange(value); err != nil {
				return cli.Usage(cmd, "--range: %v", err)
			}
		}
		p.Provisioner.Properties[i].Range = bounds
	}
	return nil
}

// withProperty adds a property to a list, or replaces the one of the same name, whose range stays.
func withProperty(list []profile.Property, p profile.Property) []profile.Property {
	for i := range list {
		if list[i].Name == p.Name {
			p.Range = list[i].Range
			list[i] = p
			return list
		}
	}
	return append(list, p)
}

// millis parses a duration in the form that definitions use.
func millis(s string) (model.Millis, error) {
	var v struct {
		D model.Millis `json:"d"`
	}
	err := decode.Strict([]byte("d: "+s), &v)
	return v.D, err
}

// profileVerbCmd returns a command that does one thing with a profile.
func profileVerbCmd(app cli.App, verb, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: verb + " NAME", Short: short, Args: cli.Args("NAME"), Example: "  coopr profile " + verb + " small",
		ValidArgsFunction: completeProfiles(app)}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		if err := do(ctx, c, args[0]); err != nil {
			return err
		}
		out.Printf("Profile %s was %s.\n", args[0], strings.TrimSuffix(verb, "e")+"ed")
		return nil
	})
	return cmd
}

// profileAssignCmd makes a profile the default of the tenant or of a program.
func profileAssignCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var program string
	cmd := &cobra.Command{Use: "assign NAME", Short: "Make a profile the default for the runs of the tenant or of a program",
		Args:    cli.Args("NAME"),
		Example: "  coopr profile assign small\n  coopr profile assign big --program wordcount", ValidArgsFunction: completeProfiles(app)}
	cmd.Flags().StringVar(&program, "program", "", "assign to this program instead of the tenant")
	cli.CompleteFlag(cmd, "program", completePrograms(app))
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		return assign(ctx, out, c, program, args[0])
	})
	return cmd
}

func profileUnassignCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var program string
	cmd := &cobra.Command{Use: "unassign", Short: "Unassign the default profile of the tenant or of a program", Args: cli.Args(),
		Example: "  coopr profile unassign\n  coopr profile unassign --program wordcount"}
	cmd.Flags().StringVar(&program, "program", "", "unassign from this program instead of the tenant")
	cli.CompleteFlag(cmd, "program", completePrograms(app))
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, _ []string) error {
		return assign(ctx, out, c, program, "")
	})
	return cmd
}

// assign sets the default profile in the preferences of a program or of the tenant; "" removes it.
func assign(ctx context.Context, out *output.Printer, c *client.Client, program, name string) error {
	p, _, err := c.Preferences(ctx, program, client.Read{})
	if err != nil {
		return err
	}
	if p.Properties == nil {
		p.Properties = map[string]string{}
	}
	if p.Properties[profile.ProfileKey] = name; name == "" {
		delete(p.Properties, profile.ProfileKey)
	}
	if err := c.PutPreferences(ctx, program, p.Properties); err != nil {
		return err
	}
	whose := "the tenant"
	if program != "" {
		whose = "program " + program
	}
	if name == "" {
		out.Printf("Runs of %s use the default profile of the level above.\n", whose)
	} else {
		out.Printf("Runs of %s use profile %s unless they name another one.\n", whose, name)
	}
	return nil
}

func profileFindCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{Use: "find NAME", Short: "Find the programs and schedules whose runs use a profile", Args: cli.Args("NAME"),
		Example: "  coopr profile find small", ValidArgsFunction: completeProfiles(app)}
	cli.FormFlag(cmd, output.FormTable, output.FormJSON, output.FormYAML)
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		list, _, err := c.Search(ctx, "profile:"+args[0], client.Read{})
		switch {
		case err != nil:
			return err
		case out.Structured():
			return out.Encode(list)
		case len(list) == 0:
			out.Println("Nothing uses this profile.")
			return nil
		}
		t := output.Table{Head: []string{"TYPE", "NAME"}}
		for _, f := range list {
			t.Row(f.Type, f.Name)
		}
		out.Show(t)
		return nil
	})
	return cmd
}

func provisionersCmd(app cli.App) *cobra.Command {
	cmd := cli.List(app, cli.Listing[profile.Spec]{
		Use: "provisioners", Short: "List the provisioners, which create the clusters of runs",
		Example: "  coopr profile provisioners\n  coopr profile provisioners -o json", Still: true,
		Fetch: func(ctx context.Context, c *client.Client, _ []string, read client.Read) ([]profile.Spec, client.Meta, error) {
			return c.Provisioners(ctx, read)
		},
		Rows: func(items []profile.Spec) output.Table {
			t := output.Table{Head: []string{"NAME", "DESCRIPTION", "PROPERTIES"}}
			for _, s := range items {
				var names []string
				for _, g := range s.Groups {
					for _, p := range g.Properties {
						names = append(names, p.Name)
					}
				}
				t.Row(s.Name, s.Description, strings.Join(names, " "))
			}
			return t
		},
	})
	return cmd
}
