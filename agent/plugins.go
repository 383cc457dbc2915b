package agent

import (
	"cmp"
	"context"

	"github.com/coopr/coopr/agent/executor"
)

// openPlugins creates the plugin host.
func (a *Agent) openPlugins() (err error) {
	a.rules = a.cfg.Rules()
	if a.plugins = a.cfg.Executor; a.plugins != nil {
		return nil
	}
	if a.launcher, err = executor.OpenLauncher(a.cfg.Config); err != nil {
		return err
	}
	a.rules = executor.Rules(a.cfg.Config, a.launcher)
	h, machine, err := executor.OpenPlugins(executor.PluginsConfig{
		Config: a.cfg.Config, Launcher: a.launcher, Changed: a.pluginsChanged, Logger: a.log,
	})
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
