package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/plugins/host"
)

// systemPath has the folders in which plugins find programs of the system.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// openPlugins creates the plugin host.
func (a *Agent) openPlugins() (err error) {
	if a.plugins = a.cfg.Executor; a.plugins != nil {
		return nil
	}
	root, err := filepath.Abs(cmp.Or(a.cfg.Providers.Local.Root, filepath.Join(a.cfg.DataDir, "local")))
	if err != nil {
		return err
	}
	if a.machine == "" {
		a.machine = machineName(root)
	}
	self, _ := os.Executable()
	bin := filepath.Dir(self)
	var dirs []string
	if a.cfg.PluginDir != "" {
		dirs = append(dirs, a.cfg.PluginDir)
	}
	if a.cfg.Dev || a.cfg.PluginDir == "" {
		dirs = append(dirs, bin)
	}
	c := host.Config{
		Dirs: dirs, DataDir: filepath.Join(a.cfg.DataDir, "plugins"), Logger: a.log,
		Env:      []string{"COOPR_LOCAL_ROOT=" + root, "COOPR_BIN=" + bin, "PATH=" + bin + ":" + systemPath},
		OnChange: a.pluginsChanged,
	}
	for _, p := range a.cfg.Plugins {
		b, err := pluginBinary(dirs, p)
		if err != nil {
			return err
		}
		c.Plugins = append(c.Plugins, b)
	}
	a.host, err = host.New(c)
	a.plugins = a.host
	return err
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
		settings, err := settingsJSON(p)
		if err != nil {
			return b, err
		}
		b.Env = []string{"COOPR_PLUGIN_SETTINGS=" + settings}
	}
	return b, nil
}

// settingsJSON returns a plugin's settings as JSON.
func settingsJSON(p config.Plugin) (string, error) {
	b, err := json.Marshal(map[string]any(p.Settings))
	if err != nil {
		return "", fmt.Errorf("settings of plugin %s: %w", p.Name, err)
	}
	return string(b), nil
}

// pluginsChanged makes announcePlugins run. The plugin host calls it at any time,
// even before there is a worker.
func (a *Agent) pluginsChanged() {
	select {
	case a.pluginsNews <- struct{}{}:
	default:
	}
}

// announcePlugins opens a new session whenever the plugins have changed, as a session
// tells the leader which plugins this agent offers.
func (a *Agent) announcePlugins(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.pluginsNews:
			a.worker.Reconnect()
		}
	}
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
