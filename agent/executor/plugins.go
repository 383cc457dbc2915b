package executor

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/plugins/host"
)

// systemPath has the folders in which plugins find programs of the system.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// PluginsConfig configures the plugin host of an agent.
type PluginsConfig struct {
	config.Config
	// Launcher starts the plugins.
	Launcher *confine.Launcher
	// Changed is called when the plugins have changed.
	Changed func()
	Logger  *slog.Logger
}

// OpenPlugins creates the plugin host of an agent. machine names the machine on which
// local nodes live.
func OpenPlugins(cfg PluginsConfig) (h *host.Host, machine string, err error) {
	root, err := filepath.Abs(localRoot(cfg.Config))
	if err != nil {
		return nil, "", err
	}
	self, _ := os.Executable()
	bin := filepath.Dir(self)
	work := cfg.Work()
	// In dev mode, and without a folder of plugins, the folder of this executable is searched too.
	var dirs []string
	if cfg.PluginDir != "" {
		dirs = append(dirs, cfg.PluginDir)
	}
	if cfg.Dev || cfg.PluginDir == "" {
		dirs = append(dirs, bin)
	}
	c := host.Config{
		Dirs: dirs, DataDir: filepath.Join(cfg.DataDir, "plugins"), Logger: cfg.Logger,
		Env: []string{"COOPR_LOCAL_ROOT=" + root, "COOPR_BIN=" + bin, "PATH=" + systemPath + ":" + bin,
			"COOPR_ENDPOINTS=" + strings.Join(cfg.Providers.Endpoints, ",")},
		OnChange: cfg.Changed, Launcher: cfg.Launcher, Unconfined: cfg.Isolation.Unconfined, WorkDir: filepath.Join(work, "plugins"),
		Bin: bin, Resources: ResourcesDir(work),
	}
	if cfg.HostExec {
		c.Local = []string{root, filepath.Dir(OwnHost(work))}
	}
	for _, p := range cfg.Plugins {
		b, err := pluginBinary(dirs, p)
		if err != nil {
			return nil, "", err
		}
		c.Plugins = append(c.Plugins, b)
	}
	if err := cfg.Launcher.Pass(work); err != nil {
		return nil, "", fmt.Errorf("work_dir: %w", err)
	}
	h, err = host.New(c)
	return h, machineName(root), err
}

// ResourcesDir returns the folder of tasks' resources.
func ResourcesDir(workDir string) string { return filepath.Join(workDir, "resources") }

// OwnHost returns the folder of this machine as the host of change objects.
func OwnHost(workDir string) string { return filepath.Join(workDir, "hosts", "agent") }

// localRoot returns the folder of local nodes. The records of nodes have their paths, so a folder of an
// earlier version stays where it is.
func localRoot(cfg config.Config) string {
	earlier := filepath.Join(cfg.DataDir, "local")
	if entries, err := os.ReadDir(earlier); cfg.Providers.Local.Root == "" && err == nil && len(entries) > 0 {
		return earlier
	}
	return cmp.Or(cfg.Providers.Local.Root, filepath.Join(cfg.Work(), "local"))
}

// OpenLauncher returns the launcher of an agent's plugins, and the rules about what runs on this machine,
// which depend on whether the machine can confine it.
func OpenLauncher(cfg config.Config) (*confine.Launcher, hostexec.Rules, error) {
	r := cfg.Rules()
	l, err := confine.NewLauncher(cfg.Isolation.User, cfg.Secrets(), confine.Limits{
		Processes: cfg.Isolation.Processes, Memory: int64(cfg.Isolation.Memory), Files: cfg.Isolation.Files, Disk: int64(cfg.Isolation.Disk),
	})
	r.Unconfined = !cfg.Isolation.Unconfined && l.Grade() == confine.None
	return l, r, err
}

// pluginBinary returns the binary of a plugin that the configuration names: in the
// first of the folders that has it, or else in the first folder, where its absence is
// reported.
func pluginBinary(dirs []string, p config.Plugin) (host.Binary, error) {
	name := cmp.Or(p.Path, "coopr-"+p.Name)
	b := host.Binary{Path: name, SHA256: strings.TrimPrefix(p.Checksum, "sha256:"), Reads: p.Reads, Writes: p.Writes}
	if !filepath.IsAbs(name) {
		b.Path = filepath.Join(dirs[0], name)
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				b.Path = filepath.Join(dir, name)
				break
			}
		}
	}
	if len(p.Settings) > 0 {
		settings, err := pluginSettings(p)
		if err != nil {
			return b, err
		}
		b.Settings = json.RawMessage(settings)
	}
	return b, nil
}

// AllPluginSettings returns the settings of each plugin as JSON.
func AllPluginSettings(plugins []config.Plugin) ([]string, error) {
	all := make([]string, len(plugins))
	for i, p := range plugins {
		var err error
		if all[i], err = pluginSettings(p); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pluginSettings returns a plugin's settings as JSON.
func pluginSettings(p config.Plugin) (string, error) {
	b, err := json.Marshal(map[string]any(p.Settings))
	if err != nil {
		return "", fmt.Errorf("settings of plugin %s: %w", p.Name, err)
	}
	return string(b), nil
}

// machineName returns the name of the machine on which local nodes live: a hash of
// this host and the folder of the nodes. All agents that use the folder have the same
// name, so that tasks of its nodes go to any of them.
func machineName(folder string) string {
	b, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(strings.TrimSpace(string(b))) == 0 {
		h, _ := os.Hostname()
		b = []byte(h)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "coopr place\x00%s\x00%s", b, folder))
	return hex.EncodeToString(sum[:8])
}
