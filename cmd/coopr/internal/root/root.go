package root

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coopr/coopr/cmd/coopr/internal/access"
	"github.com/coopr/coopr/cmd/coopr/internal/audit"
	"github.com/coopr/coopr/cmd/coopr/internal/change"
	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/cluster"
	"github.com/coopr/coopr/cmd/coopr/internal/definition"
	"github.com/coopr/coopr/cmd/coopr/internal/mesh"
	"github.com/coopr/coopr/cmd/coopr/internal/operation"
	"github.com/coopr/coopr/cmd/coopr/internal/plan"
	"github.com/coopr/coopr/cmd/coopr/internal/resource"
	"github.com/coopr/coopr/cmd/coopr/internal/run"
	"github.com/coopr/coopr/cmd/coopr/internal/search"
	"github.com/coopr/coopr/internal/manual"
	"github.com/coopr/coopr/internal/release"
)

// Run runs the command line and returns its exit code.
func Run(ctx context.Context, cfg Config, args []string) int {
	a := newApp(cfg)
	root := a.command()
	root.SetArgs(args)
	root.SetIn(cfg.Stdin)
	root.SetOut(cfg.Stdout)
	root.SetErr(cfg.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return a.fail(cmd, err)
}

const help = `Manage clusters: sets of machines and the services on them.

coopr talks to any agent of the mesh. Log in with "coopr login --addr HOST", and
the commands after it talk to that mesh. Programs name an agent with --addr or
COOPR_ADDR, and give a token with --token or COOPR_TOKEN. None of this is needed
on a machine where "coopr-agent --dev" runs.`

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use: "coopr", Short: "Manage clusters of machines and services", Long: help,
		Example: `  coopr import examples/shop
  coopr cluster create shop --template shop --nodes 3
  coopr cluster list --watch`,
		SilenceUsage: true, SilenceErrors: true,
		Version: release.Text("coopr"),
		Args:    cli.NoSuchCommand, RunE: cli.Help, DisableFlagsInUseLine: true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = false
	f := root.PersistentFlags()
	f.StringSliceVar(&a.addr, "addr", nil, "address of an agent: host, host:port or URL; several are separated by commas (env COOPR_ADDR)")
	f.StringVar(&a.token, "token", "", "API token (env COOPR_TOKEN)")
	f.StringVar(&a.tenant, "tenant", "", "tenant to act for, if not the one of the token; superadmins only (env COOPR_TENANT)")
	f.StringVar(&a.caCert, "ca-cert", "", "file with the CA certificates that the agents' certificates are checked against (env COOPR_CACERT)")
	f.StringVar(&a.context, "context", "", "context whose mesh and session are used; see coopr context (env COOPR_CONTEXT)")
	f.BoolVar(&a.stale, "stale", false, "read the contacted agent's copy of the state, which works without a leader; it may be old")
	f.BoolVarP(&a.yes, "yes", "y", false, "answer yes to all questions")
	root.SetFlagErrorFunc(flagError)

	root.AddGroup(
		&cobra.Group{ID: "clusters", Title: "Clusters:"},
		&cobra.Group{ID: "runs", Title: "Jobs:"},
		&cobra.Group{ID: "definitions", Title: "Definitions:"},
		&cobra.Group{ID: "mesh", Title: "Mesh:"},
		&cobra.Group{ID: "access", Title: "Access:"},
	)
	for group, cmds := range map[string][]*cobra.Command{
		"clusters": {
			cluster.Command(a), plan.Command(a), operation.Command(a), change.Command(a), operation.TaskCommand(a),
			cluster.NodeCommand(a), mesh.EventsCommand(a), mesh.MonitorCommand(a),
		},
		"runs": {
			run.Command(a), run.RunsCommand(a), run.ProfileCommand(a), run.ProgramCommand(a), run.ScheduleCommand(a),
			run.SecretCommand(a),
		},
		"definitions": append(definition.Commands(a), definition.ImportCommand(a), definition.ExportCommand(a), resource.Command(a)),
		"mesh": {
			mesh.JoinCommand(a), mesh.LeaveCommand(a), mesh.MembersCommand(a), mesh.StatusCommand(a), mesh.PluginCommand(a),
			mesh.OperatorCommand(a),
		},
		"access": {
			access.LoginCommand(a), access.LogoutCommand(a), access.ContextCommand(a), access.PasswordCommand(a), access.UserCommand(a),
			access.TenantCommand(a), access.TokenCommand(a), access.WhoamiCommand(a), access.PolicyCommand(a), access.GrantCommand(a),
			access.AuthCommand(a), audit.Command(a),
		},
	} {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(search.Command(a), versionCmd(&a.printer), manual.Command())
	cli.CompleteRest(root)
	return root
}

// flagError describes the value that a flag does not accept.
func flagError(cmd *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		return cli.Usage(cmd, "--%s: %q is not %s", bad.GetFlag().Name, bad.GetValue(), typeNames[bad.GetFlag().Value.Type()])
	}
	return cli.Usage(cmd, "%v", err)
}

// typeNames are the types of flags in plain words.
var typeNames = map[string]string{"int": "a whole number", "uint64": "a whole number", "bool": "true or false",
	"duration": "a duration such as 30s or 5m"}
