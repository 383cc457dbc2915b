package agent

import "github.com/coopr/coopr/agent/config"

// Reload takes over what a running agent can change, and says what waits for a
// restart.
func (a *Agent) Reload(next config.Config) {
	a.mu.Lock()
	changes := config.Diff(a.cfg.Config, next)
	a.cfg.Config = config.Reloaded(a.cfg.Config, next)
	join := a.cfg.Join
	a.mu.Unlock()
	a.mesh.SetJoin(join)
	if err := a.mesh.SetSelf(a.self()); err != nil {
		a.log.Error("what the others know of this agent is not changed", "error", err)
	}
	a.worker.Reconnect()
	a.log.Info("configuration reloaded", "changes", changes.String())
}
