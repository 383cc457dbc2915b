package agent

import (
	"cmp"
	"context"

	"github.com/coopr/coopr/agent/executor"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/plugins/host"
)

// pluginSide is what an agent has of its plugins.
type pluginSide struct {
	host        *host.Host // nil if Config.Executor replaces it
	plugins     host.Executor
	launcher    *confine.Launcher // nil as host is
	rules       hostexec.Rules    // about what runs on this machine
	pluginsNews chan struct{}     // one slot: the plugins have changed
}

// openPlugins creates the plugin host.
func (a *Agent) openPlugins() (err error) {
	a.rules = a.cfg.Rules()
	if a.plugins = a.cfg.Executor; a.plugins != nil {
		return nil
	}
	if a.launcher, a.rules, err = executor.OpenLauncher(a.cfg.Config); err != nil {
		return err
	}
	cfg := executor.PluginsConfig{Config: a.cfg.Config, Launcher: a.launcher, Changed: a.pluginsChanged, Logger: a.log}
	h, machine, err := executor.OpenPlugins(cfg)
	if err != nil {
		return err
	}
	a.host, a.plugins = h, executor.NewGuard(h, a.rules)
	a.cfg.Machine = cmp.Or(a.cfg.Machine, machine)
	return nil
}

// pluginsChanged makes announcePlugins run. The plugin host calls it at any time,
// even before there is a worker.
func (a *Agent) pluginsChanged() {
	select {
	case a.pluginsNews <- struct{}{}:
	default:
	}
}

// announcePlugins opens a new session whenever the plugins have changed, because the leader learns
// from the hello of a session which plugins this agent offers.
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
