package server_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// asked is one request of a sequence, with its expected answer.
type asked struct {
	token, method, path, body string
	status                    int
	// says holds expected parts of the answer.
	says []string
}

// tell sends the requests of a story in order and checks their answers. It adds the requests that
// succeed to done.
func (w *world) tell(done map[string]bool, story []asked) {
	w.t.Helper()
	for _, q := range story {
		a := w.ask(q.token, q.method, q.path, q.body)
		if a.status != q.status {
			w.t.Errorf("%s %s %s: %d, not %d: %s", q.method, q.path, q.body, a.status, q.status, a.body)
			continue
		}
		for _, s := range q.says {
			if !strings.Contains(a.body, s) {
				w.t.Errorf("%s %s: no %q in %s", q.method, q.path, s, a.body)
			}
		}
		if q.status < 300 {
			path, _, _ := strings.Cut(q.path, "?")
			done[q.method+" "+path] = true
		} else {
			a.problem(w.t)
		}
	}
}

const (
	native = `{"label":"x","provisioner":{"name":"native","properties":[{"name":"numMachines","value":"1","isEditable":false},null]},"keepalive":{"failed":"1h","killed":60000}}`
	oneRun = `{"provisioner":{"name":"cloud"},"keepalive":{"failed":"1h"},"limits":{"runs":1}}`
	job    = `{"steps":[{"name":"go","command":["true"]}]}`
)

// TestProfileRoutes checks the answers and refusals of every route about profiles, programs,
// schedules and runs (docs/spec/profiles.md §6).
func TestProfileRoutes(t *testing.T) {
	w := newWorld(t)
	admin, user, other, guest, super := apitest.Admin, apitest.User, apitest.Other, apitest.Guest, apitest.Super
	done := map[string]bool{}
	w.tell(done, []asked{
		// The original's ProfileHttpHandlerTest.
		{admin, "PUT", "/v1/profiles/p", native, 200, []string{`"scope":"USER"`, `"status":"ENABLED"`, `"editable":false`, `"created":`}},
		{
			admin,
			"GET",
			"/v1/profiles/p",
			"",
			200,
			[]string{`"name":"p"`, `"assigned":[]`, `"usage":{"runs":0,`, `"nodeMinutes":0`, `"failed":3600000`},
		},
		{guest, "GET", "/v1/profiles/p/status", "", 200, []string{`{"status":"ENABLED"}`}},
		{admin, "PUT", "/v1/profiles/q", `{"some":"thing"}`, 400, []string{`unknown`}},
		{admin, "PUT", "/v1/profiles/q", `{"label":"no provisioner"}`, 400, []string{`provisioner.name`}},
		{admin, "PUT", "/v1/profiles/q", `{"provisioner":{"name":"nobody"}}`, 400, []string{`there is no provisioner`}},
		{
			admin,
			"PUT",
			"/v1/profiles/q",
			`{"provisioner":{"name":"native","properties":[{"name":"numMachines","value":"many"}]}}`,
			400,
			[]string{`whole number`},
		},
		{
			admin,
			"PUT",
			"/v1/profiles/q",
			`{"provisioner":{"name":"cloud","properties":[{"name":"providerField.pin","value":"1234"}]}}`,
			400,
			[]string{`secure(NAME)`},
		},
		{admin, "PUT", "/v1/profiles/q", `{`, 400, nil},
		{admin, "PUT", "/v1/profiles/a%20b", native, 400, nil},
		{admin, "GET", "/v1/profiles/X:p", "", 400, []string{`not a scope`}},
		{guest, "PUT", "/v1/profiles/q", native, 403, nil},
		{user, "PUT", "/v1/profiles/q", native, 403, nil},
		{admin, "PUT", "/v1/profiles/SYSTEM:p", native, 403, nil},
		{super, "PUT", "/v1/profiles/SYSTEM:p", native, 200, []string{`"scope":"SYSTEM"`}},
		{super, "PUT", "/v1/profiles/native", native, 405, []string{`always there`}},
		{super, "POST", "/v1/profiles/SYSTEM:native/disable", "", 405, nil},
		{super, "POST", "/v1/profiles/native/enable", "", 405, nil},
		{super, "DELETE", "/v1/profiles/native", "", 405, nil},
		{admin, "GET", "/v1/profiles/nobody", "", 404, nil},
		{admin, "GET", "/v1/profiles/nobody/status", "", 404, nil},
		{admin, "DELETE", "/v1/profiles/nobody", "", 404, nil},
		{admin, "POST", "/v1/profiles/nobody/enable", "", 404, nil},
		{admin, "POST", "/v1/profiles/nobody/disable", "", 404, nil},
		{guest, "GET", "/v1/profiles", "", 200, []string{`"name":"p"`, `"scope":"SYSTEM"`, `"name":"native"`}},
		{guest, "GET", "/v1/profiles?includeSystem=false", "", 200, []string{`"name":"p"`}},
		{guest, "GET", "/v1/profiles?includeSystem=perhaps", "", 422, nil},
		{admin, "POST", "/v1/profiles/p/enable", "", 409, []string{`ENABLED already`}},
		{admin, "POST", "/v1/profiles/p/disable", "", 200, []string{`DISABLED`}},
		{admin, "POST", "/v1/profiles/p/disable", "", 409, nil},
		{admin, "PUT", "/v1/profiles/p", native, 200, []string{`"status":"DISABLED"`}}, // a write keeps the status
		{admin, "POST", "/v1/profiles/p/enable", "", 200, []string{`ENABLED`}},
		{guest, "GET", "/v1/provisioners", "", 200, []string{`"name":"native"`, `"name":"cluster"`, `"name":"cloud"`, `"configuration-groups"`}},
		{guest, "GET", "/v1/provisioners/cloud", "", 200, []string{`"widget-type":"securekey-text"`, `"name":"providerField.region"`}},
		{guest, "GET", "/v1/provisioners/nobody", "", 404, nil},

		{admin, "PUT", "/v1/secrets/pin", `{"value":"4321"}`, 200, nil},
		{guest, "GET", "/v1/secrets", "", 200, []string{`["pin"]`}},
		{user, "PUT", "/v1/secrets/pin", `{"value":"0"}`, 403, nil},
		{admin, "PUT", "/v1/secrets/a%20b", `{"value":"0"}`, 400, []string{`has faults`}},
		{admin, "DELETE", "/v1/secrets/other", "", 404, nil},
		// Users may refer to the secrets that an administrator has given them, and to no others.
		{guest, "GET", "/v1/secrets/pin", "", 200, []string{`{"name":"pin","usableBy":[]}`}},
		{guest, "GET", "/v1/secrets/other", "", 404, nil},
		{user, "PUT", "/v1/programs/peek", `{"steps":[{"command":["env"],"env":{"X":"${secure(pin)}"}}]}`, 403, []string{`--usable-by`}},
		{user, "PUT", "/v1/programs/peek", `{"steps":[{"command":["env"],"env":{"X":"${secure(later)}"}}]}`, 403, []string{`--usable-by`}},
		{user, "PUT", "/v1/programs/peek", `{"steps":[{"command":["env"],"env":{"X":"plain"}}]}`, 200, []string{`"author":"bob"`}},
		{user, "POST", "/v1/runs", `{"profile":"p","inline":{"name":"peek","steps":[{"command":["env"],"env":{"X":"${secure(pin)}"}}]}}`, 403, []string{`--usable-by`}},
		{user, "POST", "/v1/programs/peek/start", `{"profile":"p","runtime":{"system.profile.properties.providerField.description":"${secure(pin)}"}}`, 403,
			[]string{`--usable-by`}},
		{user, "PUT", "/v1/schedules/peek", `{"program":"peek","cron":"@daily","properties":{"system.profile.properties.providerField.x":"${secure(pin)}"}}`, 403,
			[]string{`--usable-by`}},
		{admin, "PUT", "/v1/programs/peek", `{"steps":[{"command":["env"],"env":{"X":"${secure(pin)}"}}]}`, 200, []string{`"author":`}},
		{user, "POST", "/v1/programs/peek/start", `{"profile":"p"}`, 403, []string{`--usable-by`}}, // it could choose the machines
		{admin, "PUT", "/v1/secrets/pin", `{"value":"4321","usableBy":["a b"]}`, 400, []string{`usableBy[0]`}},
		{admin, "PUT", "/v1/secrets/pin", `{"value":"4321","usableBy":["somebody"]}`, 200, nil},
		{user, "PUT", "/v1/programs/peek", `{"steps":[{"command":["env"],"env":{"X":"${secure(pin)}"}}]}`, 403, nil},
		{admin, "PUT", "/v1/secrets/pin", `{"value":"1234"}`, 200, nil},
		{guest, "GET", "/v1/secrets/pin", "", 200, []string{`{"name":"pin","usableBy":["somebody"]}`}},
		{admin, "PUT", "/v1/secrets/pin", `{"value":"1234","usableBy":[]}`, 200, nil},
		{guest, "GET", "/v1/secrets/pin", "", 200, []string{`{"name":"pin","usableBy":[]}`}},
		{admin, "PUT", "/v1/secrets/pin", `{"value":"4321","usableBy":["*"]}`, 200, nil},
		{user, "PUT", "/v1/programs/peek", `{"steps":[{"command":["env"],"env":{"X":"${secure(pin)}"}}]}`, 200, nil},
		{user, "DELETE", "/v1/programs/peek", "", 200, nil},
		{admin, "DELETE", "/v1/secrets/pin", "", 200, nil},

		{user, "PUT", "/v1/programs/job", job, 200, []string{`"version":1`}},
		{user, "PUT", "/v1/programs/job", job, 200, []string{`"version":2`, `"on":"each"`}},
		{guest, "PUT", "/v1/programs/job", job, 403, nil},
		{user, "PUT", "/v1/programs/job", `{"name":"other","steps":[{"command":["true"]}]}`, 422, []string{`they must be equal`}},
		{
			user,
			"PUT",
			"/v1/programs/bad",
			`{"steps":[{"on":"all"},{"files":{"../x":""},"script":"x"}]}`,
			422,
			[]string{`steps[0]`, `steps[1].files.../x`},
		},
		{user, "PUT", "/v1/programs/bad", `{`, 400, nil},
		{guest, "GET", "/v1/programs", "", 200, []string{`"name":"job"`, `"version":2`}},
		{guest, "GET", "/v1/programs/job?version=1", "", 200, []string{`"version":1`, `"usage":{`}},
		{guest, "GET", "/v1/programs/job?version=9", "", 404, nil},
		{guest, "GET", "/v1/programs/nobody", "", 404, nil},

		{
			user,
			"PUT",
			"/v1/schedules/s",
			`{"program":"job","cron":"30 2 * * *","timezone":"Europe/Berlin"}`,
			200,
			[]string{`"next":`, `"concurrency":"skip"`, `"status":"ENABLED"`},
		},
		{
			user,
			"PUT",
			"/v1/schedules/s",
			`{"program":"job","cron":"30 2 * * *","timezone":"Europe/Berlin","version":3,"last":7,"tenant":"x","status":"DISABLED"}`,
			200,
			[]string{`"status":"ENABLED"`, `"tenant":"acme"`},
		}, // a client cannot set fields that belong to the state
		{user, "PUT", "/v1/schedules/s", `{"program":"job","cron":"@daily","version":-1}`, 422, []string{`0 or more`}},
		{
			user,
			"PUT",
			"/v1/schedules/t",
			`{"program":"job","cron":"30 25 * * *","timezone":"Nowhere","concurrency":"x","catchup":"x"}`,
			422,
			[]string{`"path":"cron"`, `"path":"timezone"`, `"path":"concurrency"`, `"path":"catchup"`},
		},
		{user, "PUT", "/v1/schedules/t", `{"program":"nobody","cron":"@daily"}`, 404, nil},
		{user, "PUT", "/v1/schedules/t", `{"program":"job","cron":"@daily","properties":{"system.profile.name":"nobody"}}`, 404, nil},
		{guest, "PUT", "/v1/schedules/t", `{"program":"job","cron":"@daily"}`, 403, nil},
		{guest, "GET", "/v1/schedules", "", 200, []string{`"name":"s"`, `"next":`}},
		{guest, "GET", "/v1/schedules/s", "", 200, []string{`Europe/Berlin`}},
		{guest, "GET", "/v1/schedules/nobody", "", 404, nil},
		{user, "POST", "/v1/schedules/s/enable", "", 409, nil},
		{user, "POST", "/v1/schedules/s/disable", "", 200, nil},
		{user, "POST", "/v1/schedules/s/disable", "", 409, nil},
		{user, "POST", "/v1/schedules/s/enable", "", 200, nil},
		{user, "POST", "/v1/schedules/nobody/enable", "", 404, nil},
		{user, "DELETE", "/v1/programs/job", "", 409, []string{`schedule s`}},
		{user, "DELETE", "/v1/programs/nobody", "", 404, nil},

		// The original's ProfileMetadataTest: the profile that a run of each would use.
		{
			guest,
			"GET",
			"/v1/search?query=profile:SYSTEM:native",
			"",
			200,
			[]string{`"type":"program","name":"job","profile":"SYSTEM:native"`, `"type":"schedule","name":"s"`},
		},
		{guest, "GET", "/v1/search?query=nonsense", "", 400, []string{`SYSTEM:small`}},
		{guest, "GET", "/v1/search?query=profile:X:p", "", 400, []string{`not a scope`}},
		{admin, "PUT", "/v1/preferences", `{"properties":{"system.profile.name":"p"}}`, 200, nil},
		{guest, "GET", "/v1/preferences", "", 200, []string{`"system.profile.name":"p"`}},
		{guest, "GET", "/v1/search?query=profile:p", "", 200, []string{`"name":"job"`, `"name":"s"`}},
		{super, "PUT", "/v1/profiles/SYSTEM:q", native, 200, nil},
		{admin, "PUT", "/v1/programs/job/preferences", `{"properties":{"system.profile.name":"SYSTEM:q"}}`, 200, nil},
		{guest, "GET", "/v1/programs/job/preferences", "", 200, []string{`SYSTEM:q`}},
		{guest, "GET", "/v1/search?query=profile:p", "", 200, []string{`[]`}},
		{guest, "GET", "/v1/search?query=profile:SYSTEM:q", "", 200, []string{`"name":"job"`, `"name":"s"`}},
		{admin, "DELETE", "/v1/programs/job/preferences", "", 200, nil},
		{admin, "DELETE", "/v1/programs/job/preferences", "", 404, nil},
		{guest, "GET", "/v1/search?query=profile:p", "", 200, []string{`"name":"job"`}},
		{admin, "DELETE", "/v1/preferences", "", 200, nil},
		{admin, "DELETE", "/v1/preferences", "", 404, nil},
		{admin, "PUT", "/v1/system/preferences", `{"properties":{}}`, 403, nil},
		{super, "PUT", "/v1/system/preferences", `{"properties":{"system.profile.name":"USER:p"}}`, 400, nil},
		{super, "PUT", "/v1/system/preferences", `{"properties":{"system.profile.name":"SYSTEM:q"}}`, 200, nil},
		{super, "GET", "/v1/system/preferences", "", 200, []string{`SYSTEM:q`}},
		{guest, "GET", "/v1/search?query=profile:SYSTEM:q", "", 200, []string{`"name":"job"`}},
		{super, "DELETE", "/v1/system/preferences", "", 200, nil},
		{guest, "GET", "/v1/search?query=profile:SYSTEM:native", "", 200, []string{`"name":"job"`}},
		{user, "PUT", "/v1/preferences", `{"properties":{}}`, 403, nil},
		{admin, "PUT", "/v1/preferences", `{"properties":{"system.profile.name":"nobody"}}`, 404, nil},
		{admin, "PUT", "/v1/preferences", `{"properties":{"system.runs.max":"many"}}`, 400, nil},
		// Keys that nothing reads.
		{admin, "PUT", "/v1/preferences", `{"properties":{"system.run.max":"1"}}`, 400, []string{`did you mean \"system.runs.max\"?`}},
		{admin, "PUT", "/v1/programs/job/preferences", `{"properties":{"system.profile.properties.flavour":"1"}}`, 400,
			[]string{`did you mean \"flavor\"?`}},
		{super, "PUT", "/v1/system/preferences", `{"properties":{"greeting":"1"}}`, 400, []string{`nothing reads it`}},
		{user, "PUT", "/v1/schedules/t", `{"program":"job","cron":"@dayly","properties":{"system.runs.max":"1"}}`, 422,
			[]string{`"path":"cron"`, `"path":"properties.system.runs.max"`}},
		{user, "POST", "/v1/programs/job/start", `{"runtime":{"system.profile.properties.numMachine":"2"}}`, 422,
			[]string{`did you mean \"numMachines\"?`}},
		{admin, "PUT", "/v1/profiles/q", `{"provisioner":{"name":"cloud","properties":[{"name":"flavour","value":"1"}]}}`, 400,
			[]string{`did you mean \"flavor\"?`}},
		{admin, "PUT", "/v1/programs/nobody/preferences", `{"properties":{}}`, 404, nil},
	})

	// Valid and invalid requests to start runs.
	w.tell(done, []asked{
		{admin, "PUT", "/v1/profiles/one", oneRun, 200, nil},
		{guest, "POST", "/v1/runs", `{"program":"job"}`, 403, nil},
		{user, "POST", "/v1/runs", `{}`, 422, []string{`"path":"program"`}},
		{user, "POST", "/v1/runs", `{"program":"job","inline":` + job + `}`, 422, nil},
		{user, "POST", "/v1/runs", `{"program":"nobody"}`, 404, nil},
		{user, "POST", "/v1/runs", `{"program":"job","version":9}`, 404, []string{`version 9`}},
		{user, "POST", "/v1/runs", `{"program":"job","profile":"nobody"}`, 404, []string{`USER:nobody`}},
		{user, "POST", "/v1/runs", `{"program":"job","profile":"X:p"}`, 422, nil},
		{user, "POST", "/v1/runs", `{"program":"job","nodes":-1}`, 422, nil},
		{user, "POST", "/v1/runs", `{"inline":{"name":"x","steps":[{"name":"a"}]}}`, 422, []string{`inline.steps[0]`}},
		{user, "POST", "/v1/programs/job/start", `{"program":"other"}`, 422, nil},
		{user, "POST", "/v1/programs/nobody/start", "", 404, nil},
		{admin, "POST", "/v1/profiles/p/disable", "", 200, nil},
		{user, "POST", "/v1/runs", `{"program":"job","profile":"p"}`, 409, []string{`disabled`}},
		{admin, "PUT", "/v1/preferences", `{"properties":{"system.profile.name":"p"}}`, 409, []string{`disabled`}},
		{user, "PUT", "/v1/schedules/t", `{"program":"job","cron":"@daily","properties":{"system.profile.name":"p"}}`, 409, nil},
		{admin, "DELETE", "/v1/profiles/p", "", 200, nil},
	})
	var run api.RunDetails
	w.must(
		202,
		user,
		"POST",
		"/v1/runs",
		`{"inline":{"name":"wordcount","steps":[{"command":["true"]}]},"profile":"one","nodes":2,"runtime":{"system.profile.properties.flavor":"y"},"arguments":["a"]}`,
	).into(
		t,
		&run,
	)
	if run.Status != profile.Pending || run.Cluster.Status != profile.Provisioning || run.Cluster.NumNodes != nil ||
		run.Profile != "USER:one" ||
		profile.Values(run.Properties)["numMachines"] != "2" {
		t.Errorf("%+v", run)
	}
	one := "/v1/runs/" + run.ID
	w.tell(done, []asked{
		{
			user,
			"POST",
			"/v1/programs/job/start",
			`{"profile":"one"}`,
			429,
			[]string{`may have 1 run at a time`, `is rejected`, api.ProblemTooMany},
		},
		{
			user,
			"GET",
			"/v1/runs?status=rejected",
			"",
			200,
			[]string{`"status":"REJECTED"`, `"cluster":{"status":"DEPROVISIONED"`, `"numNodes":null`},
		},
		{guest, "GET", one, "", 200, []string{`"status":"PENDING"`, `"cluster":{"status":"PROVISIONING"`, `"end":null`}},
		{other, "GET", one, "", 404, nil}, // the run of another user
		{other, "POST", one + "/stop", "", 404, nil},
		{guest, "POST", one + "/stop", "", 403, nil},
		{user, "GET", "/v1/runs/nobody", "", 404, nil},
		{user, "POST", one + "/deprovision", "", 409, []string{`PROVISIONING`}},
		{user, "POST", one + "/extend", `{"expireAt":0}`, 409, nil},
		{user, "POST", one + "/extend", "", 400, nil},
		{user, "POST", one + "/retry", "", 409, nil},
		{admin, "POST", one + "/purge", `{"reason":"x"}`, 409, nil},
		{user, "POST", one + "/purge", `{"reason":"x"}`, 403, nil},
		{user, "POST", one + "/force", `{"to":"DEPROVISIONED","reason":"x"}`, 403, nil},
		{admin, "POST", one + "/force", `{"to":"DEPROVISIONED"}`, 409, []string{`reason`}},
		{admin, "POST", one + "/force", `{"to":"WAITING","reason":"x"}`, 409, nil},
		{admin, "POST", "/v1/profiles/one/disable", "", 200, nil},
		{admin, "DELETE", "/v1/profiles/one", "", 409, []string{`in use by run ` + run.ID}}, // the run is active
		{admin, "POST", "/v1/profiles/one/enable", "", 200, nil},
	})
	// The run fails, and its nodes are kept.
	w.Up(run.ID)
	w.Writes(run.ID, "12:00:00.000   hello\n12:00:00.100 ! oh\n")
	w.Happen(run.ID, apitest.Ended(profile.Failed, "exit status 1"))
	w.tell(done, []asked{
		{
			user,
			"GET",
			one,
			"",
			200,
			[]string{
				`"status":"FAILED"`,
				`"failure":"program"`,
				`"cluster":{"status":"WAITING"`,
				`"expiresAt":`,
				`"numNodes":2`,
				`1-1000.local"`,
			},
		},
		{user, "GET", one + "/logs", "", 200, []string{`"text":"hello"`, `"stderr":true,"text":"oh"`, `"end":true`}},
		{user, "GET", "/v1/runs/nobody/logs", "", 404, nil},
		{user, "GET", "/v1/runs?status=WAITING&profile=one&program=wordcount", "", 200, []string{run.ID}},
		{user, "GET", "/v1/runs?profile=X:y", "", 400, nil},
		{user, "POST", "/v1/programs/job/start", `{"profile":"one"}`, 429, nil}, // the first run counts while its nodes are kept
		{user, "POST", one + "/stop", "", 409, []string{`cannot be stopped`}},
		{user, "POST", one + "/extend", `{"expireAt":1}`, 409, []string{`over already`}},
		{user, "POST", one + "/extend", `{"expireAt":9999999999999}`, 200, []string{`"expiresAt":9999999999999`}},
		{user, "POST", one + "/extend", `{"expireAt":0}`, 200, []string{`"cluster":{"status":"WAITING"`}},
		{user, "POST", one + "/deprovision", "", 200, []string{`DEPROVISIONING`}},
		{user, "POST", one + "/deprovision", "", 409, nil},
	})
	w.Happen(run.ID, apitest.Lost...)
	w.tell(done, []asked{
		{user, "GET", "/v1/runs?orphaned=true", "", 200, []string{run.ID, `"status":"ORPHANED"`, `"reason":`}},
		{user, "POST", one + "/retry", "", 200, []string{`REQUESTING_DELETE`}},
		{admin, "POST", one + "/purge", "", 409, []string{`reason`}},
		{admin, "POST", one + "/purge", `{"reason":"deleted by hand"}`, 200, []string{`taken off the list by alice: deleted by hand`}},
		{user, "GET", "/v1/runs?orphaned=true", "", 200, []string{`[]`}},
		{user, "POST", one + "/retry", "", 409, nil},
	})
	// One run is stopped and keeps its nodes. The end of another is forced.
	w.must(202, user, "POST", "/v1/programs/job/start", `{"profile":"one"}`).into(t, &run)
	w.Up(run.ID)
	one = "/v1/runs/" + run.ID
	w.tell(
		done,
		[]asked{
			{user, "POST", one + "/stop", `{"keepalive":true,"reason":"enough"}`, 200, []string{`"status":"STOPPING"`, `stopped by bob: enough`}},
		},
	)
	w.Happen(run.ID, apitest.Ended(profile.Killed, ""))
	w.tell(done, []asked{
		{user, "GET", one, "", 200, []string{`"status":"KILLED"`, `"cluster":{"status":"WAITING"`}},
		{
			admin,
			"POST",
			one + "/force",
			`{"to":"DEPROVISIONED","reason":"gone in the console"}`,
			200,
			[]string{`"status":"DEPROVISIONED"`, `by alice: gone in the console`},
		},
		{admin, "POST", one + "/force", `{"to":"DEPROVISIONED","reason":"again"}`, 409, nil},
		{admin, "GET", "/v1/profiles/one", "", 200, []string{`"runs":4,"completed":0,"failed":1,"killed":1,"rejected":2`, `"provisioned":2`}},
		{guest, "GET", "/v1/audit?type=run", "", 403, nil},
		// No setting names another profile. The native one is on a control host.
		{user, "POST", "/v1/programs/job/start", "", 403, []string{`bob lacks the right host:exec`}},
		{super, "POST", "/v1/programs/job/start?tenant=acme", "", 403, []string{`bob lacks the right host:exec`}}, // its author
		{super, "PUT", "/v1/programs/job?tenant=acme", `{"description":"checked",` + job[1:], 200, nil},
		{super, "POST", "/v1/programs/job/start?tenant=acme", "", 202, []string{`"profile":"SYSTEM:native"`}},
		{user, "DELETE", "/v1/schedules/nobody", "", 404, nil},
		{user, "DELETE", "/v1/schedules/s", "", 200, nil},
		{user, "DELETE", "/v1/programs/job", "", 200, nil},
		{guest, "GET", "/v1/search?query=profile:SYSTEM:native", "", 200, []string{`[]`}},
	})
	done["POST /v1/runs"] = true
	w.undone(done, 40, "profiles", "programs", "schedules", "runs")
}

// undone fails the test if a route with one of these tags has not answered a request, or if there
// are fewer than least such routes.
func (w *world) undone(done map[string]bool, least int, tags ...string) {
	w.t.Helper()
	raw, err := server.Document()
	if err != nil {
		w.t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ Tags []string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		w.t.Fatal(err)
	}
	part := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	n := 0
	for path, operations := range doc.Paths {
		is := regexp.MustCompile("^" + part.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$")
		for method, op := range operations {
			if len(op.Tags) == 0 || !slices.Contains(tags, op.Tags[0]) {
				continue
			}
			n++
			found := false
			for d := range done {
				m, p, _ := strings.Cut(d, " ")
				found = found || strings.EqualFold(m, method) && is.MatchString(p)
			}
			if !found {
				w.t.Errorf("no request was answered by %s %s", strings.ToUpper(method), path)
			}
		}
	}
	if n < least {
		w.t.Errorf("only %d routes", n)
	}
}

// TestRunsAreBegunOnce checks that repeated requests with the same id start one run.
func TestRunsAreBegunOnce(t *testing.T) {
	w := newWorld(t)
	const body = `{"inline":{"name":"x","steps":[{"command":["true"]}]}}`
	var first, again api.RunDetails
	w.must(http.StatusAccepted, apitest.Super, "POST", "/v1/runs", body, "Coopr-Request-Id: r1").into(t, &first)
	a := w.ask(apitest.Super, "POST", "/v1/runs", body, "Coopr-Request-Id: r1")
	if a.into(t, &again); again.ID != first.ID || a.status >= 300 {
		t.Errorf("%d: %s and %s", a.status, first.ID, again.ID)
	}
}

// TestRangesOfProperties has a profile bound a property: runs and schedules that override it with another value are refused.
func TestRangesOfProperties(t *testing.T) {
	w := newWorld(t)
	const ranged = `{"provisioner":{"name":"cloud","properties":[{"name":"numMachines","value":"3","range":{"min":2,"max":4}}]}}`
	w.must(200, apitest.Admin, "PUT", "/v1/programs/job", job)
	w.tell(map[string]bool{}, []asked{
		{apitest.Admin, "PUT", "/v1/profiles/c", strings.Replace(ranged, `"3"`, `"5"`, 1), 400, []string{`properties[0].value`, `2..4`}},
		{apitest.Admin, "PUT", "/v1/profiles/c", ranged, 200, []string{`"range":{"min":2,"max":4}`}},
		{apitest.User, "POST", "/v1/runs", `{"program":"job","profile":"c","nodes":5}`, 422,
			[]string{`"path":"properties.numMachines"`, `must be in the range 2..4 of the profile, but is 5`}},
		{apitest.User, "POST", "/v1/runs", `{"program":"job","profile":"c","nodes":4}`, 202, []string{`"value":"4"`}},
		{apitest.User, "POST", "/v1/runs", `{"program":"job","profile":"c"}`, 202, []string{`"value":"3"`}},
		{apitest.User, "PUT", "/v1/schedules/s", `{"program":"job","cron":"@daily","properties":{"system.profile.name":"c",
			"system.profile.properties.numMachines":"1"}}`, 422, []string{`"path":"properties.numMachines"`}},
		{apitest.User, "PUT", "/v1/schedules/s", `{"program":"job","cron":"@daily","properties":{"system.profile.name":"c",
			"system.profile.properties.numMachines":"2"}}`, 200, nil},
		// The preferences of the program count, too.
		{apitest.Admin, "PUT", "/v1/programs/job/preferences", `{"properties":{"system.profile.properties.numMachines":"9"}}`, 200, nil},
		{apitest.User, "PUT", "/v1/schedules/s", `{"program":"job","cron":"@daily","properties":{"system.profile.name":"c"}}`, 422,
			[]string{`but is 9`}},
	})
}

// TestLimitsOfAProgram has the preferences of a program limit its runs, and no others.
func TestLimitsOfAProgram(t *testing.T) {
	w := newWorld(t)
	w.must(200, apitest.Admin, "PUT", "/v1/programs/job", job)
	w.must(200, apitest.Admin, "PUT", "/v1/programs/other", job)
	w.must(200, apitest.Admin, "PUT", "/v1/profiles/c", `{"provisioner":{"name":"cloud"}}`)
	start := func(status int, body string, says ...string) {
		t.Helper()
		a := w.must(status, apitest.User, "POST", "/v1/runs", strings.Replace(body, "{", `{"profile":"c",`, 1))
		for _, s := range says {
			if !strings.Contains(a.body, s) {
				t.Errorf("no %q in %s", s, a.body)
			}
		}
	}
	limit := func(key, value string) {
		t.Helper()
		w.must(200, apitest.Admin, "PUT", "/v1/programs/job/preferences", `{"properties":{"`+key+`":"`+value+`"}}`)
	}
	inline := `{"inline":{"name":"job","version":7,"steps":[{"name":"go","command":["true"]}]}}`
	start(202, inline) // counts for the tenant only
	limit(profile.RunsKey, "1")
	start(202, `{"program":"job"}`)
	start(429, `{"program":"job"}`, "program job may have 1 run at a time", "is rejected")
	start(202, `{"program":"other"}`)
	start(202, inline)
	limit(profile.LaunchingKey, "1")
	start(429, `{"program":"job"}`, "program job may launch 1 run at a time")
	limit(profile.LaunchingKey, "-1")
	start(202, `{"program":"job"}`)

	// Older voters do not count the runs of a program.
	limit(profile.RunsKey, "1")
	w.Must(&pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 2, Mesh: "m"}}})
	start(202, `{"program":"job"}`)
	w.Must(&pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: 3, Mesh: "m"}}})
	start(429, `{"program":"job"}`)
}
