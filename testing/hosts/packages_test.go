package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	build "github.com/coopr/coopr/testing/programs"
	"github.com/coopr/coopr/testing/site"
)

// TestPackages installs the package on a machine with systemd, follows its documentation to a mesh of one agent, makes a cluster,
// upgrades the package while the cluster's script runs, and removes and purges it.
func TestPackages(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*site.Patience)
	t.Cleanup(cancel)
	m := &mesh{t: t, ctx: ctx, lab: lab.New(t), dir: t.TempDir()}
	m.layer = filepath.Join(m.dir, "layer")
	bin := programs.Build(t)
	m.check(os.CopyFS(filepath.Join(m.layer, "opt/coopr/bin"), os.DirFS(bin))) // for the test itself
	pack(m, bin, "0.1.0")
	pack(m, bin, "0.1.1")
	m.nodes = []*lab.Machine{m.start(lab.Spec{Name: "node1"})}
	host := m.start(lab.Spec{Name: "control1", Systemd: true, Layers: []string{m.layer}})
	m.hosts = []*lab.Machine{host}
	t.Cleanup(m.tell)
	sh := func(script string) string { m.t.Helper(); return m.must(host, "sh", "-ec", script) }

	sh("dpkg -i /opt/packages/coopr_0.1.0-1_*.deb")
	if got := sh("systemctl is-enabled coopr-agent || true; systemctl is-active coopr-agent || true"); got != "disabled\ninactive\n" {
		t.Errorf("after the installation the unit is %q", got)
	}
	if got := sh("stat -c '%n %a %U:%G' /var/lib/coopr /var/lib/coopr-keyring /etc/coopr /etc/coopr/agent.yaml"); got !=
		"/var/lib/coopr 700 coopr:coopr\n/var/lib/coopr-keyring 700 coopr:coopr\n/etc/coopr 750 root:coopr\n/etc/coopr/agent.yaml 640 root:coopr\n" {
		t.Errorf("after the installation:\n%s", got)
	}
	sh("systemd-sysusers --dry-run coopr.conf && systemd-tmpfiles --create coopr.conf")
	sh("coopr --version && coopr-agent --version")
	score := regexp.MustCompile(`exposure level for coopr-agent.service: ([0-9.]+)`)
	exposure := func(variant string) (at float64) {
		out := sh("systemd-analyze security --no-pager coopr-agent | tail -n 2")
		found := score.FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("systemd-analyze security: %s", out)
		}
		t.Logf("systemd-analyze security, %s: %s", variant, found[1])
		_, err := fmt.Sscan(found[1], &at)
		m.check(err)
		return at
	}
	if at := exposure("without root"); at > 1.5 {
		t.Errorf("the exposure of the unit is %v", at)
	}

	root := sh("runuser -u coopr -- coopr-agent init --config /etc/coopr/agent.yaml 2>/dev/null; systemctl enable --quiet --now coopr-agent")
	m.token = strings.Fields(root)[0]
	m.ca = filepath.Join(m.dir, "ca.pem")
	m.check(os.WriteFile(m.ca, []byte(sh("runuser -u coopr -- coopr-agent ca --data-dir /var/lib/coopr")), 0o600))
	var err error
	m.api, err = client.New(client.Config{Addresses: urls(m.hosts), Token: m.token, CACert: m.ca})
	m.check(err)
	t.Cleanup(m.api.Close)
	m.leader(host)
	m.confined(host, "shared", "")

	// An upgrade in the middle of an operation: the agent is the new one, and the operation ends well.
	m.define()
	op := m.begin("upgraded")
	old := sh("systemctl show --property=MainPID --value coopr-agent")
	sh("echo '# mine' >>/etc/coopr/agent.yaml; dpkg -i --force-confold /opt/packages/coopr_0.1.1-1_*.deb")
	if now := sh("systemctl show --property=MainPID --value coopr-agent"); now == old || now == "0\n" {
		t.Errorf("the upgrade did not restart the agent: process %s", now)
	}
	sh("grep -q '# mine' /etc/coopr/agent.yaml; systemctl is-enabled coopr-agent")
	m.leader(host)
	m.goOn()
	m.over(op)
	m.remove("upgraded")

	// The variant with a user for plugins.
	sh("install -D -m 0644 /usr/share/coopr/separate.conf /etc/systemd/system/coopr-agent.service.d/separate.conf; " +
		"systemctl daemon-reload; systemctl restart coopr-agent")
	exposure("as root, with separate.conf")
	m.confined(host, "separate", "coopr-plugin")

	sh("dpkg --remove coopr")
	if got := sh("systemctl is-active coopr-agent || true; pgrep coopr-agent || true; ls -d /etc/coopr/agent.yaml /var/lib/coopr/raft /usr/bin/coopr 2>/dev/null || true"); got !=
		"inactive\n/etc/coopr/agent.yaml\n/var/lib/coopr/raft\n" {
		t.Errorf("after the removal: %s", got)
	}
	sh("dpkg --purge coopr")
	if got := sh("ls -d /etc/coopr /var/lib/coopr* /usr/lib/coopr /usr/share/coopr /etc/systemd/system/coopr-agent.service.d 2>/dev/null || true"); got != "" {
		t.Errorf("after the purge there is %s", got)
	}
}

// pack makes the packages of a version from the programs in a folder, and puts the deb on the disks of control hosts.
func pack(m *mesh, bin, version string) {
	m.t.Helper()
	tool, err := build.Tool(m.dir, "package")
	m.check(err)
	manual := filepath.Join(m.dir, "manual")
	for _, args := range [][]string{
		{filepath.Join(bin, "coopr"), "manual", manual},
		{filepath.Join(bin, "coopr-agent"), "manual", manual},
		{tool, "--source", "../..", "--bin", bin, "--manual", manual, "--version", version, "--arch", runtime.GOARCH, "--time", "1790000000",
			"--formats", "deb", "--out", filepath.Join(m.layer, "opt/packages")},
	} {
		if out, err := exec.CommandContext(m.ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			m.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}
