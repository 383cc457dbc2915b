// Command coopr-agent is the daemon: every control host runs one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	_ "time/tzdata" // schedules have time zones, and a host may have no files of them

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/agent"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/keystore"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/internal/loglimit"
	"github.com/coopr/coopr/internal/logtap"
	"github.com/coopr/coopr/internal/manual"
	"github.com/coopr/coopr/internal/priority"
	"github.com/coopr/coopr/internal/release"
	"github.com/coopr/coopr/plugins/confine"
)

func main() {
	confine.Hook()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	c := command()
	c.SetContext(ctx)
	if code := execute(c, os.Stderr); code != 0 {
		os.Exit(code)
	}
}

// execute runs a command and returns the exit code of the program.
func execute(c *cobra.Command, errs io.Writer) int {
	err := c.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "coopr-agent:", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return 2
	}
	return 1
}

// raisePriority lets an agent that may be a voter run before the other work of its machine, if it may.
func raisePriority(log *slog.Logger) {
	if err := priority.Raise(); err != nil {
		log.Info("this agent may not raise its priority: other agents may take it for dead when the machine is busy", "error", err)
		return
	}
	if nice, err := priority.Nice(); err == nil && nice < 0 {
		log.Info("this agent has a higher priority than other programs of the machine", "nice", nice)
	}
}

// usageError is an error of the command line or the configuration. The exit code is 2.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "coopr-agent",
		Short:         "Run a Coopr agent",
		Long:          "coopr-agent is the daemon of Coopr. Every control host runs one; together they are the mesh.",
		Example:       "  coopr-agent --dev\n  coopr-agent run --config /etc/coopr/agent.yaml",
		SilenceErrors: true, SilenceUsage: true,
		Version: fmt.Sprintf("%s, feature level %d", release.Text("coopr-agent"), state.FeatureLevel),
		Args:    cobra.NoArgs,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	run := &cobra.Command{Use: "run", Short: "Run the agent (also the default)", Args: cobra.NoArgs, Example: root.Example}
	for _, c := range []*cobra.Command{root, run} {
		load := settings(c)
		c.RunE = func(c *cobra.Command, _ []string) error { return start(c.Context(), load) }
	}
	validate := &cobra.Command{
		Use: "validate", Short: "Check a configuration and report every fault", Args: cobra.NoArgs,
		Example: "  coopr-agent validate --config /etc/coopr/agent.yaml",
	}
	load := settings(validate)
	validate.RunE = func(c *cobra.Command, _ []string) error {
		if _, err := load(); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), "The configuration is valid.")
		return nil
	}
	root.AddCommand(run, validate, initCommand(), tokenCommand(), caCommand(), recoverCommand(), snapshotCommand(), versionCommand(),
		keyringCommand(), unlockCommand(), doctorCommand(), manual.Command())
	return root
}

// settings adds the flags of the configuration to a command. It returns the function
// that loads the configuration from files, environment and flags.
func settings(c *cobra.Command) func() (config.Config, error) {
	files := c.Flags().StringSlice("config", nil, "YAML file, or a directory of YAML files; may be given more than once")
	values := map[string]*string{}
	flags := map[string]string{} // path of each flag
	for _, f := range config.Fields() {
		if f.Flag == "" {
			continue
		}
		values[f.Flag] = c.Flags().String(f.Flag, "", f.Doc+" (env "+f.Env+")")
		flags[f.Flag] = f.Path
		if f.Bool {
			c.Flags().Lookup(f.Flag).NoOptDefVal = "true"
		}
	}
	return func() (config.Config, error) {
		given := map[string]string{}
		for name, v := range values {
			if c.Flags().Changed(name) {
				given[flags[name]] = *v
			}
		}
		cfg, err := config.Load(config.Sources{Files: *files, Env: os.Environ(), Flags: given})
		if err != nil {
			return cfg, usageError{err}
		}
		return cfg, nil
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Show the version", Args: cobra.NoArgs, Run: func(c *cobra.Command, _ []string) {
		fmt.Fprintln(c.OutOrStdout(), c.Root().Version)
	}}
}

// start runs an agent until ctx ends. A dev agent without a data directory gets a temporary one.
func start(ctx context.Context, load func() (config.Config, error)) error {
	cfg, err := load()
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	logger, limiter := newLogger(cfg, level)
	if err := forbidCores(); err != nil {
		logger.Warn("this agent may write core dumps, which have its keys", "error", err)
	}
	defer limiter.Close()
	if cfg.DataDir == "" {
		dir, err := os.MkdirTemp("", "coopr-dev-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cfg.DataDir = filepath.Join(dir, "data")
		if cfg.Isolation.User != "" { // whose folders are in there, too
			if err := os.Chmod(dir, 0o711); err != nil {
				return err
			}
		}
	}
	report := func(state string) {
		if err := notify(state); err != nil {
			logger.Warn("the service manager could not be notified", "error", err)
		}
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	// An agent that waits has started as far as it can: the service manager must not take it for one that hangs.
	store, err := keystore.Await(ctx, cfg, logger, func(why string) { report("READY=1\nSTATUS=" + why) })
	if ctx.Err() != nil {
		return nil // stopped while it was sealed
	}
	if err != nil {
		return err
	}
	known, err := join(ctx, cfg, store, logger)
	if ctx.Err() != nil {
		return nil // stopped while no voter had answered
	}
	if err != nil {
		return err
	}
	if err := checkPassphrase(cfg, known, store); err != nil {
		return err
	}
	if cfg.Eligible && !cfg.Dev {
		raisePriority(logger)
	}
	a, err := agent.New(agent.Config{
		Config: cfg, Build: release.Build(), Logger: logger, Credentials: known, KeyStore: store,
		Started: func() { report("READY=1") },
	})
	if err != nil {
		return err
	}
	if cfg.Dev {
		withdraw, err := announce(cfg, a)
		if err != nil {
			return errors.Join(err, a.Close())
		}
		defer withdraw()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { report("STOPPING=1") })()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				next, err := load()
				if err != nil {
					logger.Error("the configuration was not reloaded, as it has faults", "faults", err.Error())
					continue
				}
				setLevel(level, next.Log.Level)
				a.Reload(next)
			}
		}
	}()
	return a.Run(ctx)
}

// setLevel changes the log level. An unknown name changes nothing.
func setLevel(v *slog.LevelVar, name string) {
	var l slog.Level
	if l.UnmarshalText([]byte(name)) == nil {
		v.Set(l)
	}
}

// newLogger returns the log of the agent and of the libraries that it uses. A flood of lines is limited, but for readers of the log.
func newLogger(cfg config.Config, level *slog.LevelVar) (*slog.Logger, *loglimit.Limiter) {
	setLevel(level, cfg.Log.Level)
	o := &slog.HandlerOptions{Level: level}
	tap := logtap.New()
	var out slog.Handler = slog.NewTextHandler(tap.Printed(os.Stderr), o)
	if cfg.Log.Format == "json" {
		out = slog.NewJSONHandler(tap.Printed(os.Stderr), o)
	}
	limited, limiter := loglimit.New(out)
	return slog.New(tap.Handler(limited)), limiter
}
