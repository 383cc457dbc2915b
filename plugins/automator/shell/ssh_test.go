package shell

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/lab"
)

// recorder keeps a task's log.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) log(line string, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// TestOverSSH runs actions of a service on a light machine, as an ordinary user with sudo: scripts
// of both kinds and their environment, repeated tasks, a wrong host key.
func TestOverSSH(t *testing.T) {
	l := lab.New(t)
	m, err := l.Start(t.Context(), lab.Spec{Name: "web1"})
	if err == nil {
		err = m.WaitSSH(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	scripts := t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "hello.sh"), []byte("#!/bin/sh\necho hello $1 from $(hostname)\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := New(Config{Scripts: []string{scripts}, Path: os.Getenv("PATH"), Bin: "/agents/own"})
	t.Cleanup(a.Close)
	var log *recorder
	results := (&ssh.Results{User: "debian", PrivateKey: string(l.Key()), HostKeys: []gossh.PublicKey{m.HostKey}}).Map()
	task := func(id, action string, fields map[string]any) *sdk.Task {
		in, err := json.Marshal(model.TaskInput{TaskID: id, Config: model.TaskConfig{
			Cluster: map[string]any{"web": map[string]any{"password": "in-the-configuration"}}, Hostname: "web1", NodeNum: 3,
			Service: &model.TaskService{Name: "s", Action: model.TaskAction{Type: "shell", Fields: fields}},
			Results: results, IPAddresses: map[string]string{"access_v4": m.Addr.String(), "bind_v4": "10.1.1.1"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		log = &recorder{}
		return sdk.NewTask(&proto.Task{Id: id, Fence: 1, Attempt: 1, Action: action, Service: "s", Input: in}, log.log, nil)
	}
	do := func(x *sdk.Task) *sdk.Output {
		t.Helper()
		out, err := a.Run(t.Context(), x)
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		return out
	}
	if _, err := a.Bootstrap(t.Context(), task("b", "BOOTSTRAP", nil)); err != nil {
		t.Fatal(err)
	}
	do(task("t1", "INSTALL", map[string]any{"script": "hello.sh", "args": "'you there'"}))
	if got := log.String(); got != "hello you there from web1" {
		t.Error(got)
	}
	out := do(task("t2", "CONFIGURE", map[string]any{"env": map[string]any{"X": "a b"}, "script": `#!/bin/bash -e
		id -un; pwd; echo "$PATH"; echo "$X $COOPR_NODE_NUM $COOPR_HOSTNAME $COOPR_IP"
		grep -o "in-the-[c]onfiguration" "$COOPR_CONFIG"; ! grep -c "PRIVATE [K]EY" "$COOPR_CONFIG"; env | grep -c "PRIVATE [K]EY" || true
		echo 'COOPR_RESULT {"result": {"port": 80}}'`}))
	want := "root\n/var/lib/coopr\n/var/lib/coopr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\na b 3 web1 " +
		"10.1.1.1\nin-the-configuration\n0\n0\n"
	if got := log.String(); !strings.HasPrefix(got, want) || out.Result["port"] != 80.0 {
		t.Errorf("%s\n%v", got, out)
	}
	// An interpreter other than a shell gets the script as a file.
	do(task("t3", "START", map[string]any{"script": "#!/usr/bin/python3\nimport os\nprint('python', os.getuid())"}))
	if got := log.String(); got != "python 0" {
		t.Error(got)
	}
	if done, out, err := a.Check(t.Context(), task("t2", "CONFIGURE", nil)); err != nil || !done || out.Result["port"] != 80.0 {
		t.Errorf("what was done is not known: %v %v %v", done, out, err)
	}
	if done, _, err := a.Check(t.Context(), task("t9", "CONFIGURE", nil)); err != nil || done {
		t.Errorf("what was never done: %v %v", done, err)
	}
	if out, err := m.Run(t.Context(), "sh", "-c", "ls -A /dev/shm; grep -rl in-the-[c]onfiguration /var/lib/coopr /tmp /home /root; ps -e "+
		"-o args | grep -c [i]n-the-[c]onf"); strings.TrimSpace(out) != "0" {
		t.Errorf("something is left: %q %v", out, err)
	}

	if _, err := a.Run(t.Context(), task("t4", "STOP", map[string]any{"script": "#!/bin/sh\nexit 3"})); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Run(ctx, task("t5", "STOP", map[string]any{"script": "#!/bin/sh\n:"})); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	other, err := l.Start(t.Context(), lab.Spec{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	results["ssh_host_keys"] = map[string]any{other.HostKey.Type(): strings.Fields(string(gossh.MarshalAuthorizedKey(other.HostKey)))[1]}
	if _, err := a.Run(t.Context(), task("t6", "START", map[string]any{"script": "#!/bin/sh\ntouch /touched"})); !errors.Is(err,
		ssh.ErrHostKey) {
		t.Errorf("another machine in its place: %v", err)
	}
	if _, err := m.Run(t.Context(), "test", "!", "-e", "/touched"); err != nil {
		t.Error("a script ran on a machine that is not the node")
	}
}
