package agent

import "github.com/coopr/coopr/agent/config"

// Reload applies the settings that may change while the agent runs, and logs those
// that need a restart.
func (a *Agent) Reload(next config.Config) {
	running := *a.settings.Load()
	changes := config.Diff(running, next)
	running = config.Reloaded(running, next)
	a.settings.Store(&running)
	a.mesh.SetJoin(running.Join)
	if err := a.mesh.SetSelf(a.self()); err != nil {
		a.log.Error("gossip could not announce the new settings of this agent", "error", err)
	}
	a.worker.Reconnect()
	a.log.Info("configuration reloaded", "changes", changes.String())
}
