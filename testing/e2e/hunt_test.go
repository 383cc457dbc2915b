package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/hunt"
)

// A place is something that the hunt searches.
type place struct {
	kind  string // such as "an answer"
	who   string // of an answer, the principal
	route string // of an answer, the operation
	name  string
}

// allowed reports whether a secret may be in a place: administrators who may write a definition get its secrets with an export.
func allowed(kind string, at place) bool {
	return at.route == "exportDefinitions" && (strings.HasSuffix(kind, "of a provider") || kind == "field of a service") &&
		slices.Contains([]string{"root", "sue", "ada"}, at.who)
}

// trophies is what a hunt has found.
type trophies struct {
	t    *testing.T
	hunt *hunt.Hunt

	mu     sync.Mutex
	decoys map[string]map[string]bool // the kinds of places that have each decoy
}

// check searches a place.
func (x *trophies) check(at place, data []byte) { x.judge(at, x.hunt.Bytes(at.name, data)) }

// judge fails the test for finds that nothing excuses.
func (x *trophies) judge(at place, found []hunt.Find) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range found {
		switch {
		case strings.HasPrefix(f.Kind, "decoy "):
			if x.decoys[f.Kind] == nil {
				x.decoys[f.Kind] = map[string]bool{}
			}
			x.decoys[f.Kind][at.kind] = true
		case allowed(f.Kind, at):
		default:
			x.t.Errorf("found the %s", f)
		}
	}
}

// folder searches the files of a folder. kind returns the kind of place of a file.
func (x *trophies) folder(dir string, kind func(path string) string) {
	x.t.Helper()
	found, _, err := x.hunt.Folder(dir, nil)
	if err != nil {
		x.t.Errorf("%s: %v", dir, err)
	}
	for _, f := range found {
		x.judge(place{kind: kind(f.Where), name: f.Where}, []hunt.Find{f})
	}
}

// TestHunt puts a canary into every kind of secret of a mesh that runs as in production, has the mesh do everything with them, and
// searches for them in everything that the agents keep, answer, log and start (docs/security.md). Decoys prove that the search reaches
// each kind of place.
func TestHunt(t *testing.T) {
	t.Parallel()
	p := newPreserve(t)
	p.people()
	end := p.listen()
	p.define()
	p.build()
	x := &trophies{t: t, decoys: map[string]map[string]bool{}}
	job := p.begin()
	p.workload()
	p.breakDown()
	p.site()
	x.hunt = p.hunter()
	p.process(x, "coopr-agent", "coopr-scripts")
	for _, a := range p.agents {
		// A journal has what tasks return while one of them runs; what plugins use is removed after them.
		x.check(place{kind: "a journal", name: "the journal of " + a.name}, p.read(filepath.Join(a.data, "journal")))
		x.folder(a.data+"-work", func(string) string { return "a file of plugins" })
	}
	p.finish(job)
	p.profiles()
	p.furnish()
	p.rotate()
	x.hunt = p.hunter()
	p.answers(x.check)
	p.process(x, "coopr-agent")
	end(p.tearDown())
	bundle := filepath.Join(p.dir, "debug.tar.gz")
	p.says("operator", "debug", bundle)
	p.says("monitor", "--latest")
	p.stop()

	// Whatever else a mesh hands out later is checked here. Routes and events are searched by themselves.
	for what, text := range p.heard {
		kind, _, _ := strings.Cut(what, " of ")
		x.check(place{kind: kind, name: what}, text)
	}
	for _, a := range p.agents {
		x.folder(a.data, kindOf)
		x.folder(a.data+"-work", func(string) string { return "a file of plugins" })
	}
	// How plugins of the protocol exec were started, which end at once.
	x.folder(filepath.Join(p.dir, "hunt", "seen"), func(string) string { return "a process" })
	files := map[string]string{filepath.Join(p.own, "audit.jsonl"): "a sink", filepath.Join(p.dir, "saved.snap"): "a saved snapshot",
		filepath.Join(p.dir, "exported.jsonl"): "an export", bundle: "a debug bundle"}
	for _, a := range p.agents {
		files[a.log()] = "a log of an agent"
	}
	for file, kind := range files {
		x.check(place{kind: kind, name: file}, p.read(file))
	}
	p.delivered(x)
	x.reached()
}

// read returns the content of a file, which must not be empty.
func (p *preserve) read(file string) []byte {
	p.t.Helper()
	text, err := os.ReadFile(file)
	if err == nil && len(text) == 0 && filepath.Base(file) != "journal" {
		err = errors.New("it is empty")
	}
	if err != nil {
		p.t.Errorf("%s: %v", file, err)
	}
	return text
}

// hunter returns a hunt for the canaries that were planted until now.
func (p *preserve) hunter() *hunt.Hunt { return hunt.New(slices.Collect(maps.Values(p.plant))...) }

// kindOf returns the kind of place that a file in the data directory of an agent is.
func kindOf(path string) string {
	for part, kind := range map[string]string{"/raft/raft.db": "a log of Raft", "/snapshots/": "a snapshot of Raft", "/journal": "a journal",
		"/logs/": "a log of a task", "/contents/": "a blob", "/changes/": "a record of change objects"} {
		if strings.Contains(path, part) {
			return kind
		}
	}
	return "a file of an agent"
}

// reached checks that each decoy was found where the mesh puts such texts.
func (x *trophies) reached() {
	x.t.Helper()
	for decoy, places := range map[string][]string{
		"decoy in a provider":      {"a log of Raft", "a snapshot of Raft", "a saved snapshot", "an answer", "the output"},
		"decoy in a result":        {"a log of Raft", "an answer"},
		"decoy in a running task":  {"a journal"},
		"decoy in a log":           {"a log of a task", "an answer about a task"},
		"decoy in a label":         {"a log of Raft", "an answer"},
		"decoy in the last event":  {"the events"},
		"decoy in a tree of files": {"a record of change objects", "an answer"},
		"decoy in a script":        {"an answer"},
		"decoy in a setting":       {"a debug bundle", "an answer"},
		"decoy in a name":          {"an export", "a sink", "what the webhook got", "an answer"},
	} {
		for _, kind := range places {
			if !x.decoys[decoy][kind] {
				x.t.Errorf("the %s was not found in %s, only in %v: the hunt does not reach it", decoy, kind, slices.Sorted(maps.Keys(x.decoys[decoy])))
			}
		}
	}
}

// delivered checks that the plugins got the secrets that are theirs: the hunt would find nothing if nothing were used.
func (p *preserve) delivered(x *trophies) {
	p.t.Helper()
	found, _, err := x.hunt.Folder(filepath.Join(p.dir, "hunt", "got"), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range found {
		got[f.Kind] = true
	}
	for _, kind := range []string{"password of a provider", "seed of a provider", "token of a provider", "inventory of a provider",
		"field of a cluster", "field of a service", "field of a change object", "secret in a profile", "secret in a cluster's configuration", "password that a provider returned", "key that a provider returned",
		"seed that a provider returned", "token that a provider saved", "password that an automator returned",
		"key that an automator saved", "setting of a plugin"} {
		if !got[kind] {
			p.t.Errorf("no plugin got the %s", kind)
		}
	}
}

// define writes secrets and definitions.
func (p *preserve) define() {
	p.t.Helper()
	put := func(name, value string) { p.says("secret", "put", name, "--file", p.put("secrets/"+name, value)) }
	put("phrase", p.canary("secret for a program"))
	lines := hunt.Word("").Value + "\n" + hunt.Word("").Value + "\n" + hunt.Word("").Value
	put("key", p.keep(hunt.Canary{Kind: "secret of several lines", Value: lines}))
	put("pin", p.canary("secret in a profile"))
	put("motd", p.word("secret in a cluster's configuration"))

	answer := func(name string, value object) { p.document(filepath.Join("hunt", name), value) }
	answer("create.json", object{
		"ipaddresses": object{"access_v4": "127.0.0.1", "bind_v4": "127.0.0.1"},
		"result": object{"providerid": "@DIR@", "transport": "local", "password": p.canary("password that a provider returned"),
			"ssh-auth": object{"user": "root", "private_key": p.canary("key that a provider returned")},
			"seed":     p.canary("seed that a provider returned")},
		"save": object{"token": p.canary("token that a provider saved")},
	})
	answer("run.json", object{"result": object{"admin_password": p.canary("password that an automator returned")},
		"save": object{"access_key": p.canary("key that an automator saved")}})
	answer("plain.json", object{"result": object{"size": p.decoy("a result")}})
	p.put("hunt/decoy", p.decoy("a log")+"\n")
	p.decoy("the last event")

	fields := func(note string) object {
		out := object{"region": p.plant["decoy in a provider"].Value, "note": note, "inventory": []object{{"host": "h1"}}}
		for name, kind := range map[string]string{"password": "password of a provider", "seed": "seed of a provider", "api_token": "token of a provider"} {
			out[name] = p.plant[kind].Value
		}
		out["inventory"].([]object)[0]["ssh_password"] = p.plant["inventory of a provider"].Value
		return out
	}
	p.decoy("a provider")
	for _, part := range []string{"password", "seed", "token", "inventory"} {
		p.canary(part + " of a provider")
	}
	p.says("import", testdata(p.t, "hunt/definitions.yaml"), p.document("providers.json", object{"providers": []object{
		{"name": "vault", "providertype": "vault", "provisioner": fields("well")},
		{"name": "broken", "providertype": "vault", "provisioner": fields("fail")},
	}}), p.services(object{"do": "nothing"}, "busy"))
}

// services writes the services to a file: what "loud" does, and the note of "safe".
func (p *preserve) services(loud object, note string) string {
	p.t.Helper()
	code := p.plant["field of a service"].Value
	if code == "" {
		code = p.canary("field of a service")
	}
	all := func(typ string, fields object) object {
		out := object{}
		for _, action := range []string{"install", "configure", "start", "stop"} {
			out[action] = object{"type": typ, "fields": fields}
		}
		return object{"actions": out}
	}
	safe := all("safe", object{"note": "plain", "code": code})
	safe["actions"].(object)["configure"] = object{"type": "safe", "fields": object{"note": note, "code": code}}
	return p.document("services.json", object{"services": []object{{"name": "safe", "provisioner": safe},
		{"name": "loud", "provisioner": all("chaos", loud)}}})
}

// build creates a cluster and changes its configuration.
func (p *preserve) build() {
	p.t.Helper()
	p.says("cluster", "create", "one", "--template", "hunted", "--nodes", "1", "--provider-field", "pin="+p.canary("field of a cluster"),
		"--label", "team="+p.decoy("a label"), "--yes")
	p.says("cluster", "configure", "one", "--set", "motd=hello")
	p.says("grant", "add", "bob", "read,operate", "cluster/one")
}

// breakDown creates a cluster with a provider that prints its whole input and fails, and upgrades the other one to services that do. It
// is rolled back each time.
func (p *preserve) breakDown() {
	p.t.Helper()
	p.fails("cluster", "create", "two", "--template", "hunted", "--nodes", "1", "--provider", "broken", "--yes")
	p.says("import", p.services(object{"do": "leak"}, "busy"))
	p.fails("cluster", "upgrade", "one", "--yes")
	p.says("import", p.services(object{"do": "nothing"}, "fail"))
	p.fails("cluster", "upgrade", "one", "--yes")
	p.says("import", p.services(object{"do": "nothing"}, "busy again"))
	p.says("cluster", "upgrade", "one", "--yes")
	p.says("cluster", "rollback", "one", "--to", "1", "--yes")
}

// gate is the file for which the program "peek" waits.
func (p *preserve) gate() string { return filepath.Join(p.nodes(), "gate") }

// begin starts a program that prints its secrets in several ways, and then waits. It returns the id of the run.
func (p *preserve) begin() (run string) {
	p.t.Helper()
	sum := sha256.Sum256([]byte(p.plant["secret for a program"].Value))
	p.says("program", "put", "peek", "-f", p.document("peek.json", object{"steps": []object{{
		"script": fmt.Sprintf("#!/bin/sh\n[ \"$(printf %%s \"$PHRASE\" | sha256sum | cut -d' ' -f1)\" = %x ] && echo it is right\n"+
			"echo \"$PHRASE\"; echo \"$KEY\"; env\nprintf %%s \"$PHRASE\" | base64 -w0; echo; printf %%s \"x$PHRASE\" | base64 -w0; echo\n"+
			"while [ ! -e ../../gate ]; do sleep 0.05; done\nexit 3\n", sum),
		"env": object{"PHRASE": "${secure(phrase)}", "KEY": "${secure(key)}"},
	}}}))
	run = strings.TrimSpace(p.says("run", "-d", "--program", "peek"))
	p.await("the program to print", func() error {
		out := p.coopr("runs", "logs", run)
		if !strings.Contains(out.out, "it is right") {
			return errors.New(out.out + out.err)
		}
		return nil
	})
	r := p.awaitRun(run, "known", func(r api.RunDetails) bool { return r.Operation != "" })
	p.keep(hunt.Canary{Kind: "decoy in a running task", Value: r.Operation + "/0"})
	return run
}

// finish ends that program.
func (p *preserve) finish(run string) {
	p.t.Helper()
	if err := os.WriteFile(p.gate(), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.over(run, profile.Failed)
	if err := os.Remove(p.gate()); err != nil {
		p.t.Fatal(err)
	}
}

// over waits until a run has ended, and shows it.
func (p *preserve) over(id string, status profile.Status) {
	p.t.Helper()
	run := p.awaitRun(id, "over", func(r api.RunDetails) bool { return r.Over() && r.Cluster.Status == profile.Deprovisioned })
	if run.Status != status {
		p.t.Errorf("the run %s is %s: %s", id, run.Status, run.Message)
	}
	p.says("runs", "get", id)
	p.says("runs", "logs", id)
}

// profiles runs programs on clusters whose profiles have secrets.
func (p *preserve) profiles() {
	p.t.Helper()
	for name, properties := range map[string][]object{
		"vaulted":    {{"name": "numMachines", "value": "1"}, {"name": "providerField.pin", "value": "${secure(pin)}"}},
		"configured": {{"name": "clusterTemplate", "value": "hunted"}, {"name": "config", "value": `{"motd": "${secure(motd)}"}`}},
	} {
		provisioner := map[string]string{"vaulted": "vault", "configured": "cluster"}[name]
		p.says("profile", "create", name, "-f", p.document(name+".json", object{"provisioner": object{"name": provisioner, "properties": properties}}))
		p.over(strings.TrimSpace(p.says("run", "-d", "--profile", name, "--", "true")), profile.Completed)
	}
}

// site applies change objects on the node, whose results have secrets, and on an agent. One of them fails.
func (p *preserve) site() {
	p.t.Helper()
	cluster, _, err := p.api().Cluster(p.context(), "one", client.Read{})
	if err != nil || len(cluster.Nodes) != 1 {
		p.t.Fatalf("%+v, %v", cluster, err)
	}
	host := fmt.Sprintf("node:%s/%d", cluster.ID, cluster.Nodes[0].Number)
	code := p.canary("field of a change object")
	act := func(note string) object {
		return object{"start": object{"note": note, "code": code}, "stop": object{"note": "plain", "code": code}}
	}
	// An object of a node waits before its first action.
	p.says("change", "apply", p.document("site.json", object{"name": "quiet", "objects": []object{
		{"name": "turn", "host": host, "type": "automator:safe", "content": act("plain")},
		{"name": "leak", "host": host, "type": "automator:safe", "content": act("fail")},
		{"name": "here", "host": "agent:a", "type": "automator:safe", "content": act("plain")},
		{"name": "page", "host": "agent:a", "type": "filetree", "content": object{"root": filepath.Join(p.dir, "tree"),
			"files": object{"page": object{"content": p.decoy("a tree of files")}}}},
	}}))
	p.await("one object to fail, and the others to be up", func() error {
		status, err := p.api().SiteStatus(p.context(), "quiet", 0)
		ok := err == nil
		for _, o := range status.Items {
			ok = ok && (o.Name == "leak" && o.Failures > 0 || o.State == "up")
		}
		if !ok || len(status.Items) == 0 {
			err = errors.Join(errNotYet, err, fmt.Errorf("%+v", status.Items))
		}
		return err
	})
	p.says("change", "status", "quiet")
	p.says("change", "explain", "quiet")
}

// furnish writes what routes need to have something to answer, and saves and exports what can be.
func (p *preserve) furnish() {
	p.t.Helper()
	p.says("resource", "upload", "automator/shell/keys/id", p.put("id", p.canary("content of a key among the resources")), "--activate")
	p.says("resource", "upload", "automator/shell/scripts/job", p.put("script", "#!/bin/sh\n# "+p.decoy("a script")+"\n"), "--activate")
	p.says("program", "put", p.decoy("a name"), "-f", p.document("named.json", object{"steps": []object{{"command": []string{"true"}}}}))
	p.says("policy", "put", "quiet", p.put("quiet.cedar", `forbid (principal, action == Action::"delete", resource is Cluster) when { resource.name == "kept" };`))
	p.says("policy", "put", "--mesh", "quiet", p.put("quiet.cedar", `forbid (principal, action == Action::"delete", resource is Cluster) when { resource.name == "kept" };`))
	p.says("schedule", "put", "nightly", "-f", p.document("nightly.json", object{"name": "nightly", "program": "peek", "cron": "0 3 * * *",
		"properties": object{"system.profile.properties.providerField.pin": "${secure(pin)}"}}))
	for _, path := range []string{"/v1/preferences", "/v1/system/preferences", "/v1/programs/peek/preferences"} {
		if status, answer := p.ask("root", "PUT", path, `{"properties":{"system.runs.max":"1000"}}`); status >= 300 {
			p.t.Errorf("PUT %s: %d %s", path, status, answer)
		}
	}
	for path, body := range map[string]string{"/v1/partialtemplates": `{"name":"part"}`, "/v1/automatortypes": `{"name":"mine"}`,
		"/v1/providertypes": `{"name":"mine"}`} {
		if status, answer := p.ask("root", "POST", path, body); status >= 300 {
			p.t.Errorf("POST %s: %d %s", path, status, answer)
		}
	}
}

// rotate replaces the keys of the mesh, and saves and exports what can be. Each voter has a new log and new snapshots then.
func (p *preserve) rotate() {
	p.t.Helper()
	p.keysOfTheMesh()
	p.says("operator", "keyring", "rotate", "--full")
	p.await("the old key to be gone", func() error {
		for _, a := range p.agents {
			text, err := os.ReadFile(a.data + "-keyring/keys")
			if err == nil && (bytes.Contains(text, []byte("\nkey 1 ")) || !bytes.Contains(text, []byte("\nkey 2 "))) {
				err = errNotYet
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	p.keysOfTheMesh()
	p.says("operator", "rotations")
	killed := p.follower()
	killed.kill()
	killed.run("run", "--config", filepath.Join(p.dir, killed.name+".yaml"))
	p.ready()
	p.says("operator", "snapshot", "save", filepath.Join(p.dir, "saved.snap"))
	p.says("audit", "export", filepath.Join(p.dir, "exported.jsonl"))
	for _, args := range [][]string{{"audit", "list"}, {"audit", "verify"}, {"audit", "sinks"}, {"members", "-o", "wide"},
		{"cluster", "get", "one"}, {"provider", "get", "vault"}, {"operation", "list"}, {"secret", "list"}, {"token", "list"},
		{"token", "list-join"}, {"user", "list"}, {"change", "show", "quiet"}, {"plugin", "list", "-o", "wide"}} {
		p.says(args...)
	}
}

// tearDown deletes what there is, and returns a word that every principal hears of at the end.
func (p *preserve) tearDown() (last string) {
	p.t.Helper()
	p.says("change", "delete", "quiet", "--yes")
	p.await("the site to be gone", func() error {
		all, err := p.api().Sites(p.context())
		if err == nil && len(all) > 0 {
			err = errNotYet
		}
		return err
	})
	p.says("cluster", "delete", "one", "--yes")
	last = p.plant["decoy in the last event"].Value
	for _, tenant := range []string{"default", "far"} {
		p.says("--tenant", tenant, "import", p.document("end.json", object{"services": []object{
			{"name": last, "provisioner": object{"actions": object{"start": object{"type": "safe", "fields": object{"note": "plain"}}}}}}}))
	}
	return last
}
