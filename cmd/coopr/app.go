package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// app is one run of the command: its surroundings and its global flags.
type app struct {
	in                      io.Reader
	out, err                io.Writer
	env                     func(string) string
	inTerminal, outTerminal bool
	width                   func() int
	now                     func() time.Time // nil: time.Now

	addr   []string
	token  string
	tenant string
	caCert string
	output string
	yes    bool
	// pace is the least time between two looks at something that moves.
	pace time.Duration
	// patience of the client; 0 means its default.
	patience time.Duration
}

func (a *app) run(ctx context.Context, args []string) int {
	if a.now == nil {
		a.now = time.Now
	}
	if a.pace == 0 {
		a.pace = 250 * time.Millisecond
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	cmd, err := root.ExecuteContextC(ctx)
	return a.exit(cmd, err)
}

const rootHelp = `Manage clusters: sets of machines and the services on them.

Any agent of the mesh will do: name one with --addr or COOPR_ADDR. The token
comes from --token or COOPR_TOKEN. On a machine where "coopr-agent --dev" runs
neither is needed.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "coopr", Short: "Manage clusters of machines and services", Long: rootHelp,
		Example: `  coopr import examples/
  coopr cluster create shop --template shop --nodes 3
  coopr cluster list --watch`,
		SilenceUsage: true, SilenceErrors: true,
		Args: noSuchCommand, RunE: help,
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	f := root.PersistentFlags()
	f.StringSliceVar(&a.addr, "addr", nil, "address of an agent, host or host:port or URL; repeat it or separate with commas (env COOPR_ADDR)")
	f.StringVar(&a.token, "token", "", "token to act with (env COOPR_TOKEN)")
	f.StringVar(&a.tenant, "tenant", "", "another tenant than the token's, for superadmins (env COOPR_TENANT)")
	f.StringVar(&a.caCert, "ca-cert", "", "file with the certificates to check the agents' against (env COOPR_CACERT)")
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask, do it")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			return usage(cmd, "--%s: %q is no %s", bad.GetFlag().Name, bad.GetValue(), typeNames[bad.GetFlag().Value.Type()])
		}
		return usage(cmd, "%v", err)
	})

	root.AddGroup(
		&cobra.Group{ID: "clusters", Title: "Clusters:"},
		&cobra.Group{ID: "runs", Title: "Jobs:"},
		&cobra.Group{ID: "definitions", Title: "Definitions:"},
		&cobra.Group{ID: "mesh", Title: "The mesh:"},
		&cobra.Group{ID: "access", Title: "Access:"},
	)
	for group, cmds := range map[string][]*cobra.Command{
		"clusters":    {a.clusterCmd(), a.planCmd(), a.operationCmd(), a.changeObjectsCmd(), a.taskCmd(), a.nodeCmd(), a.eventsCmd()},
		"runs":        {a.runCmd(), a.runsCmd(), a.profileCmd(), a.programCmd(), a.scheduleCmd(), a.secretCmd()},
		"definitions": append(a.definitionCmds(), a.importCmd(), a.exportCmd(), a.resourceCmd()),
		"mesh":        {a.joinCmd(), a.leaveCmd(), a.membersCmd(), a.statusCmd(), a.pluginCmd(), a.operatorCmd()},
		"access":      {a.tenantCmd(), a.tokenCmd(), a.auditCmd()},
	} {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.AddCommand(a.versionCmd())
	return root
}

// typeNames are the flags' types in words.
var typeNames = map[string]string{"int": "whole number", "uint64": "whole number", "bool": "yes or no (true, false)"}

// group is a command that only has others below it.
func group(use, short string, cmds ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noSuchCommand, RunE: help}
	c.AddCommand(cmds...)
	return c
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	hint := ""
	if near := model.Nearest(args[0], names); near != "" {
		hint = fmt.Sprintf(": did you mean %q?", cmd.CommandPath()+" "+near)
	}
	return usage(cmd, "there is no command %q%s", cmd.CommandPath()+" "+args[0], hint)
}

// args wants exactly the named arguments; one that ends in … may be repeated,
// one in brackets left out.
func args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		for i, name := range names {
			if len(given) <= i && !strings.HasPrefix(name, "[") {
				return usage(cmd, "%s is missing", strings.TrimSuffix(name, "…"))
			}
		}
		if len(given) > len(names) && (len(names) == 0 || !strings.HasSuffix(names[len(names)-1], "…")) {
			return usage(cmd, "%q is one argument too many", given[len(names)])
		}
		return nil
	}
}

// devFile is what "coopr-agent --dev" leaves for its user.
type devFile struct {
	Addr  string `json:"addr"`
	Token string `json:"token"`
}

// client gives a client of the mesh that flags, environment and the dev
// agent's file name, in this order.
func (a *app) client() (*client.Client, error) {
	cfg := client.Config{Addresses: a.addr, Token: a.token, Tenant: a.tenant, CACert: a.caCert, Patience: a.patience}
	pick := func(value *string, name string) {
		if *value == "" {
			*value = a.env(name)
		}
	}
	if len(cfg.Addresses) == 0 {
		for _, addr := range strings.Split(a.env("COOPR_ADDR"), ",") {
			if addr = strings.TrimSpace(addr); addr != "" {
				cfg.Addresses = append(cfg.Addresses, addr)
			}
		}
	}
	pick(&cfg.Token, "COOPR_TOKEN")
	pick(&cfg.Tenant, "COOPR_TENANT")
	pick(&cfg.CACert, "COOPR_CACERT")
	if len(cfg.Addresses) == 0 || cfg.Token == "" {
		dev, err := a.dev()
		if err != nil {
			return nil, err
		}
		// The dev agent's token is not for other agents.
		if len(cfg.Addresses) == 0 && dev.Addr != "" {
			cfg.Addresses = []string{dev.Addr}
		}
		if cfg.Token == "" && len(cfg.Addresses) == 1 && plainAddr(cfg.Addresses[0]) == plainAddr(dev.Addr) {
			cfg.Token = dev.Token
		}
	}
	return client.New(cfg)
}

// plainAddr is an address as it is compared.
func plainAddr(addr string) string {
	return strings.TrimSuffix(strings.TrimPrefix(addr, "http://"), "/")
}

func (a *app) dev() (devFile, error) {
	dir := a.env("XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(a.env("HOME"), ".config")
	}
	var d devFile
	path := filepath.Join(dir, "coopr", "dev.json")
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d, nil
	case err != nil:
		return d, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("%s: %w: remove it, or start coopr-agent --dev again", path, err)
	}
	return d, nil
}

// with runs a function with a client.
func (a *app) with(fn func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.checkOutput(cmd); err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		defer c.Close()
		return fn(cmd.Context(), c, args)
	}
}

// confirm asks before something is done that cannot be undone. Without a
// terminal nobody can be asked: then --yes must be there.
func (a *app) confirm(cmd *cobra.Command, question string) error {
	if a.yes {
		return nil
	}
	if !a.inTerminal || !a.outTerminal {
		return usage(cmd, "%s There is no terminal to answer on: add --yes", question)
	}
	return a.ask(question)
}

// ask puts a question on a terminal.
func (a *app) ask(question string) error {
	fmt.Fprintf(a.out, "%s [y/N] ", question)
	answer, err := readLine(a.in)
	if err != nil && answer == "" {
		fmt.Fprintln(a.out)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errDeclined
}

// readLine reads up to the end of a line and no further.
func readLine(r io.Reader) (string, error) {
	var line []byte
	b := make([]byte, 1)
	for {
		n, err := r.Read(b)
		if n > 0 {
			if b[0] == '\n' {
				return string(line), nil
			}
			line = append(line, b[0])
		}
		if err != nil {
			return string(line), err
		}
	}
}
