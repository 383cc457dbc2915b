package host

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Config says where plugins are and how their processes are kept.
type Config struct {
	// Dirs are looked through for plugins: executables named coopr-provider-*,
	// coopr-automator-* or coopr-plugin-*, and descriptors *.json, *.yaml and
	// *.yml of protocol "exec". Folders that do not exist are left out.
	Dirs []string
	// Plugins are files named one by one; they win over Dirs for their types.
	Plugins []Binary
	// DataDir is the agent's own folder for what is known of plugins and of
	// their running processes. Required; two hosts never share one.
	DataDir string
	// SocketDir is where a folder for the sockets of plugin processes is made; it
	// may be used by others, and by other hosts. Its path is short: a
	// socket's path has at most 107 bytes. Default: os.TempDir().
	SocketDir string
	// Env is the whole environment of plugin processes, as "KEY=value". The
	// agent's own is not passed on: it may hold secrets. PATH and HOME are
	// added when absent.
	Env []string
	// Logger takes the host's and the plugins' own log. Default: none.
	Logger *slog.Logger
	// OnChange is called after the set of types changed, from a goroutine of
	// the host. It must not call Close.
	OnChange func()

	ScanEvery    time.Duration // interval between scans for new and changed files; default 2 s
	IdleTimeout  time.Duration // an unused process is closed after it; default 30 s
	StartTimeout time.Duration // from start to the first reply; default 15 s
	CancelGrace  time.Duration // from telling a task to stop to killing its process; default 10 s
	// HealthEvery is how long a process with work may be silent before it is
	// asked whether it lives; two questions without an answer within as long
	// kill it. Default 10 s.
	HealthEvery time.Duration
	// Backoff is the wait after the first crash, doubled with each further one
	// up to BackoffMax. After BreakAfter crashes in a row tasks are refused
	// while the wait lasts instead of waiting for it. Defaults 100 ms, 30 s, 5.
	Backoff, BackoffMax time.Duration
	BreakAfter          int
}

// Binary is a plugin's file. SHA256, where set, is what the file must hash to,
// in hex; otherwise the hash is pinned when the file is first seen and a
// change on disk is taken for a new version.
type Binary struct {
	Path   string
	SHA256 string
	// Env is added to Config.Env for this plugin alone.
	Env []string
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
	// The host adds "/coopr-<8 letters>", go-plugin "/plugin-dir<10 digits>/plugin<10 digits>".
	if len(c.SocketDir) > 107-15-40 {
		return fmt.Errorf("plugins: the path of the socket folder %s is too long: a socket's path has at most 107 bytes; name a shorter one",
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
	c.Env = append([]string(nil), c.Env...)
	for _, e := range [][2]string{{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, {"HOME", os.Getenv("HOME")}} {
		if !hasEnv(c.Env, e[0]) && e[1] != "" {
			c.Env = append(c.Env, e[0]+"="+e[1])
		}
	}
	return nil
}

// env gives the environment of the plugin of a file.
func (c *Config) env(path string) []string {
	env := slices.Clone(c.Env)
	for _, b := range c.Plugins {
		if at, err := filepath.Abs(b.Path); err == nil && at == path {
			env = append(env, b.Env...)
		}
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
