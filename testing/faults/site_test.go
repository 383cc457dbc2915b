package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
)

func TestMain(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built != "" {
			os.RemoveAll(built)
		}
		os.Exit(code)
	}))
}

// built is the folder of the programs, once a test has needed them.
var built string

// programs builds the programs once and gives their folder.
var programs = sync.OnceValues(func() (string, error) {
	var err error
	if built, err = os.MkdirTemp("", "coopr-faults-"); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", built+"/", "./cmd/...", "./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-hosts")
	build.Dir, build.Stderr = filepath.Join("..", ".."), os.Stderr
	// Raft's stores need the tag (docs/decisions/001-libraries.md).
	build.Env = append(os.Environ(), "GOFLAGS=-tags=hashicorpmetrics -buildvcs=false")
	return built, build.Run()
})

// patience is how long a test waits for anything before it gives up.
const patience = 2 * time.Minute

// address is the agent's; the arena is ours alone.
const address = "127.0.0.1:55054"

// site is an agent with machines: each has a provider of its own, of its name.
type site struct {
	t        *testing.T
	lab      *lab.Lab
	bin, dir string
	token    string
	agent    *exec.Cmd
	ended    chan struct{}
	err      error // how the agent ended; read after ended is closed
	api      *client.Client
}

func newSite(t *testing.T) *site {
	s := &site{t: t, lab: lab.New(t), dir: t.TempDir(), ended: make(chan struct{})}
	var err error
	if s.bin, err = programs(); err != nil {
		t.Fatalf("build the programs: %v", err)
	}
	keys := filepath.Join(s.dir, "keys")
	settings := fmt.Sprintf("data_dir: %s\nplugin_dir: %s\nplugins:\n", filepath.Join(s.dir, "data"), s.bin)
	for _, name := range []string{"provider-hosts", "automator-shell"} {
		settings += fmt.Sprintf("  - {name: %s, settings: {keys: [%s]}}\n", name, keys)
	}
	log, err := os.Create(filepath.Join(s.dir, "agent.log"))
	if err = errors.Join(err, os.Mkdir(keys, 0o700), os.WriteFile(filepath.Join(keys, "lab"), s.lab.Key(), 0o600),
		os.WriteFile(filepath.Join(s.dir, "agent.yaml"), []byte(settings), 0o600)); err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.agent = exec.Command(filepath.Join(s.bin, "coopr-agent"), "--dev", "--config", filepath.Join(s.dir, "agent.yaml"))
	s.agent.Dir, s.agent.Env, s.agent.Stdout, s.agent.Stderr = s.dir, s.env(), log, log
	if err := s.agent.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.err = s.agent.Wait()
		close(s.ended)
	}()
	t.Cleanup(s.end)
	s.await("the agent's token", func() error {
		b, err := os.ReadFile(filepath.Join(s.dir, "data", "dev-token"))
		s.token = strings.TrimSpace(string(b))
		return err
	})
	if s.api, err = client.New(client.Config{Addresses: []string{address}, Token: s.token}); err != nil {
		t.Fatal(err)
	}
	s.await("the agent to be at work", func() error {
		list, _, err := s.api.Agents(s.context(), client.Read{})
		if err == nil && (len(list) == 0 || len(list[0].Plugins) < 2) {
			err = errors.New("it is not yet")
		}
		return err
	})
	return s
}

func (s *site) env() []string {
	return []string{"HOME=" + s.dir, "TMPDIR=" + s.dir, "PATH=" + s.bin + ":" + os.Getenv("PATH")}
}

func (s *site) end() {
	if s.api != nil {
		s.api.Close()
	}
	_ = s.agent.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.t.Error("the agent does not stop")
		_ = s.agent.Process.Kill()
		<-s.ended
	}
	if s.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(s.dir, "agent.log"))
		s.t.Logf("---- the end of the agent's log (it ended with %v):\n%s", s.err, b[max(0, len(b)-4000):])
	}
}

func (s *site) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *site) await(what string, ask func() error) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-over:
			s.t.Fatalf("waited for %s: %v", what, err)
		case <-tick.C:
		}
	}
}

// one is a fault's own machine, provider, service, template and cluster, all of one name.
type one struct {
	*site
	name    string
	machine *lab.Machine
}

// on makes a machine and definitions for a fault: install is the service's script.
func (s *site) on(t *testing.T, name, install, timeout string, spec lab.Spec) *one {
	t.Helper()
	o := &one{site: &site{t: t, lab: s.lab, bin: s.bin, dir: s.dir, token: s.token, api: s.api, ended: s.ended}, name: name}
	spec.Name = name
	var err error
	if o.machine, err = s.lab.Start(o.context(), spec); err == nil {
		err = o.machine.WaitSSH(o.context())
	}
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Replace(strings.TrimSpace(string(gossh.MarshalAuthorizedKey(o.machine.HostKey))), " ", ":", 1)
	o.define(fmt.Sprintf("%s hostkey=%s", o.machine.Addr, key), install, timeout)
	return o
}

// define imports the fault's definitions.
func (o *one) define(inventory, install, timeout string) {
	o.t.Helper()
	indented := strings.ReplaceAll(strings.TrimSpace(install), "\n", "\n          ")
	text := fmt.Sprintf(`providers:
- {name: %[1]s, providertype: hosts, provisioner: {ssh_identityfile: lab, inventory: %[2]q}}
hardwaretypes:
- {name: %[1]s, providermap: {%[1]s: {flavor: any}}}
imagetypes:
- {name: %[1]s, providermap: {%[1]s: {image: any}}}
services:
- name: %[1]s
  provisioner:
    actions:
      install:
        type: shell
        timeout: %[3]s
        fields:
          script: |
            #!/bin/sh
            echo "$COOPR_FENCE" >>/begun
%[4]s
            echo "$COOPR_FENCE" >>/ended
clustertemplates:
- name: %[1]s
  defaults: {services: [%[1]s], provider: %[1]s, hardwaretype: %[1]s, imagetype: %[1]s}
  compatibility: {services: [%[1]s], hardwaretypes: [%[1]s], imagetypes: [%[1]s]}
`, o.name, inventory, timeout, "            "+strings.ReplaceAll(indented, "          ", "            "))
	file := filepath.Join(o.dir, o.name+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	if out, err := o.coopr("import", file); err != nil {
		o.t.Fatalf("%v\n%s\n%s", err, out, text)
	}
}

// coopr runs the command.
func (s *site) coopr(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "coopr"), args...)
	var both bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, &both, &both
	cmd.Env = append(s.env(), "COOPR_ADDR="+address, "COOPR_TOKEN="+s.token)
	err := cmd.Run()
	return both.String(), err
}

// begin starts the cluster and gives its operation.
func (o *one) begin() model.Operation {
	o.t.Helper()
	st, _, err := o.api.CreateCluster(o.context(), model.CreateCluster{Name: o.name, ClusterTemplate: o.name, NumMachines: 1, OnFailure: "leave"}, false)
	if err != nil {
		o.t.Fatal(err)
	}
	return *st.Operation
}

// over waits for an operation's end and gives its tasks that were attempted.
func (o *one) over(op string, want model.OperationStatus) []model.Task {
	o.t.Helper()
	o.await("the operation's end", func() error {
		d, _, err := o.api.Operation(o.context(), op, client.Read{})
		if err == nil && !d.Status.Ended() {
			err = fmt.Errorf("it is %s", d.Status)
		}
		if err == nil && d.Status != want {
			o.t.Errorf("it is %s, not %s: %s", d.Status, want, d.Message)
		}
		return err
	})
	tasks, _, err := o.api.Tasks(o.context(), op, "", client.Page{}, client.Read{})
	if err != nil {
		o.t.Fatal(err)
	}
	return tasks
}

// lines counts the lines of a file on the machine; 0 where it is not.
func (o *one) lines(file string) int {
	out, err := o.machine.Run(o.context(), "/bin/sh", "-c", "cat "+file+" 2>/dev/null || true")
	if err != nil {
		o.t.Fatal(err)
	}
	return len(strings.Fields(out))
}

// install gives the task that the fault is about.
func install(tasks []model.Task) model.Task {
	for _, t := range tasks {
		if t.Action == model.Install {
			return t
		}
	}
	return model.Task{}
}

// remove deletes the cluster: its machine is free and clean, and nothing runs there.
func (o *one) remove() {
	o.t.Helper()
	if out, err := o.coopr("cluster", "delete", o.name, "--yes"); err != nil {
		o.t.Errorf("delete: %v\n%s", err, out)
	}
	// A guard whose connection is gone cleans up by itself.
	o.await("nothing to be left on the machine", func() error {
		out, err := o.machine.Run(o.context(), "/bin/sh", "-c", "ls -A /var/lib/coopr 2>/dev/null; ls -A /dev/shm; pgrep -f '[m]arker-"+o.name+"' || true")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("%q", out)
		}
		return err
	})
}
