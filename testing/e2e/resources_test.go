package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// put writes a file below the test's folder and returns its path.
func (m *mesh) put(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// content returns the path of a content at an agent, which encrypts it if it has a key.
func (a *agent) content(text string) (path string, sealed bool) {
	path = filepath.Join(a.data, "resources", "contents", fmt.Sprintf("%x", sha256.Sum256([]byte(text))))
	if _, err := os.Stat(path + ".sealed"); err == nil {
		return path + ".sealed", true
	}
	return path, false
}

// hasContent waits until an agent has a content on its disk, whole.
func (a *agent) hasContent(text string) {
	m := a.mesh
	m.t.Helper()
	m.await("agent "+a.name+" to have a content", func() error {
		path, sealed := a.content(text)
		b, err := os.ReadFile(path)
		if err == nil && (sealed && len(b) <= len(text) || !sealed && string(b) != text) {
			err = errNotYet
		}
		return err
	})
}

const resourceDefinitions = `
- kind: providers
  name: local
  providertype: local
- kind: hardwaretypes
  name: small
  providermap: {local: {flavor: small}}
- kind: imagetypes
  name: host
  providermap: {local: {image: host}}
- kind: services
  name: job
  provisioner:
    actions:
      install: {type: shell, fields: {script: step.sh, archives: site, args: install}}
      start: {type: shell, fields: {script: step.sh, archives: site, args: start}}
      stop: {type: shell, fields: {script: step.sh, archives: site, args: stop}}
- kind: clustertemplates
  name: job
  defaults: {provider: local, services: [job], hardwaretype: small, imagetype: host}
  compatibility: {services: [job], hardwaretypes: [small], imagetypes: [host]}
`

// step returns a script that reports its version; its first action waits for a gate.
func (m *mesh) step(version string) string {
	return fmt.Sprintf("#!/bin/sh\necho %s $1 $(cat $COOPR_ARCHIVES/site/page) >>%s\nwhile [ $1 = install ] && [ ! -e %s ]; do "+
		"sleep 0.05; done\n",
		version, filepath.Join(m.dir, "said"), filepath.Join(m.dir, "gate"))
}

// heard waits for the reports of the scripts.
func (m *mesh) heard(want ...string) {
	m.t.Helper()
	m.await(fmt.Sprintf("the scripts to say %q", want), func() error {
		b, err := os.ReadFile(filepath.Join(m.dir, "said"))
		if got := strings.Split(strings.TrimSpace(string(b)), "\n"); err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%w: %q", errNotYet, got)
		}
		return err
	})
}

// TestPluginResources: a resource uploaded to one agent is used by another; a plan keeps the
// versions that it was made with; a damaged content is fetched again; keys cannot be downloaded.
func TestPluginResources(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c", "w")
	m.expect = 3
	for _, a := range m.agents {
		a.flags = []string{"--worker-slots", "0"}
	}
	worker := m.agents[3]
	worker.flags = []string{"--worker-slots", "4", "--eligible=false", "--bootstrap-expect", "0", "--plugin-dir", filepath.Join(m.dir, "late")}
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	voters := m.agents[:3]
	m.latePlugin()

	// The script is refused, and then taken, where it belongs.
	one, two := m.step("one"), m.step("two")
	file := m.put("step.sh", one)
	for _, bad := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"upload", "automator/shel/scripts/step.sh", file}, 3, `did you mean "shell"?`},
		{[]string{"upload", "automator/shell/script/step.sh", file}, 3, "it has archives, keys, scripts"},
		{[]string{"upload", "automator/shell/archives/site", file}, 1, "tar, tar.gz"},
		{[]string{"upload", "shell/scripts/step.sh", file}, 2, "is not the name of a resource"},
		{[]string{"stage", "automator/shell/scripts/step.sh@1"}, 3, "there is no resource"},
		{[]string{"activate", "automator/shell/scripts/step.sh"}, 2, "the version is missing"},
	} {
		if s := m.coopr(append([]string{"resource"}, bad.args...)...); s.code != bad.code || !strings.Contains(s.err, bad.says) {
			t.Errorf("coopr resource %q: code %d\n%s%s", bad.args, s.code, s.out, s.err)
		}
	}
	m.put("site/page", "first")
	m.must("resource", "upload", "automator/shell/archives/site", filepath.Join(m.dir, "site"), "--stage")
	m.must("resource", "upload", "automator/shell/scripts/step.sh", file, "--stage")
	if out := m.must("resource", "sync"); !strings.Contains(out, "2 resources") {
		t.Error(out)
	}
	for _, a := range voters {
		a.hasContent(one)
		path, sealed := a.content(one)
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 || !sealed {
			t.Errorf("%s: %v %v", path, fi, err)
		}
	}

	// An automator's faults in the fields of an action are reported when the definition is written.
	bad := strings.Replace(resourceDefinitions, "args: start}", "args: it's}", 1)
	if s := m.coopr("import", m.put("bad.yaml", bad)); s.code != 1 ||
		!strings.Contains(s.err, "provisioner.actions.start.fields.args: a quote is not closed (reported by automator shell)") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}

	// A plan under way keeps what it was made with.
	m.must("import", m.put("definitions.yaml", resourceDefinitions))
	op := m.begin(model.CreateCluster{Name: "job", ClusterTemplate: "job", NumMachines: 1})
	m.heard("one install first")
	m.put("step.sh", two)
	m.put("site/page", "second")
	m.must("resource", "upload", "automator/shell/scripts/step.sh", file, "--activate")
	m.must("resource", "upload", "automator/shell/archives/site", filepath.Join(m.dir, "site"), "--activate")
	m.put("gate", "")
	m.succeeds(op.ID)
	m.heard("one install first", "one start first")
	restart := func(want ...string) {
		t.Helper()
		st, _, err := m.api().Operate(m.context(), op.Cluster, api.Operate{Type: model.OpRestart})
		if err != nil {
			t.Fatal(err)
		}
		m.succeeds(st.Operation.ID)
		m.heard(want...)
	}
	said := []string{"one install first", "one start first", "two stop second", "two start second"}
	restart(said...)

	// A content that the worker lacks and that is damaged at the leader comes from another agent.
	worker.kill()
	leader := m.leader()
	for _, a := range []*agent{worker, leader} {
		path, _ := a.content(two)
		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)-1] ^= 1
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	worker.start()
	m.ready()
	said = append(said, "two stop second", "two start second")
	restart(said...)
	worker.hasContent(two)
	if m.leader() == leader { // another one was asked otherwise
		leader.hasContent(two)
	}
	m.await("the log to say so", func() error { // lines of an agent that starts may wait for a second
		if b, err := os.ReadFile(worker.log()); err != nil || !bytes.Contains(b, []byte("the disk has corrupted")) {
			return errNotYet
		}
		return nil
	})

	// A content that no agent has is named, and can be uploaded again.
	worker.kill()
	for _, a := range m.agents {
		path, _ := a.content(two)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	worker.start()
	m.ready()
	st, _, err := m.api().Operate(m.context(), op.Cluster, api.Operate{Type: model.OpRestart})
	if err != nil {
		t.Fatal(err)
	}
	if d := m.ends(st.Operation.ID, model.OpFailed); !strings.Contains(d.Message, "scripts/step.sh@2: its content") ||
		!strings.Contains(d.Message, "is on none of the 4 agents") {
		t.Errorf("it failed with %q", d.Message)
	}
	m.must("resource", "upload", "automator/shell/scripts/step.sh", file)
	said = append(said, "two stop second", "two start second")
	restart(said...)

	m.keys(voters)
	// A version that is in force stays; all others can go, and contents stay for plans.
	if s := m.coopr("resource", "delete", "automator/shell/scripts/step.sh@2", "--yes"); s.code != 4 {
		t.Errorf("code %d: %s", s.code, s.err)
	}
	m.must("resource", "delete", "automator/shell/scripts/step.sh@1", "--yes")
	if out := m.must("resource", "download", "automator/shell/scripts/step.sh@2"); out != two {
		t.Errorf("%q", out)
	}
	m.remove("job")
	m.stop()
}

// latePlugin checks that a plugin put into an agent's folder is offered without a restart.
func (m *mesh) latePlugin() {
	m.t.Helper()
	m.put("late/late.yaml", "name: late\nkind: automator\nplugin: 1.0.0\nprotocol: exec\ncommand: [/bin/true]\n")
	m.await("the new plugin to be on offer", func() error {
		list, _, err := m.api().Agents(m.context(), client.Read{})
		for _, a := range list {
			if _, ok := a.Plugins["automator/late"]; ok {
				return nil
			}
		}
		return errors.Join(err, errNotYet)
	})
}

// keys checks that a key is readable by its owner alone and is in no answer, log or snapshot.
func (m *mesh) keys(voters []*agent) {
	t := m.t
	t.Helper()
	const secret = "a key that nobody sees"
	m.must("resource", "upload", "automator/shell/keys/id", m.put("id", secret), "--activate")
	if s := m.coopr("resource", "download", "automator/shell/keys/id@1"); s.code == 0 || strings.Contains(s.out, secret) ||
		!strings.Contains(s.err, "secret") {
		t.Errorf("code %d: %s%s", s.code, s.out, s.err)
	}
	for _, a := range voters {
		a.hasContent(secret)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))
	m.must("operator", "snapshot", "save", filepath.Join(m.dir, "snapshot"))
	out := m.must("resource", "list", "-o", "json") + m.must("resource", "get", "automator/shell/keys/id@1") + m.must("audit", "list",
		"-o", "json")
	if strings.Contains(out, secret) || strings.Contains(out, sum) {
		t.Error("what is known of a key tells too much")
	}
	files := []string{filepath.Join(m.dir, "snapshot")}
	for _, a := range m.agents {
		files = append(files, a.log())
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err != nil || bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s has the key: %v", f, err)
		}
	}
}

// gated is a content whose second half can be read only when its gate is open.
type gated struct {
	content []byte
	reached func()
	gate    chan struct{}
}

func (g *gated) ReadAt(p []byte, off int64) (int, error) {
	half := int64(len(g.content) / 2)
	if off < half {
		p = p[:min(int64(len(p)), half-off)]
	} else {
		g.reached()
		<-g.gate
	}
	return bytes.NewReader(g.content).ReadAt(p, off)
}

// TestUploadKilled: an upload whose agent dies leaves nothing. An upload whose leader dies exists
// once, after a repetition, on a majority of the voters.
func TestUploadKilled(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	k := model.ResourceKey{Kind: model.KindAutomatorType, Plugin: "shell", Type: "scripts", Name: "big"}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	upload := func(c *client.Client, victim *agent) error {
		g := &gated{content: content, gate: make(chan struct{})}
		reached := make(chan struct{})
		g.reached = sync.OnceFunc(func() { close(reached) })
		end := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		go func() {
			_, err := c.UploadResource(ctx, k, g, int64(len(content)), sum, model.ActivateResource)
			end <- err
		}()
		<-reached
		victim.kill()
		close(g.gate)
		return <-end
	}
	list := func() []model.ResourceVersion {
		t.Helper()
		all, err := m.api().Resources(m.context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	victim := m.follower()
	once, err := client.New(client.Config{Addresses: []string{victim.addr(httpPort)}, Token: m.token, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer once.Close()
	if err := upload(once, victim); err == nil {
		t.Error("an agent that was killed said that it has all")
	}
	m.leader()
	if all := list(); len(all) != 0 {
		t.Errorf("half an upload is there: %+v", all)
	}
	victim.start()
	m.ready()

	victim = m.leader()
	if err := upload(m.api(victim, m.follower()), victim); err != nil {
		t.Errorf("the second try: %v", err)
	}
	all := list()
	if len(all) != 1 || all[0].Version != 1 || all[0].Status != model.ResourceActive || all[0].SHA256 != sum {
		t.Fatalf("%+v", all)
	}
	victim.start()
	m.ready()
	for _, a := range m.agents {
		a.hasContent(string(content))
		left, err := filepath.Glob(filepath.Join(a.data, "resources", "contents", "new-*"))
		if err != nil || a == victim && len(left) > 0 {
			t.Errorf("halves are left: %v %v", left, err)
		}
	}
	m.stop()
}
