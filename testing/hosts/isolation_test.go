package hosts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
)

// TestIsolation checks that the units of systemd confine plugins: that of the package as the agent's
// user, and with separate.conf as another user.
func TestIsolation(t *testing.T) {
	m := newMesh(t, 3, 0)
	m.leader(m.hosts...)
	for _, h := range m.hosts {
		m.confined(h, "shared", "")
	}
	host := m.hosts[0]
	m.must(host, "sh", "-ec", "useradd --system --no-create-home --shell /usr/sbin/nologin coopr-plugin; "+
		"install -D -m 0644 /opt/coopr/examples/systemd/separate.conf /etc/systemd/system/coopr-agent.service.d/separate.conf; "+
		"systemctl daemon-reload; systemctl restart coopr-agent")
	m.confined(host, "separate", "coopr-plugin")
	// No process of a plugin is root's, and the plugin has no privilege.
	m.await("a plugin to run", func() error {
		// The cache of plugins' descriptions is removed, so that they are asked again.
		m.must(host, "sh", "-ec", "rm -f /var/lib/coopr/plugins/plugins.json; systemctl restart coopr-agent")
		out := m.must(host, "sh", "-c", "for i in $(seq 200); do for p in $(pgrep -u coopr-plugin); do "+
			"grep -E '^(Name|Uid|NoNewPrivs|CapBnd|CapEff):' /proc/$p/status && exit; done; sleep 0.02; done")
		for _, want := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("%s is not in %q", want, out)
			}
		}
		return nil
	})
	m.confined(host, "separate", "coopr-plugin")
}

// confined waits until a host's agent offers plugins, confined with this grade.
func (m *mesh) confined(h *lab.Machine, grade, user string) {
	m.t.Helper()
	m.await("the plugins of "+h.Name, func() error {
		st, err := m.status(h)
		if err != nil {
			return err
		}
		if st.Isolation == nil || st.Isolation.Grade != grade || st.Isolation.User != user || len(st.Isolation.Warnings) > 0 {
			return fmt.Errorf("isolation: %+v", st.Isolation)
		}
		list, _, err := m.api.Agents(m.ctx, client.Read{})
		for _, a := range list {
			if err == nil && a.Name == h.Name && a.Alive && len(a.Plugins) >= 2 {
				return nil
			}
		}
		return fmt.Errorf("the agents are %+v, %w", list, err)
	})
}
