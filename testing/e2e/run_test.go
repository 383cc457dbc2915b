package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// script writes a job to the test's folder.
func (m *mesh) script(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o700); err != nil {
		m.t.Fatal(err)
	}
}

// awaitRun waits until a run is as it should be.
func (m *mesh) awaitRun(id, what string, ok func(api.RunDetails) bool) (run api.RunDetails) {
	m.t.Helper()
	m.await("run "+id+" to be "+what, func() error {
		r, _, err := m.api().Run(m.context(), id, client.Read{})
		if err == nil && !ok(r) {
			err = fmt.Errorf("%w: it is %s and %s: %s", errNotYet, r.Status, r.Cluster.Status, r.Message)
		}
		run = r
		return err
	})
	return run
}

func (m *mesh) latestRun() api.RunDetails {
	m.t.Helper()
	list, _, err := m.api().Runs(m.context(), client.RunFilter{}, client.Page{Limit: 1}, client.Read{})
	if err != nil || len(list) == 0 {
		m.t.Fatalf("no run: %v", err)
	}
	return list[0]
}

// TestRun runs a job on three nodes of its own and checks its output and exit code; kept nodes,
// extended and removed; a stop; the locked properties of a profile.
func TestRun(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	m.agents[0].start()
	m.ready()
	m.script("job.sh", "#!/bin/sh\necho \"node $COOPR_NODE_INDEX of $COOPR_NODE_COUNT: $*\"\necho oh >&2\n[ \"$1\" = good ] || exit 7\n")
	m.must("profile", "create", "small", "--provisioner", "local", "-p", "numMachines=2", "-l", "flavor=tiny", "--keep-failed", "1h")
	s := m.coopr("run", "--profile", "small", "--nodes", "3", "-p", "flavor=huge", "--", "./job.sh", "good", "one")
	for i := range 3 {
		if want := fmt.Sprintf("| node %d of 3: good one\n", i); !strings.Contains(s.out, want) {
			t.Errorf("no %q", want)
		}
	}
	if s.code != 0 || strings.Count(s.err, "| oh\n") != 3 || !strings.Contains(s.err, "property flavor is locked by the profile") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	run := m.awaitRun(m.latestRun().ID, "over", func(r api.RunDetails) bool { return r.Over() })
	if run.Status != profile.Completed || run.Cluster.Status != profile.Deprovisioned || *run.Cluster.NumNodes != 3 || run.NodeMinutes != 3 {
		t.Errorf("%+v", run)
	}
	if out := m.must("runs", "logs", run.ID); strings.Count(out, "good one") != 3 {
		t.Errorf("what is kept of the output: %s", out)
	}
	for _, plan := range []string{"provision:" + run.ID, "program:" + run.ID, "deprovision:" + run.ID} {
		if op, _, err := m.api().Operation(m.context(), map[string]string{"pro": run.Operation, "dep": run.DeprovisionOperation}[plan[:3]],
			client.Read{}); strings.HasPrefix(plan, "provision") {
			if op, _, err := m.api().Operation(m.context(), run.ProvisionOperation, client.Read{}); err != nil || op.Plan != plan {
				t.Errorf("%s: %s %v", plan, op.Plan, err)
			}
		} else if err != nil || op.Plan != plan {
			t.Errorf("%s: %s %v", plan, op.Plan, err)
		}
	}

	if s = m.coopr("run", "-q", "--profile", "small", "--", "./job.sh", "bad"); s.code != 7 {
		t.Errorf("code %d\n%s", s.code, s.err)
	}
	run = m.awaitRun(m.latestRun().ID, "kept", func(r api.RunDetails) bool { return r.Cluster.Status == profile.Waiting })
	if run.Status != profile.Failed || run.Failure != profile.FailedProgram || len(run.Cluster.Nodes) != 2 || *run.ExitCode != 7 {
		t.Errorf("%+v", run)
	}
	if out := m.must("plan", "list", run.Cluster.ID); !strings.Contains(out, "provision:"+run.ID) ||
		!strings.Contains(out, "program:"+run.ID) {
		t.Errorf("the run's plans are not among its cluster's: %s", out)
	}
	m.must("runs", "extend", run.ID, "2h")
	if r := m.awaitRun(run.ID, "kept", func(api.RunDetails) bool { return true }); r.Cluster.ExpiresAt <= run.Cluster.ExpiresAt {
		t.Errorf("until %d, and was %d", r.Cluster.ExpiresAt, run.Cluster.ExpiresAt)
	}
	m.must("runs", "deprovision", run.ID)
	m.awaitRun(run.ID, "gone", func(r api.RunDetails) bool { return r.Cluster.Status == profile.Deprovisioned })
	if s := m.coopr("runs", "deprovision", run.ID); s.code != 4 {
		t.Errorf("what is gone was ended again: code %d\n%s", s.code, s.err)
	}

	id := strings.TrimSpace(m.must("run", "-d", "--", "sleep", "1000"))
	m.awaitRun(id, "running", func(r api.RunDetails) bool { return r.Status == profile.Running })
	cluster := m.awaitRun(id, "running", func(api.RunDetails) bool { return true }).Cluster.ID
	m.must("plan", "pause", cluster, "program:"+id)
	m.awaitRun(id, "suspended", func(r api.RunDetails) bool { return r.Status == profile.Suspended })
	m.must("plan", "resume", cluster, "program:"+id)
	m.awaitRun(id, "running again", func(r api.RunDetails) bool { return r.Status == profile.Running })
	m.must("runs", "stop", id)
	run = m.awaitRun(id, "over", func(r api.RunDetails) bool { return r.Over() })
	if run.Status != profile.Killed {
		t.Errorf("%s: %s", run.Status, run.Message)
	}
	if out := m.must("profile", "stats", "small", "-o", "json"); !strings.Contains(out, `"completed": 1`) ||
		!strings.Contains(out, `"failed": 1`) {
		t.Error(out)
	}
	m.profiles()
	m.stop()
}

// profiles checks the routes' codes (docs/spec/profiles.md §6).
func (m *mesh) profiles() {
	m.t.Helper()
	a := m.agents[0]
	put := `{"label":"x","provisioner":{"name":"native","properties":[{"name":"numMachines","value":"1","isEditable":false},null]}}`
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"PUT", "/v1/profiles/p", put, 200},
		{"PUT", "/v1/profiles/SYSTEM:p", put, 200},
		{"PUT", "/v1/profiles/p", put, 200},
		{"PUT", "/v1/profiles/q", `{"some":"thing"}`, 400},
		{"PUT", "/v1/profiles/q", `{"provisioner":{"name":"nobody"}}`, 400},
		{"PUT", "/v1/profiles/q", `{"provisioner":{"name":"native","properties":[{"name":"numMachines","value":"many"}]}}`, 400},
		{"PUT", "/v1/profiles/q", `{`, 400},
		{"PUT", "/v1/profiles/native", put, 405},
		{"POST", "/v1/profiles/SYSTEM:native/disable", "", 405},
		{"DELETE", "/v1/profiles/native", "", 405},
		{"GET", "/v1/profiles/nobody", "", 404},
		{"DELETE", "/v1/profiles/nobody", "", 404},
		{"POST", "/v1/profiles/nobody/enable", "", 404},
		{"POST", "/v1/profiles/p/enable", "", 409},
		{"DELETE", "/v1/profiles/p", "", 409},
		{"PUT", "/v1/preferences", `{"properties":{"system.profile.name":"p"}}`, 200},
		{"PUT", "/v1/system/preferences", `{"properties":{"system.profile.name":"USER:p"}}`, 400},
		{"PUT", "/v1/preferences", `{"properties":{"system.profile.name":"nobody"}}`, 404},
		{"POST", "/v1/profiles/p/disable", "", 200},
		{"POST", "/v1/profiles/p/disable", "", 409},
		{"GET", "/v1/profiles/p/status", "", 200},
		{"DELETE", "/v1/profiles/p", "", 409}, // it is assigned
		{"PUT", "/v1/programs/job", `{"steps":[{"command":["true"]}]}`, 200},
		{"POST", "/v1/programs/job/start", "", 409}, // the profile is disabled
		{"DELETE", "/v1/preferences", "", 200},
		{"DELETE", "/v1/profiles/p", "", 200},
		{"PUT", "/v1/profiles/none", `{"provisioner":{"name":"native"},"limits":{"runs":0}}`, 200},
		{"POST", "/v1/programs/job/start", `{"profile":"none"}`, 429},
		{"PUT", "/v1/schedules/s", `{"program":"job","cron":"30 2 * * *","timezone":"Europe/Berlin",` +
			`"properties":{"system.profile.name":"SYSTEM:p"}}`, 200},
		{"PUT", "/v1/schedules/t", `{"program":"job","cron":"30 25 * * *","timezone":"Nowhere"}`, 422},
		{"DELETE", "/v1/programs/job", "", 409}, // it has a schedule
		{"GET", "/v1/provisioners/native", "", 200},
		{"GET", "/v1/provisioners/nobody", "", 404},
		{"GET", "/v1/search?query=profile:SYSTEM:p", "", 200},
		{"GET", "/v1/runs/nobody", "", 404},
	} {
		status, _, body, err := a.do(request{method: c.method, path: c.path, body: c.body})
		if err != nil || status != c.want {
			m.t.Errorf("%s %s: %d %v, want %d: %s", c.method, c.path, status, err, c.want, body)
		}
		if strings.Contains(c.path, "search") {
			var found []api.Found
			if err := json.Unmarshal(body, &found); err != nil || len(found) != 1 || found[0].Name != "s" {
				m.t.Errorf("%s: %s", c.path, body)
			}
		}
	}
	rejected, _, err := m.api().Runs(m.context(), client.RunFilter{Status: "REJECTED"}, client.Page{}, client.Read{})
	if err != nil || len(rejected) != 1 {
		m.t.Errorf("%d rejected runs: %v", len(rejected), err)
	}
	_, _, metrics, err := a.do(request{method: http.MethodGet, path: "/v1/metrics"})
	if err != nil || !strings.Contains(string(metrics), `coopr_run_ended_total{outcome="REJECTED",profile="USER:none",tenant="default"} 1`) {
		m.t.Errorf("no metrics of runs: %v", err)
	}
}

// TestRunKillLeader kills the leader while a job runs. Another leader continues, the output is
// complete, and nothing is left.
func TestRunKillLeader(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	m.script("job.sh", "#!/bin/sh\necho begun\nwhile [ ! -e \"$1\" ]; do sleep 0.1; done\necho done\n")
	flag := filepath.Join(m.dir, "go")
	ended := make(chan said, 1)
	go func() { ended <- m.coopr("run", "--nodes", "3", "--", "./job.sh", flag) }()
	m.await("the job to run", func() error {
		list, _, err := m.api().Runs(m.context(), client.RunFilter{}, client.Page{}, client.Read{})
		if err == nil && (len(list) == 0 || list[0].Status != profile.Running) {
			err = errNotYet
		}
		return err
	})
	leader := m.leader()
	leader.kill()
	m.leader(leader)
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := <-ended
	if s.code != 0 || strings.Count(s.out, "| done\n") < 3 {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	run := m.awaitRun(m.latestRun().ID, "over", func(r api.RunDetails) bool { return r.Over() })
	if run.Status != profile.Completed || run.Cluster.Status != profile.Deprovisioned {
		t.Errorf("%+v", run)
	}
	leader.start() // it takes away what it left
	m.ready()
	m.stop()
}

// TestRunHidesSecrets runs a program that prints a secret in several ways. A user writes such a program only
// for secrets that an administrator has given to that user, and no output that is kept shows the secret.
func TestRunHidesSecrets(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	m.agents[0].start()
	m.ready()
	const value = "correct horse battery staple"
	file := m.put("value", value+"\n")
	m.must("secret", "put", "phrase", "--file", file)
	program := m.put("peek.yaml", "steps:\n- script: |\n    echo \"it is $PHRASE.\"\n    printf %s \"$PHRASE\" | base64\n    echo \"$PHRASE\" >&2\n"+
		"    exit 3\n  env: {PHRASE: '${secure(phrase)}'}\n")
	bob := strings.TrimSpace(m.must("token", "create", "bob"))
	if s := m.coopr("--token", bob, "program", "put", "peek", "-f", program); s.code == 0 || !strings.Contains(s.err, "add bob with --usable-by") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	m.must("secret", "put", "phrase", "--file", file, "--usable-by", "bob")
	if out := m.must("secret", "get", "phrase"); !strings.Contains(out, "administrators and bob") {
		t.Error(out)
	}
	m.must("--token", bob, "program", "put", "peek", "-f", program)
	// A run on this machine takes root's token, and a program that root wrote.
	if s := m.coopr("run", "--program", "peek"); s.code == 0 || !strings.Contains(s.out+s.err, "bob lacks the right host:exec") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	m.must("program", "put", "peek", "-f", m.put("checked.yaml", "description: checked\n"+string(text)))
	s := m.coopr("run", "--program", "peek")
	if s.code != 3 || strings.Count(s.out+s.err, "[redacted]") < 3 || !strings.Contains(s.out, "it is [redacted].") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	run := m.awaitRun(m.latestRun().ID, "over", func(r api.RunDetails) bool { return r.Over() })
	details, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"the output": s.out + s.err, "the run": string(details), "the log": m.must("runs", "logs", run.ID),
		"the program": m.must("program", "get", "peek", "-o", "json"), "the operation": m.must("operation", "get", run.Operation, "-o", "json"),
		"the audit log": m.must("audit", "list", "-o", "json"), "the agents' logs": m.agents[0].tail(1 << 20)} {
		if strings.Contains(text, "horse battery") || strings.Contains(text, "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBs") {
			t.Errorf("%s shows the secret:\n%s", what, text)
		}
	}
	m.must("secret", "put", "phrase", "--file", file)
	if out := m.must("secret", "get", "phrase"); !strings.Contains(out, "administrators and bob") {
		t.Errorf("a new value took the users away: %s", out)
	}
	m.must("secret", "put", "phrase", "--file", file, "--usable-by", "")
	if s := m.coopr("--token", bob, "program", "put", "peek", "-f", program); s.code == 0 || !strings.Contains(s.err, "add bob with --usable-by") {
		t.Errorf("code %d\n%s%s", s.code, s.out, s.err)
	}
	m.stop()
}
