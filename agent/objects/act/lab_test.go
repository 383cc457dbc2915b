package act

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/testing/lab"
)

// far is a light machine, reached over SSH as its ordinary user with sudo, as
// automators reach it: nothing of ours is installed there.
type far struct {
	*lab.Machine
	t    *testing.T
	node *ssh.Node
}

// boot makes a machine.
func boot(t *testing.T, l *lab.Lab, spec lab.Spec) *far {
	t.Helper()
	m, err := l.Start(t.Context(), spec)
	if err == nil {
		err = m.WaitSSH(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	pool := ssh.New(ssh.Config{})
	t.Cleanup(pool.Close)
	return &far{m, t, pool.Node(&ssh.Target{Sudo: true, Hop: ssh.Hop{
		Address: net.JoinHostPort(m.Addr.String(), "22"), User: "debian", Signer: l.Signer(), HostKeys: []gossh.PublicKey{m.HostKey},
	}})}
}

// must runs a script on the machine, not over SSH, and returns its output.
func (f *far) must(script string) string {
	f.t.Helper()
	out, err := f.Run(f.t.Context(), "/bin/sh", "-c", script)
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// says waits until a script prints want.
func (f *far) says(script, want string) {
	f.t.Helper()
	got := ""
	await(f.t, func() bool {
		out, err := f.Run(f.t.Context(), "/bin/sh", "-c", script)
		got = strings.TrimSpace(out)
		return err == nil && got == want
	})
}

// bench returns a bench with a performer for an object of the machine.
func (f *far) bench(t *testing.T, o site.Object) *bench {
	t.Helper()
	p, err := New(Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Machine: func(context.Context, string, *site.Access) (*Machine, error) {
			return &Machine{Node: f.node}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	o.Host = "node:c/n"
	if o.Name == "" {
		o.Name = "part/of/it"
	}
	return &bench{t: t, p: p, o: o, n: 1}
}

// becomes waits until the object is found in a state.
func (b *bench) becomes(want string) {
	b.t.Helper()
	await(b.t, func() bool { got, _, err := b.p.Check(b.t.Context(), b.job()); return err == nil && got == want })
}

// initScript is a daemon for machines without systemd, as Debian's packages have them.
const initScript = `#!/bin/sh
### BEGIN INIT INFO
# Provides: ticker
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
### END INIT INFO
. /lib/lsb/init-functions
pid=/run/ticker.pid
case $1 in
start) start-stop-daemon --start --quiet --oknodo --background --make-pidfile --pidfile $pid --exec /bin/sleep -- 100001;;
stop) start-stop-daemon --stop --quiet --oknodo --retry 5 --remove-pidfile --pidfile $pid;;
restart) $0 stop; $0 start;;
status) status_of_proc -p $pid /bin/sleep ticker;;
*) exit 2;;
esac
`

// All types on real machines over SSH; Pacemaker's, which takes half a minute, with
// `make test-pacemaker`.
func TestOnMachines(t *testing.T) {
	l := lab.New(t)
	tests := map[string]func(*testing.T, *lab.Lab){
		"systemd":  func(t *testing.T, l *lab.Lab) { services(t, l, true) },
		"sysvinit": func(t *testing.T, l *lab.Lab) { services(t, l, false) },
		"units":    units,
		"filetree": files,
	}
	if os.Getenv("COOPR_PACEMAKER") != "" {
		tests["pacemaker"] = pacemaker
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

// services are those of systemd, of init scripts, and processes where neither is asked.
func services(t *testing.T, l *lab.Lab, systemd bool) {
	f := boot(t, l, lab.Spec{Name: fmt.Sprintf("services%t", systemd), Systemd: systemd})
	const runs = "pgrep -x -f '/bin/sleep 10000[12]' | wc -l"
	if systemd {
		f.must("printf '[Service]\nExecStart=/bin/sleep 100001\n' >/etc/systemd/system/ticker.service; systemctl daemon-reload")
	} else {
		f.must("cat >/etc/init.d/ticker <<'END'\n" + initScript + "END\nchmod +x /etc/init.d/ticker")
	}
	// Without the field manager, the service manager that has the unit is used.
	b := f.bench(t, site.Object{Type: "service",
		Content: map[string]any{"unit": "ticker", "timeout": "3m", "ready": "pgrep -x -f '/bin/sleep 10000[12]'"}})
	b.is("down")
	b.run("start")
	b.is("up")
	f.says(runs, "1")
	pid := f.must("pgrep -x -f '/bin/sleep 100001'")
	b.change("version", 2)
	b.is("outdated")
	b.run("restart")
	b.is("up")
	if again := f.must("pgrep -x -f '/bin/sleep 100001'"); again == pid {
		t.Errorf("process %s was not restarted", pid)
	}
	// It is stopped by hand, and then it is killed.
	f.must(map[bool]string{true: "systemctl stop ticker", false: "/etc/init.d/ticker stop"}[systemd])
	b.is("down")
	b.run("start")
	b.is("up")
	f.must("pkill -KILL -x -f '/bin/sleep 100001'")
	b.becomes("down")
	b.run("start")
	b.run("stop")
	b.is("down")
	f.says(runs, "0")

	// A process: no unit and no script of that name.
	p := f.bench(t, site.Object{Name: "worker", Type: "service", Content: map[string]any{"command": []any{"/bin/sleep", "100002"}}})
	p.is("down")
	p.run("start")
	p.is("up")
	f.says(runs, "1")
	f.must("pkill -KILL -x -f '/bin/sleep 100002'") // it comes again by itself
	f.says(runs, "1")
	p.becomes("up")
	p.change("env", map[string]any{"WORD": "hello"})
	p.is("outdated")
	p.run("restart")
	f.says("tr '\\0' '\\n' </proc/$(pgrep -x -f '/bin/sleep 100002')/environ | grep WORD", "WORD=hello")
	p.run("stop")
	p.is("down")
	f.says(runs, "0")
	f.says("pgrep -f '[l]oop.sh' | wc -l", "0")

	// The power fails: a process id in a leftover file does not count as a process.
	p.run("start")
	dir := strings.TrimSpace(f.must("dirname $(find / -xdev -name loop.sh)"))
	if err := f.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := f.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	// While the machine boots, sshd may respond and then close a login.
	await(t, func() bool { return f.node.Prepare(t.Context()) == nil })
	// Another process has the number by now.
	f.must("sed -i 's/^[0-9]*/1/' " + dir + "/pid")
	p.is("down")
	p.run("stop")
	f.must("test -d /proc/1")
	p.run("start")
	p.is("up")
	f.says(runs, "1")
}

// units checks that a written unit is removed with its object, and that a unit that was there before is
// restored.
func units(t *testing.T, l *lab.Lab) {
	f := boot(t, l, lab.Spec{Name: "units", Systemd: true})
	const unit = "/etc/systemd/system/job.service"
	service := func(n int) string { return fmt.Sprintf("[Service]\nExecStart=/bin/sleep 10001%d\n", n) }
	f.must("printf '" + strings.ReplaceAll(service(0), "\n", `\n`) + "' >" + unit)
	b := f.bench(t, site.Object{Name: "job", Type: "service", Content: map[string]any{"manager": "systemd", "unit_file": service(1)}})
	b.is("down")
	b.run("start")
	f.says("pgrep -f '^/bin/sleep 10001' -a | cut -d' ' -f2-", "/bin/sleep 100011")
	b.change("unit_file", service(2))
	b.is("outdated")
	b.run("restart")
	b.is("up")
	f.says("pgrep -f '^/bin/sleep 10001' -a | cut -d' ' -f2-", "/bin/sleep 100012")
	b.run("stop")
	b.is("down")
	if got := f.must("cat " + unit); got != strings.TrimSpace(service(0)) {
		t.Errorf("what was there before is now %q", got)
	}
	other := f.bench(t, site.Object{Name: "other", Type: "service", Content: map[string]any{"manager": "systemd", "unit_file": service(3)}})
	other.run("start")
	other.is("up")
	other.run("stop")
	other.is("down")
	f.must("! test -e /etc/systemd/system/other.service")
}

// files tests a file tree: owners, edits by hand, a change of the agent that runs the object, and
// the restoration of the earlier files. The machine has no git.
func files(t *testing.T, l *lab.Lab) {
	f := boot(t, l, lab.Spec{Name: "files"})
	f.must("! command -v git; useradd -r web; mkdir -p /etc/web; printf 'of the machine\n' >/etc/web/other.conf; chmod 600 " +
		"/etc/web/other.conf; chown web:web /etc/web/other.conf; useradd -r db")
	o := tree("/etc/web")
	o.Content["files"].(map[string]any)["app.conf"] = map[string]any{"content": "a = 1\n\nb = 2\n\nc = 3\n", "mode": "0640", "owner": "web",
		"group": "db"}
	const list = "cd /etc/web && find . | sort | xargs stat -c '%n %a %U %G %F'"
	was := f.must(list)
	b := f.bench(t, o)
	b.is("down")
	b.run("start")
	b.is("up")
	if got := f.must("stat -c '%a %U %G' /etc/web/app.conf"); got != "640 web db" {
		t.Errorf("app.conf is %s", got)
	}
	f.must("echo '# mine' >>/etc/web/app.conf; chown root /etc/web/app.conf")
	if note := b.is("outdated"); note != "changed by hand: app.conf" {
		t.Error(note)
	}
	// Another agent runs the object now. It has no repository of its own.
	b2 := f.bench(t, o)
	b2.files("app.conf", "a = 10\n\nb = 2\n\nc = 3\n")
	b2.is("outdated")
	b2.run("restart")
	b2.is("up")
	f.says("cat /etc/web/app.conf", "a = 10\n\nb = 2\n\nc = 3\n# mine")
	// If the site and an edit change the same line, nothing is written to the file.
	f.must("sed -i 's/a = 10/a = 11/' /etc/web/app.conf")
	b2.files("app.conf", "a = 12\n\nb = 2\n\nc = 3\n")
	err := b2.p.Run(t.Context(), b2.job(), "restart")
	if err == nil || !strings.Contains(err.Error(), "conflict: /etc/web/app.conf") ||
		!strings.HasPrefix(f.must("cat /etc/web/app.conf"), "a = 11") {
		t.Errorf("%v", err)
	}
	f.must("printf 'a = 13\n' >/etc/web/app.conf" + mergeSuffix)
	b2.run("restart")
	b2.is("up")
	f.says("cat /etc/web/app.conf", "a = 13")
	b2.run("stop")
	b2.is("down")
	if is := f.must(list); is != was || f.must("cat /etc/web/other.conf") != "of the machine" {
		t.Errorf("it was\n%s\nand is\n%s", was, is)
	}
}

// corosync is the configuration of a cluster of two that tolerates a slow machine. cib is
// the cluster's initial configuration: it has no fencing, and a short wait for other
// members before an election.
const (
	corosync = `totem {
 version: 2
 cluster_name: lab
 transport: udpu
 token: 20000
}
nodelist {
 node {
  ring0_addr: %s
  name: ha1
  nodeid: 1
 }
 node {
  ring0_addr: %s
  name: ha2
  nodeid: 2
 }
}
quorum {
 provider: corosync_votequorum
 two_node: 1
 wait_for_all: 0
}
`
	cib = `<cib crm_feature_set="3.0.14" validate-with="pacemaker-3.0" epoch="1" num_updates="0" admin_epoch="0"><configuration><crm_config><cluster_property_set id="cib-bootstrap-options">
<nvpair id="o1" name="stonith-enabled" value="false"/><nvpair id="o2" name="dc-deadtime" value="2s"/><nvpair id="o3" name="no-quorum-policy" value="ignore"/>
</cluster_property_set></crm_config><nodes/><resources/><constraints/></configuration><status/></cib>
`
)

// pacemaker: resources of a real Pacemaker of two machines, with both of its tools.
func pacemaker(t *testing.T, l *lab.Lab) {
	layer := l.Layer(t, "pacemaker")
	var both []*far
	for i := range 2 {
		both = append(both, boot(t, l, lab.Spec{Name: fmt.Sprintf("ha%d", i+1), Systemd: true, Layers: []string{layer}}))
	}
	conf := fmt.Sprintf(corosync, both[0].Addr, both[1].Addr)
	for _, f := range both {
		f.must("groupadd -r haclient; useradd -r -g haclient -d /var/lib/pacemaker hacluster; mkdir -p /var/log/crmsh /var/lib/pacemaker/cib\n" +
			"cat >/etc/corosync/corosync.conf <<'END'\n" + conf + "END\ncat >/var/lib/pacemaker/cib/cib.xml <<'END'\n" + cib + "END\n" +
			"chown -R hacluster:haclient /var/lib/pacemaker /var/log/pacemaker; chmod 600 /var/lib/pacemaker/cib/cib.xml\nsystemctl " +
			"daemon-reload; systemctl start pacemaker")
	}
	f := both[0]
	f.says("crm_mon -1 | grep -o 'Online: .*'", "Online: [ ha1 ha2 ]")
	for _, tool := range []string{"pcs", "crm"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			resources(t, f, both[1], tool)
		})
	}
}

// resources is the life of one, made with a tool.
func resources(t *testing.T, f, other *far, tool string) {
	b := f.bench(t, site.Object{Name: "ha/" + tool, Type: "ha-resource", Content: map[string]any{
		"tool": tool, "agent": "ocf:pacemaker:Dummy", "parameters": map[string]any{"fake": "one"}, "operations": []any{"monitor interval=10s"},
		"meta": map[string]any{"resource-stickiness": "7"},
	}})
	b.is("down")
	b.run("start")
	if note := b.is("up"); !strings.Contains(note, "is running on") {
		t.Error(note)
	}
	const param = "crm_resource --resource %s --get-parameter fake"
	f.says(fmt.Sprintf(param, tool), "one")
	b.change("parameters", map[string]any{"fake": "two"})
	b.is("outdated")
	b.run("restart")
	b.is("up")
	f.says(fmt.Sprintf(param, tool), "two")
	// Somebody stops it, from the other machine.
	other.must("crm_resource --resource " + tool + " --meta --set-parameter target-role --parameter-value Stopped && crm_resource --wait")
	b.is("down")
	b.run("start")
	b.is("up")
	b.run("stop")
	b.is("down")
}
