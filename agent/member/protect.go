package member

import (
	"context"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
)

// protect has this agent encrypt its identity and the contents of plugin resources on its disk, once the feature level of the mesh says
// that no voter goes back to a build which cannot read them. It returns after that, or when ctx ends.
func (m *Member) protect(ctx context.Context) {
	raised := make(chan struct{}, 1)
	// Not Understands: a voter that has just joined knows no level yet.
	may := func() bool { return m.Machine.View().FeatureLevel() >= logformat.ProtectLevel }
	defer m.Machine.Watch(func(state.Batch) {
		if may() {
			select {
			case raised <- struct{}{}:
			default:
			}
		}
	})()
	if !may() {
		select {
		case <-ctx.Done():
			return
		case <-raised:
		}
	}
	if err := m.cfg.Keyring.Begin(); err != nil {
		m.cfg.Logger.Warn("the identity of this voter could not be encrypted; this agent tries again", "error", err)
	}
	if m.cfg.ResourcesChanged != nil {
		m.cfg.ResourcesChanged()
	}
}
