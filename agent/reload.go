package agent

import "github.com/coopr/coopr/agent/config"

// Reload takes over what a running agent can change, and says what waits for a
// restart.
func (a *Agent) Reload(next config.Config) {
	running := *a.settings.Load()
	changes := config.Diff(running, next)
	running = config.Reloaded(running, next)
	a.settings.Store(&running)
	a.mesh.SetJoin(running.Join)
	if err := a.mesh.SetSelf(a.self()); err != nil {
		a.log.Error("what the others know of this agent is not changed", "error", err)
	}
	a.worker.Reconnect()
	a.log.Info("configuration reloaded", "changes", changes.String())
}
