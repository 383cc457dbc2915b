package mesh_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/mesh"
)

// starts returns a function that returns the tasks that started a service since its last call.
func (v *vault) starts(service string) func() []*pb.Task {
	var tasks []*pb.Task
	v.World.SetTrouble(func(task *pb.Task, _ int) mesh.Trouble {
		if task.Action == model.Start.String() && task.Service == service {
			v.mu.Lock()
			defer v.mu.Unlock()
			tasks = append(tasks, task)
		}
		return mesh.Well
	})
	return func() []*pb.Task {
		v.mu.Lock()
		defer v.mu.Unlock()
		out := tasks
		tasks = nil
		return out
	}
}

// has checks that tasks have words in their inputs and among their secrets, and no name of an encrypted value.
func (v *vault) has(tasks []*pb.Task, words ...string) {
	v.t.Helper()
	if len(tasks) == 0 {
		v.t.Error("there are no tasks")
	}
	for _, task := range tasks {
		for _, w := range words {
			hidden := slices.ContainsFunc(task.Secrets, func(s string) bool { return strings.Contains(s, w) })
			if !strings.Contains(string(task.Input), w) || !hidden {
				v.t.Errorf("the task %s lacks %q in its input or among its secrets", task.Id, w)
			}
		}
		if strings.Contains(string(task.Input), "coopr-sealed:") {
			v.t.Errorf("the task %s has the name of an encrypted value", task.Id)
		}
	}
}

// service returns the document of the service "app" with fields of its action "start".
func service(fields map[string]any) map[string]any {
	sim := map[string]any{"type": "sim"}
	return map[string]any{"name": "app", "dependencies": map[string]any{"runtime": map[string]any{"requires": []string{"db"}}},
		"provisioner": map[string]any{"actions": map[string]any{"install": sim, "configure": sim, "stop": sim,
			"start": map[string]any{"type": "sim", "fields": fields}}}}
}

// TestReferences has secrets in a service, a template and the configurations of clusters: written out, and by references. Tasks get their
// values, under several leaders; answers show none, and nothing that the agents keep has one.
func TestReferences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault(t, 31)
		starts := v.starts("app")
		for _, name := range []string{"field", "default", "motd", "job"} {
			v.must(200, "PUT", "/v1/secrets/"+name, map[string]any{"value": canary + "-" + name + `-"%x%"`, "usableBy": []string{"*"}})
		}
		fields := map[string]any{"api_token": canary + "-literal", "note": "plain", "list": []any{map[string]any{"a": "use ${secure(field)}"}}}
		v.must(200, "PUT", "/v1/services/app", service(fields))
		template := v.read("/v1/clustertemplates/trio")
		template["defaults"].(map[string]any)["config"].(map[string]any)["cache"] = map[string]any{"key": "${secure(default)}"}
		v.must(200, "PUT", "/v1/clustertemplates/trio", template)

		var s struct{ Operation struct{ ID string } }
		v.Must("POST", "/v1/clusters", map[string]any{"name": "one", "clusterTemplate": "trio", "numMachines": 3,
			"config": map[string]any{"motd": "hello ${secure(motd)}", "size": 1, "mesh": map[string]any{"peer": "%ip.access_v4.service.db%"}}}, &s)
		if st := v.AwaitEnd(s.Operation.ID); st != model.OpSucceeded {
			t.Errorf("the create ended %s", st)
		}
		all := []string{canary + "-literal", canary + "-field", canary + "-default", canary + "-motd"}
		tasks := starts()
		v.has(tasks, all...)
		for _, task := range tasks {
			if strings.Contains(string(task.Input), "%ip.") {
				t.Error("the other macros are not expanded")
			}
		}

		// A document that was read can be changed and written back.
		id := v.cluster("one")
		for _, path := range []string{"/v1/services/app", "/v1/clustertemplates/trio", "/v1/clusters/" + id, "/v1/clusters/" + id + "/config",
			"/v1/clusters/" + id + "/diff?from=1&to=0", "/v1/clusters/" + id + "/history/1", "/v1/operations/" + s.Operation.ID, "/v1/audit"} {
			code, body := v.AwaitLeader().Call("GET", path, nil, "")
			if code >= 300 || bytes.Contains(body, []byte(canary)) || bytes.Contains(body, []byte("coopr-sealed:")) {
				t.Errorf("%s: %d %s", path, code, body)
			}
		}
		app := v.read("/v1/services/app")
		app["description"] = "edited"
		v.must(200, "PUT", "/v1/services/app", app)
		template = v.read("/v1/clustertemplates/trio")
		template["defaults"].(map[string]any)["config"].(map[string]any)["cache"].(map[string]any)["size"] = 2
		v.must(200, "PUT", "/v1/clustertemplates/trio", template)
		config := v.read("/v1/clusters/" + id + "/config")
		if config["motd"] != model.Redacted {
			t.Errorf("the configuration is shown as %v", config)
		}
		config["size"] = 2
		v.Must("PUT", "/v1/clusters/"+id+"/config", map[string]any{"config": config}, &s)
		v.AwaitEnd(s.Operation.ID)
		v.has(starts(), all...)

		killed := v.AwaitLeader()
		killed.Crash()
		v.Until("another leader", func() bool { l := v.Leader(); return l != nil && l != killed })
		v.Must("POST", "/v1/clusters/"+id+"/upgrade", map[string]any{}, &s)
		v.AwaitEnd(s.Operation.ID)
		v.Must("POST", "/v1/clusters/"+id+"/services/app/restart", nil, &s)
		v.AwaitEnd(s.Operation.ID)
		v.has(starts(), all...)

		v.DefineRuns(profile.Profile{})
		v.must(200, "PUT", "/v1/profiles/small", profile.Profile{Provisioner: profile.Provisioner{Name: "cluster", Properties: []profile.Property{
			{Name: profile.PropNodes, Value: "3"}, {Name: profile.PropTemplate, Value: "trio"},
			{Name: profile.PropConfig, Value: `{"job": "${secure(job)}"}`},
		}}})
		run := v.BeginRun()
		v.Until("the end of the run", func() bool { r := v.Run(run); return r != nil && r.Over() })
		v.has(starts(), canary+"-job", canary+"-default")

		code, export := v.AwaitLeader().Call("GET", "/v1/export", nil, "")
		for _, w := range []string{canary + "-literal", canary + "-field", canary + "-default"} {
			if code != http.StatusOK || !bytes.Contains(export, []byte(w)) {
				t.Errorf("the export of an administrator: %d, without %s", code, w)
			}
		}
		killed.Start()
		v.Until("all to be back", func() bool { return len(v.Voters()) == 3 })
		time.Sleep(time.Minute)
		if found := hunt(v.Mesh, canary); len(found) > 0 {
			t.Errorf("a secret is in %v", found)
		}
	})
}

// read returns the document that a route answers.
func (v *vault) read(path string) (out map[string]any) {
	v.t.Helper()
	v.Must("GET", path, nil, &out)
	return out
}

// TestReferencesAreRefused has references that the author may not write, and the names of encrypted values.
func TestReferencesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault(t, 32)
		v.must(200, "PUT", "/v1/secrets/key", map[string]any{"value": canary})
		v.must(200, "PUT", "/v1/services/app", service(map[string]any{"api_token": canary}))
		create := func(config map[string]any) map[string]any {
			return map[string]any{"name": "one", "clusterTemplate": "trio", "numMachines": 3, "config": config}
		}
		ref := ""
		v.Until("a leader", func() bool {
			if l := v.Leader(); l != nil {
				d, _ := l.View().Definition("default", model.KindService, "app", 0)
				if refs := model.SealedRefs(d.Body); len(refs) == 1 {
					ref = refs[0].String()
				}
			}
			return ref != ""
		})
		v.must(422, "PUT", "/v1/services/app", service(map[string]any{"note": ref}))
		v.must(422, "PUT", "/v1/services/app", service(map[string]any{"note": model.Redacted}))
		v.must(422, "POST", "/v1/clusters", create(map[string]any{"note": ref}))
		v.must(422, "POST", "/v1/clusters", create(map[string]any{"note": model.Redacted}))
		v.must(404, "POST", "/v1/clusters", create(map[string]any{"note": "${secure(none)}"}))
		// The address of a provider is read by rules about control hosts.
		cloud := provider("", "${secure(key)}")
		v.must(200, "PUT", "/v1/providers/cloud", cloud)
		cloud["provisioner"].(map[string]any)["endpoint"] = "${secure(key)}"
		v.must(422, "PUT", "/v1/providers/cloud", cloud)

		v.must(201, "POST", "/v1/users", map[string]any{"name": "bob", "role": "user", "password": "correct horse battery"})
		var login struct{ Secret string }
		v.Must("POST", "/v1/login", map[string]any{"user": "bob", "tenant": "default", "password": "correct horse battery"}, &login)
		body, err := json.Marshal(create(map[string]any{"note": "${secure(key)}"}))
		if err != nil {
			t.Fatal(err)
		}
		if code, answer := v.AwaitLeader().CallAs(login.Secret, "POST", "/v1/clusters", body, "r"); code != http.StatusForbidden {
			t.Errorf("a user who may not use the secret: %d %s", code, answer)
		}
		if found := hunt(v.Mesh, canary); len(found) > 0 {
			t.Errorf("a secret is in %v", found)
		}
	})
}

// TestSameSecrets writes documents with secrets again. Those that are the same make no new version, and others do.
func TestSameSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault(t, 33)
		v.must(200, "PUT", "/v1/secrets/key", map[string]any{"value": canary + "-1"})
		fields := map[string]any{"api_token": canary, "note": "use ${secure(key)}", "credential": map[string]any{"key": "${secure(key)}"}}
		app, cloud := service(fields), provider("", "${secure(key)}")
		both := map[string]any{"services": []any{app}, "providers": []any{cloud}}
		was := v.read("/v1/providers/cloud")["version"].(float64)
		expect := func(what string, dryRun bool, versions float64) {
			t.Helper()
			path := "/v1/import"
			if dryRun {
				path += "?dryRun=true"
			}
			var out struct{ Written []struct{ Version float64 } }
			v.Must("POST", path, both, &out)
			for _, w := range out.Written {
				if w.Version != versions && w.Version != was+versions {
					t.Errorf("%s: %v", what, out.Written)
				}
			}
		}
		first := 1.0
		if v.Ask("GET", "/v1/services/app", nil, nil) == http.StatusOK {
			first = v.read("/v1/services/app")["version"].(float64) + 1
		}
		was -= first - 1
		expect("new", false, first)
		expect("the same", false, first)
		expect("the same, tried", true, first)
		v.must(200, "PUT", "/v1/services/app", v.read("/v1/services/app"))
		expect("after it was read and written", false, first)

		v.must(200, "PUT", "/v1/secrets/key", map[string]any{"value": canary + "-2"})
		expect("another secret, tried", true, first+1)
		expect("another secret", false, first+1)
		expect("the same again", false, first+1)
		fields["api_token"], cloud["provisioner"].(map[string]any)["password"] = canary+"-other", canary
		expect("other literals", false, first+2)
		expect("the same literals", false, first+2)

		// The configuration of a cluster stays the same, too.
		config := map[string]any{"motd": "hello ${secure(key)}"}
		var st struct{ Operation struct{ ID string } }
		v.Must("POST", "/v1/clusters", map[string]any{"name": "one", "clusterTemplate": "trio", "numMachines": 3, "config": config}, &st)
		v.AwaitEnd(st.Operation.ID)
		id := v.cluster("one")
		ref := func() string {
			cl, _ := v.AwaitLeader().View().Cluster("default", id)
			return cl.Config["motd"].(string)
		}
		before := ref()
		v.Ask("PUT", "/v1/clusters/"+id+"/config", map[string]any{"config": config}, &st)
		v.AwaitEnd(st.Operation.ID)
		if got := ref(); got != before {
			t.Errorf("the configuration has another reference: %s, %s", got, before)
		}
		// A value that is written out in a configuration is not encrypted, also if it is the same.
		v.Must("PUT", "/v1/clusters/"+id+"/config", map[string]any{"config": map[string]any{"motd": "hello " + canary + "-2"}}, &st)
		v.AwaitEnd(st.Operation.ID)
		if got := ref(); got != "hello "+canary+"-2" {
			t.Errorf("the configuration has %s", got)
		}
	})
}

// TestReferencesForTheSDK uses the routes of the DC/OS SDK. They showed the names of encrypted values, and took such names as options, so that
// a service of one's own got the value of any.
func TestReferencesForTheSDK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVault(t, 34)
		starts := v.starts("app")
		v.must(200, "PUT", "/v1/secrets/key", map[string]any{"value": canary + "-key"})
		v.must(200, "PUT", "/v1/services/app", service(map[string]any{"api_token": canary + "-literal"}))
		var st struct{ Operation struct{ ID string } }
		v.Must("POST", "/v1/clusters", map[string]any{"name": "one", "clusterTemplate": "trio", "numMachines": 3,
			"config": map[string]any{"motd": "${secure(key)}"}}, &st)
		v.AwaitEnd(st.Operation.ID)
		id := v.cluster("one")
		shown := func(method, path string, body any) (out map[string]any) {
			t.Helper()
			v.Must(method, path, body, &out)
			text, err := json.Marshal(out)
			if err != nil || bytes.Contains(text, []byte(canary)) || bytes.Contains(text, []byte("coopr-sealed:")) ||
				!bytes.Contains(text, []byte(model.Redacted)) {
				t.Errorf("%s: %s %v", path, text, err)
			}
			return out
		}
		for _, which := range []string{"target", "1"} {
			shown("GET", "/v1/clusters/"+id+"/configurations/"+which, nil)
		}
		options := shown("POST", "/cosmos/service/describe", map[string]any{"appId": "one"})["resolvedOptions"].(map[string]any)

		cl, _ := v.AwaitLeader().View().Cluster("default", id)
		service := cl.Definitions["app"]
		update := map[string]any{"appId": "one", "options": map[string]any{"stolen": service.SealedRefs()[0].String()}}
		v.must(400, "POST", "/cosmos/service/update", update)
		update["options"] = map[string]any{"stolen": model.Redacted}
		v.must(400, "POST", "/cosmos/service/update", update)

		starts()
		options["size"] = 2
		update["options"] = options
		v.must(200, "POST", "/cosmos/service/update", update)
		cl, _ = v.AwaitLeader().View().Cluster("default", id)
		v.AwaitEnd(cl.Operation)
		v.has(starts(), canary+"-key", canary+"-literal")
	})
}
