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
	"github.com/coopr/coopr/plugins/host"
)

// systemPath has the folders in which plugins find programs of the system.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// PluginsConfig configures the plugin host of an agent.
type PluginsConfig struct {
	// Dir is the folder of plugins. If it is empty, and in dev mode, the folder of this
	// executable is searched too.
	Dir     string
	Dev     bool
	Plugins []config.Plugin // with settings of their own
	DataDir string          // of the agent
	// LocalRoot is the folder of local nodes. Default: local in DataDir.
	LocalRoot string
	// Endpoints are the networks that providers may call beyond the usual ones.
	Endpoints []string
	// Changed is called when the plugins have changed.
	Changed func()
	Logger  *slog.Logger
}

// OpenPlugins creates the plugin host of an agent. machine names the machine on which
// local nodes live.
func OpenPlugins(cfg PluginsConfig) (h *host.Host, machine string, err error) {
	root, err := filepath.Abs(cmp.Or(cfg.LocalRoot, filepath.Join(cfg.DataDir, "local")))
	if err != nil {
		return nil, "", err
	}
	self, _ := os.Executable()
	bin := filepath.Dir(self)
	var dirs []string
	if cfg.Dir != "" {
		dirs = append(dirs, cfg.Dir)
	}
	if cfg.Dev || cfg.Dir == "" {
		dirs = append(dirs, bin)
	}
	c := host.Config{
		Dirs: dirs, DataDir: filepath.Join(cfg.DataDir, "plugins"), Logger: cfg.Logger,
		Env: []string{"COOPR_LOCAL_ROOT=" + root, "COOPR_BIN=" + bin, "PATH=" + bin + ":" + systemPath,
			"COOPR_ENDPOINTS=" + strings.Join(cfg.Endpoints, ",")},
		OnChange: cfg.Changed,
	}
	for _, p := range cfg.Plugins {
		b, err := pluginBinary(dirs, p)
		if err != nil {
			return nil, "", err
		}
		c.Plugins = append(c.Plugins, b)
	}
	h, err = host.New(c)
	return h, machineName(root), err
}

// pluginBinary returns the binary of a plugin that the configuration names: in the
// first of the folders that has it, or else in the first folder, where its absence is
// reported. The plugin receives its settings as JSON in COOPR_PLUGIN_SETTINGS.
func pluginBinary(dirs []string, p config.Plugin) (host.Binary, error) {
	name := cmp.Or(p.Path, "coopr-"+p.Name)
	b := host.Binary{Path: name, SHA256: strings.TrimPrefix(p.Checksum, "sha256:")}
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
		settings, err := PluginSettings(p)
		if err != nil {
			return b, err
		}
		b.Env = []string{"COOPR_PLUGIN_SETTINGS=" + settings}
	}
	return b, nil
}

// PluginSettings returns a plugin's settings as JSON.
func PluginSettings(p config.Plugin) (string, error) {
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
