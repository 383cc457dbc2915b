package host

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/rpc/proto"
)

// asNobody is the variable with which the test starts itself as another user. It has the folder of the
// built plugins.
const asNobody = "COOPR_TEST_AS_NOBODY"

// prison is a host with the hostile plugin, and what that plugin must not reach.
type prison struct {
	*Host
	t      *testing.T
	dir    string
	secret string // a file of the agent's data directory
	other  string // a file in the folder of another plugin
	own    string // a resource of the plugin's tasks
	key    string // a resource of another plugin's tasks
}

const prisonSettings = `{"password":"hunter2"}`

// newPrison starts a host whose plugins run as a user, or as this one.
func newPrison(t *testing.T, userName string, limits confine.Limits) *prison {
	// The folders of testing can only be entered by their owner.
	dir, err := os.MkdirTemp("", "coopr-prison-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &prison{t: t, dir: dir, secret: filepath.Join(dir, "data", "mesh-secret")}
	work := filepath.Join(dir, "work")
	p.other = filepath.Join(work, "provider-other-123456", "token")
	resources := filepath.Join(dir, "resources")
	p.own = filepath.Join(resources, "automatortypes", "hostile", "0", "keys", "mine")
	p.key = filepath.Join(resources, "automatortypes", "other", "0", "keys", "theirs")
	for _, file := range []string{p.secret, p.other, p.own, p.key} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		// Its mode would let everybody read it.
		if err := os.WriteFile(file, []byte("secret"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	p.Host, err = New(Config{
		Plugins: []Binary{{Path: built.hostile, Settings: json.RawMessage(prisonSettings)}},
		DataDir: filepath.Join(data, "plugins"), WorkDir: work, Resources: resources,
		Launcher: newLauncher(t, userName, limits, data),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Host.Close() })
	return p
}

// try lets the plugin try something.
func (p *prison) try(do, path string, pid int) *proto.Result {
	p.t.Helper()
	task := task("try-"+do+path, map[string]any{"do": do, "path": path, "pid": strconv.Itoa(pid)})
	task.Plugin = "hostile"
	return p.Execute(p.t.Context(), task, nil)
}

// got is what the plugin reached.
func (p *prison) got(do string) string {
	p.t.Helper()
	r := p.try(do, "", 0)
	var out model.TaskOutput
	if r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		p.t.Fatalf("%s: %v", do, r)
	}
	if err := json.Unmarshal(r.Output, &out); err != nil {
		p.t.Fatal(err)
	}
	text, _ := out.Result["got"].(string)
	return text
}

// checkWalls tries everything that a plugin must not be able to do.
func checkWalls(t *testing.T, userName string, grade confine.Grade) {
	t.Setenv("COOPR_TEST_CANARY", "canary")
	p := newPrison(t, userName, confine.Limits{Processes: 100, Files: 256, Memory: 1 << 30, Disk: 64 << 20})
	if is := p.Isolation(); is.Grade != grade {
		t.Fatalf("the grade is %s: %v", is.Grade, is.Warnings)
	}
	agent := os.Getpid()
	for _, x := range []struct {
		do, path string
		pid      int
	}{
		{"read", p.secret, 0}, {"list", filepath.Dir(p.secret), 0}, {"write", p.secret, 0}, {"remove", p.secret, 0},
		{"write", filepath.Join(filepath.Dir(p.secret), "new"), 0},
		{"read", p.key, 0}, {"list", filepath.Dir(p.key), 0}, {"write", p.own, 0},
		{"read", p.other, 0}, {"list", filepath.Dir(p.other), 0}, {"write", p.other, 0},
		{"write", filepath.Join(p.dir, "work", "new"), 0}, {"write", filepath.Join(os.TempDir(), "coopr-hostile-was-here"), 0},
		{"write", built.hostile, 0}, {"read", "/etc/shadow", 0}, {"list", "/root", 0}, {"write", "/etc/coopr-hostile-was-here", 0},
		{"list", "/home", 0}, {"list", "/dev/shm", 0}, {"read", "/dev/tty", 0},
		{"environ", "", agent}, {"mem", "", agent}, {"descriptors", "", agent}, {"trace", "", agent}, {"root", filepath.Dir(p.secret), agent},
		{"environ", "", 1}, {"signal", "", agent},
	} {
		r := p.try(x.do, x.path, x.pid)
		denied := strings.Contains(r.Message, "permission denied") || strings.Contains(r.Message, "operation not permitted") ||
			strings.Contains(r.Message, "text file busy") || strings.Contains(r.Message, "no such file") && (x.path == "/home" || x.path == "/root")
		if r.Outcome != proto.Outcome_OUTCOME_FATAL || !denied {
			t.Errorf("%s %s %d: %v", x.do, x.path, x.pid, r)
		}
	}
	if r := p.try("read", p.own, 0); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("the plugin's own resources: %v", r)
	}
	if got := p.got("settings"); got != prisonSettings {
		t.Errorf("the plugin's settings are %q", got)
	}
	if got := p.got("environment"); strings.Contains(got, "hunter2") || strings.Contains(got, "canary") {
		t.Errorf("the plugin's environment and arguments:\n%s", got)
	}
	status := p.got("status")
	for _, line := range []string{"NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"} {
		if !strings.Contains(status, line) {
			t.Errorf("%s is not in the plugin's status:\n%s", line, status)
		}
	}
	if os.Geteuid() == 0 && !strings.Contains(status, "CapBnd:\t0000000000000000") {
		t.Errorf("the plugin's bounding set is not empty:\n%s", status)
	}
	for _, line := range strings.Split(p.got("open"), "\n") {
		fd, target, _ := strings.Cut(line, " ")
		if n, _ := strconv.Atoi(fd); n > 2 && !strings.HasPrefix(target, "anon_inode:") && !strings.HasPrefix(target, "socket:") &&
			!strings.HasPrefix(target, "pipe:") && !strings.HasPrefix(target, "/proc/") && !strings.HasPrefix(target, "/sys/fs/cgroup/") { // the runtime of Go
			t.Errorf("descriptor %s is open", line)
		}
	}
}

// checkLimits lets a plugin exceed its limits.
func checkLimits(t *testing.T, userName string) {
	p := newPrison(t, userName, confine.Limits{Processes: 50, Disk: 8 << 20})
	for do, limit := range map[string]string{"fork": "isolation.processes", "fill": "isolation.disk"} {
		r := p.try(do, "", 0)
		if r.Outcome == proto.Outcome_OUTCOME_SUCCEEDED || !strings.Contains(r.Message, limit) {
			t.Errorf("%s: %v", do, r)
		}
		named := false
		for _, b := range p.Isolation().Breaches {
			named = named || b.Plugin == "coopr-plugin-hostile" && strings.Contains(b.Message, limit)
		}
		if !named {
			t.Errorf("%s: the plugin is not named: %+v", do, p.Isolation().Breaches)
		}
		p.got("status") // it starts again
		if left := sleepers(t, p.dir); len(left) > 0 {
			t.Errorf("%s: processes %v are left", do, left)
		}
	}
}

// sleepers returns the processes that have a folder in their environment.
func sleepers(t *testing.T, dir string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		pid := strings.Split(f, "/")[2]
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), dir) && strings.TrimSpace(string(comm)) == "sleep" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestHostile: a hostile plugin reaches nothing of the agent, whose user it shares, and neither does one that runs as a user of its
// own. It needs a kernel with Landlock.
func TestHostile(t *testing.T) {
	checkWalls(t, "", confine.Shared)
	if os.Geteuid() == 0 {
		checkWalls(t, "nobody", confine.Separate)
	}
}

// TestLimits: a plugin that exceeds its limits is killed with all that it started, and is named.
func TestLimits(t *testing.T) {
	checkLimits(t, "")
	if os.Geteuid() == 0 {
		checkLimits(t, "nobody")
	}
}

// TestHostileAsNobody runs the tests above as an agent that is not root.
func TestHostileAsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this agent is not root already
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	tmp, err := os.MkdirTemp("", "coopr-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chown(tmp, uid, gid); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(tmp, "host.test")
	install(t, "/proc/self/exe", program)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^(TestHostile|TestLimits)$", "-test.v")
	cmd.Dir, cmd.Env = tmp, []string{asNobody + "=" + built.dir, "TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"--- PASS: TestHostile ", "--- PASS: TestLimits "} {
		if err == nil && !strings.Contains(string(out), want) {
			err = fmt.Errorf("%q is missing", want)
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestUnconfined: a machine that cannot confine plugins starts only those of Coopr, unless it is told
// to start others.
func TestUnconfined(t *testing.T) {
	for _, unconfined := range []bool{false, true} {
		h := newHost(t, func(c *Config) {
			c.Launcher, c.Unconfined = &confine.Launcher{}, unconfined
			writeExec(t, c.Dirs[0], "mine", "automator", "#!/bin/sh\nexit 0\n", "")
		})
		if g := h.Isolation().Grade; g != confine.None {
			t.Errorf("the grade is %s", g)
		}
		if r := h.Execute(t.Context(), task("own", nil), nil); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("a plugin of Coopr: %v", r)
		}
		r := h.Execute(t.Context(), execTask("x", nil), nil)
		if want := map[bool]proto.Outcome{false: proto.Outcome_OUTCOME_NOTHING_DONE, true: proto.Outcome_OUTCOME_SUCCEEDED}; r.Outcome != want[unconfined] ||
			!unconfined && !strings.Contains(r.Message, "isolation.unconfined") {
			t.Errorf("unconfined %v: %v", unconfined, r)
		}
	}
}

// TestExecSettings: a program of protocol "exec" gets its settings in the request, and not in its
// environment.
func TestExecSettings(t *testing.T) {
	const settings = `{"region":"hunter2"}` // no name of a secret, which the log would not have
	h := newHost(t, func(c *Config) {
		writeExec(t, c.Dirs[0], "mine", "automator", "#!/bin/sh\ncat >&2\nenv >&2\n", "")
		c.Plugins = []Binary{{Path: filepath.Join(c.Dirs[0], "mine.yaml"), Settings: json.RawMessage(settings)}}
	})
	var rec recorder
	r := h.Execute(t.Context(), execTask("x", nil), &rec)
	if log := strings.Join(rec.lines, "\n"); r.Outcome != proto.Outcome_OUTCOME_SUCCEEDED || strings.Count(log, "hunter2") != 1 ||
		!strings.Contains(log, `"settings":`+settings) {
		t.Errorf("%v\n%s", r, log)
	}
}
