package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

// TestFaults runs all faults at one agent at the same time, each with a machine and a cluster of
// its own. They must not affect each other.
func TestFaults(t *testing.T) {
	s := site.New(t, programs, site.Config{})
	for name, test := range map[string]func(*testing.T, *site.Site){
		"away": away, "otherkey": otherKey, "powercut": powerCut, "sshd": restartedSSHD, "much": muchOutput, "full": fullDisk,
		"behind": leftBehind, "sick": sick,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// TestPluginKilled kills the plugin that runs a script. The node's record is read before the script
// runs again. The test runs alone, because all others use the same plugin.
func TestPluginKilled(t *testing.T) {
	s := site.New(t, programs, site.Config{})
	o := on(t, s, "killed", "[ $(wc -l </begun) -gt 1 ] || { : >/waits; exec sleep 1000; }", "5m", lab.Spec{})
	op := o.begin()
	o.Await("the script to run", func() error { return o.there("/waits") })
	killed := 0
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == filepath.Join(s.Bin, "coopr-automator-shell") {
			var pid int
			if _, err := fmt.Sscanf(l, "/proc/%d/exe", &pid); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		t.Fatal("no plugin runs")
	}
	i := install(o.over(op.ID, model.OpSucceeded))
	if i.Attempt < 2 || i.Attempts[0].Outcome != "unknown" && i.Attempts[0].Outcome != "cancelled" || o.lines("/begun") != 2 ||
		o.lines("/ended") != 1 {
		t.Errorf("attempts %+v, begun %d times, ended %d times", i.Attempts, o.lines("/begun"), o.lines("/ended"))
	}
	o.remove()
}

// there reports whether a file is on the machine.
func (o *one) there(file string) error {
	_, err := o.machine.Run(o.Context(), "test", "-e", file)
	return err
}

// away: the machine's SSH port never answers.
func away(t *testing.T, s *site.Site) {
	o := on(t, s, "away", "true", "1m", lab.Spec{})
	o.define("127.0.0.9", "true", "1m") // nobody listens there
	op := o.begin()
	tasks := o.over(op.ID, model.OpFailed)
	if len(tasks) == 0 || tasks[0].Action != model.Create || !strings.Contains(tasks[0].Message, "1 cannot be reached") {
		t.Errorf("%+v", tasks)
	}
	if out, err := o.Coopr("cluster", "delete", o.name, "--yes"); err != nil {
		t.Errorf("delete: %v\n%s", err, out)
	}
}

// otherKey: between two operations the machine's host key changes. Nothing is sent
// there until the key is the old one again.
func otherKey(t *testing.T, s *site.Site) {
	o := on(t, s, "otherkey", "true", "1m", lab.Spec{})
	const key = "/etc/ssh/ssh_host_ed25519_key"
	// The provider's definition has no host key. Therefore connections require the host key that
	// CONFIRM recorded.
	o.define(o.machine.Addr.String(), "true", "1m")
	o.over(o.begin().ID, model.OpSucceeded)
	began := o.lines("/begun")
	change := func(script string) {
		t.Helper()
		if out, err := o.machine.Run(o.Context(), "/bin/sh", "-c", script); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// Every connection that stands ends, too: they were made to the old one.
	change("mv " + key + " /root/old; ssh-keygen -q -t ed25519 -N '' -f " + key +
		"; pkill -HUP -o -x sshd; for p in $(pgrep -f '[s]shd: root'); do kill $p; done")
	out, err := o.Coopr("cluster", "delete", o.name, "--yes")
	if err == nil || !strings.Contains(out, "host key") {
		t.Errorf("work on a machine with another key: %v\n%s", err, out)
	}
	if n := o.lines("/begun"); n != began {
		t.Errorf("a script was run on it: %d, not %d", n, began)
	}
	change("mv /root/old " + key + "; pkill -HUP -o -x sshd")
	o.remove()
}

// powerCut: the machine loses power in the middle of INSTALL and comes back.
func powerCut(t *testing.T, s *site.Site) {
	o := on(t, s, "powercut", "[ $(wc -l </begun) -gt 1 ] || { : >/waits; sync; exec sleep 1000; }", "5m", lab.Spec{})
	op := o.begin()
	o.Await("the script to run", func() error { return o.there("/waits") })
	if err := o.machine.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := o.machine.Boot(o.Context()); err != nil {
		t.Fatal(err)
	}
	i := install(o.over(op.ID, model.OpSucceeded))
	if i.Attempt < 2 || o.lines("/begun") != 2 || o.lines("/ended") != 1 {
		t.Errorf("attempts %+v, begun %d times, ended %d times", i.Attempts, o.lines("/begun"), o.lines("/ended"))
	}
	o.remove()
}

// restartedSSHD: the script restarts the sshd of its own connection.
func restartedSSHD(t *testing.T, s *site.Site) {
	o := on(t, s, "sshd", "pkill -HUP -o -x sshd; sleep 1; : >/after", "1m", lab.Spec{})
	i := install(o.over(o.begin().ID, model.OpSucceeded))
	if i.Attempt != 1 || o.lines("/ended") != 1 || o.there("/after") != nil {
		t.Errorf("attempts %+v, ended %d times", i.Attempts, o.lines("/ended"))
	}
	o.remove()
}

// muchOutput: a script writes 100 MB of output. The end of the script is still noticed, and a line
// in the log marks where it was cut.
func muchOutput(t *testing.T, s *site.Site) {
	o := on(t, s, "much", "yes 0123456789012345678901234567890123456789012345678901234567890 | head -c 100000000", "5m", lab.Spec{})
	i := install(o.over(o.begin().ID, model.OpSucceeded))
	if i.Attempt != 1 || o.lines("/ended") != 1 {
		t.Errorf("attempts %+v, ended %d times", i.Attempts, o.lines("/ended"))
	}
	out, err := o.Coopr("task", "log", i.ID)
	if err != nil || !strings.Contains(out, "the log is cut here") {
		t.Errorf("the end of the log: %v %q", err, out[max(0, len(out)-200):])
	}
	o.remove()
}

// TestDeafScript has a script that ignores TERM and exceeds its time-out. In each attempt it is ended
// together with its processes, and the operation fails. The test runs alone: where the processor is
// too busy for the end of the script to be reported in time, the plugin is killed.
func TestDeafScript(t *testing.T) {
	s := site.New(t, programs, site.Config{})
	o := on(t, s, "deaf", "trap '' TERM INT HUP\nmarker=marker-deaf sh -c 'trap \"\" TERM; exec -a marker-deaf sleep 1000' &\nsh -c 'while "+
		":; do sleep 1; done # marker-deaf'", "1s", lab.Spec{})
	i := install(o.over(o.begin().ID, model.OpFailed))
	if i.Attempt < 2 || !strings.Contains(i.Message, "timed out") {
		t.Errorf("attempts %+v", i.Attempts)
	}
	if n := o.lines("/begun"); n != i.Attempt {
		t.Errorf("begun %d times in %d attempts", n, i.Attempt)
	}
	o.Await("the script's processes to be gone", func() error {
		if out, _ := o.machine.Run(o.Context(), "pgrep", "-f", "[m]arker-deaf"); out != "" {
			return errors.New("there are " + out)
		}
		return nil
	})
	o.remove()
}

// fullDisk: the machine's disk is full. The script fails with that message, and the machine is
// released nevertheless.
func fullDisk(t *testing.T, s *site.Site) {
	o := on(t, s, "full", "cat /dev/zero >/srv/zero", "1m", lab.Spec{Disk: 4 << 20})
	i := install(o.over(o.begin().ID, model.OpFailed))
	tail := ""
	for _, a := range i.Attempts {
		tail += a.Log + a.Message
	}
	if i.Attempt < 2 || !strings.Contains(tail, "No space left on device") {
		t.Errorf("attempts %+v", i.Attempts)
	}
	o.remove()
}
