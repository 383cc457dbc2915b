package host

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/plugins/sdk/wire"
)

// Config holds the folders of plugins and the limits of their processes.
type Config struct {
	// Dirs are the folders of plugins: executables named coopr-provider-*, coopr-automator-* or
	// coopr-plugin-*, and descriptors *.json, *.yaml and *.yml of protocol "exec". Missing folders
	// are skipped.
	Dirs []string
	// Plugins are single files; for their types they take precedence over Dirs.
	Plugins []Binary
	// DataDir is the agent's folder for the plugins' cache and the records of running processes. It
	// is required, and belongs to one host.
	DataDir string
	// SocketDir is where a folder for the sockets of plugin processes is created. It may be shared
	// with other programs and other hosts. Its path has to be short, because the path of a socket
	// has at most 107 bytes. Default: os.TempDir().
	SocketDir string
	// Env is the environment of plugin processes, as "KEY=value". The agent's own environment is not
	// inherited, because it may hold secrets. PATH is added when absent, and always HOME and TMPDIR,
	// which are in the plugin's own folder.
	Env []string

	// Launcher starts every plugin, with a profile of what it may do. Nil starts plugins without one.
	Launcher *confine.Launcher
	// WorkDir has a folder for each plugin. Default: work in DataDir.
	WorkDir string
	// Reads are files and folders that every plugin may read.
	Reads []string
	// Resources has the resources of tasks, those of each type in a folder of its own (model.ResourceKey.Folder). A plugin may read those of
	// the types that it serves. Empty: there are none.
	Resources string
	// Bin is the folder of the agent's own programs.
	Bin string
	// Local are the folders of nodes of this machine. If there are none, plugins may not make such
	// nodes.
	Local []string
	// Unconfined allows plugins that are not Coopr's own where Launcher cannot confine them.
	Unconfined bool
	// Logger receives the log of the host and of the plugins. Default: none.
	Logger *slog.Logger
	// OnChange is called after the set of types changed, from a goroutine of
	// the host. It must not call Close.
	OnChange func()

	ScanEvery    time.Duration // interval between scans for new and changed files; default 2 s
	IdleTimeout  time.Duration // how long an unused process is kept; default 30 s
	StartTimeout time.Duration // from the start of a process to its first reply; default 15 s
	CancelGrace  time.Duration // from a task's cancellation to killing its process; default 10 s
	// HealthEvery is how long a process with tasks may be silent before it is probed. A process
	// that misses two probes, each of which waits as long, is killed. Default 10 s.
	HealthEvery time.Duration
	// Backoff is the delay after the first crash; it doubles with each further crash, up to
	// BackoffMax. After BreakAfter crashes in a row, tasks are refused during the delay instead of
	// waiting for its end. Defaults: 100 ms, 30 s, 5.
	Backoff, BackoffMax time.Duration
	BreakAfter          int
}

// Binary is a plugin's file. SHA256, if set, is the required checksum of the file, in hex.
// Otherwise the checksum is recorded when the file is first seen, and a changed file counts as a
// new version.
type Binary struct {
	Path   string
	SHA256 string
	// Settings are passed to the plugin unchanged. It may read the absolute paths in them.
	Settings json.RawMessage
	// Env is added to Config.Env for this plugin, Reads to Config.Reads.
	Env, Reads []string
	// Writes are files and folders that the plugin may change.
	Writes []string
}

func (c *Config) fill() error {
	if c.DataDir == "" {
		return fmt.Errorf("plugins: DataDir is not set")
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return fmt.Errorf("plugins: %w", err)
	}
	if c.SocketDir == "" {
		c.SocketDir = os.TempDir()
	}
	// The host appends "/coopr-<8 letters>", go-plugin "/plugin-dir<10 digits>/plugin<10 digits>".
	if len(c.SocketDir) > 107-15-40 {
		return fmt.Errorf("plugins: the path of the socket folder %s is too long, because a socket's path has at most 107 bytes: "+
			"configure a shorter one",
			c.SocketDir)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.ScanEvery, 2*time.Second)
	def(&c.IdleTimeout, 30*time.Second)
	def(&c.StartTimeout, 15*time.Second)
	def(&c.CancelGrace, 10*time.Second)
	def(&c.HealthEvery, 10*time.Second)
	def(&c.Backoff, 100*time.Millisecond)
	def(&c.BackoffMax, 30*time.Second)
	if c.BreakAfter <= 0 {
		c.BreakAfter = 5
	}
	c.Env = slices.Clone(c.Env)
	if !hasEnv(c.Env, "PATH") {
		c.Env = append(c.Env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	c.Env = slices.DeleteFunc(c.Env, func(e string) bool { return strings.HasPrefix(e, "HOME=") || strings.HasPrefix(e, "TMPDIR=") })
	if c.WorkDir == "" {
		c.WorkDir = filepath.Join(c.DataDir, "work")
	}
	c.Dirs, c.Reads, c.Local = slices.Clone(c.Dirs), slices.Clone(c.Reads), slices.Clone(c.Local)
	for _, dirs := range [][]string{c.Dirs, c.Reads, c.Local} {
		for i := range dirs {
			if dirs[i], err = filepath.Abs(dirs[i]); err != nil {
				return fmt.Errorf("plugins: %w", err)
			}
		}
	}
	for _, dir := range []*string{&c.WorkDir, &c.Resources} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return fmt.Errorf("plugins: %w", err)
		}
	}
	return nil
}

// binary returns what is configured for the plugin at a path.
func (c *Config) binary(path string) Binary {
	for _, b := range c.Plugins {
		if at, err := filepath.Abs(b.Path); err == nil && at == path {
			return b
		}
	}
	return Binary{}
}

// env returns the environment of a plugin, without its own folders.
func (c *Config) env(b Binary) []string {
	env := append(slices.Clone(c.Env), b.Env...)
	if len(b.Settings) > 0 {
		env = append(env, wire.SettingsVar+"="+wire.SettingsOnInput)
	}
	return env
}

func hasEnv(env []string, key string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, key+"=") {
			return true
		}
	}
	return false
}
