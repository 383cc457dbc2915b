package server_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// notYet are the cases that an agent does not satisfy yet. A case in it must fail, so that it is taken out when it is satisfied.
var notYet = map[string]bool{}

// clientAlone are the commands that the client refuses without a request: S43, an update without options and version.
var clientAlone = map[string]bool{"S43": true}

// none is a state without clusters.
func none(*sdkShop) {}

// unchanged returns a check that no operation was begun and no record was written since given.
func unchanged(given func(*sdkShop)) (func(*sdkShop), func(*sdkShop)) {
	var index uint64
	return func(s *sdkShop) {
			given(s)
			index = s.Index()
		}, func(s *sdkShop) {
			s.t.Helper()
			s.expect("the index of the state", s.Index(), index)
		}
}

// config is a check of the cluster's configuration.
func config(want string) func(*sdkShop) {
	return func(s *sdkShop) {
		s.t.Helper()
		a := s.must(200, apitest.User, "GET", "/v1/clusters/shop/config", "")
		s.expect("the configuration", strings.Join(strings.Fields(a.body), ""), want)
	}
}

// shows is a check of the HTTP status and the status of a plan, and of whether it has errors.
func shows(plan string, code int, status string, failed bool) func(*sdkShop) {
	return func(s *sdkShop) {
		s.t.Helper()
		info, got := s.plan(plan)
		s.expect("plan "+plan, fmt.Sprint(got, info.Status, len(info.Errors) > 0), fmt.Sprint(code, status, failed))
	}
}

// all is a check that consists of several.
func all(checks ...func(*sdkShop)) func(*sdkShop) {
	return func(s *sdkShop) {
		s.t.Helper()
		for _, check := range checks {
			check(s)
		}
	}
}

// sdkCases returns the table of cases: what is given, the commands of the client, what it prints, and the effect. W is the step of web-0.
func sdkCases() []sdkCase {
	update := func(exit int, body, line string, then func(*sdkShop)) sdkOrder {
		status := 200
		if exit > 0 {
			status = 400
		}
		return sdkOrder{"update", "POST", "/cosmos/service/update", body, status, exit, []string{line}, then}
	}
	const started = "Update started."
	s31given, s31then := unchanged(func(s *sdkShop) {
		active(s)
		s.order(sdkOrder{"raw", "POST", "pod/{web-0}/pause", "", 200, 0, nil, nil})
		s.finish("recovery")
	})
	runningGiven, runningThen := unchanged(active)
	unknownGiven, unknownThen := unchanged(active)
	describedGiven, describedThen := unchanged(active)
	s39given, s39then := unchanged(active)
	return append([]sdkCase{
		{"S01", none, false, []sdkOrder{{"raw", "GET", "plans", "", 404, 1, []string{"Response data (22 bytes): Service shop not found"}, nil}}},
		{"S02", active, false, []sdkOrder{{"wrong token", "GET", "pod", "", 401, 1, []string{"Got 401 Unauthorized response from"}, nil}}},
		{"S03", active, false, []sdkOrder{{"status", "GET", "plans/x", "", 404, 1, []string{"Response data (16 bytes): Plan x not found"}, nil}}},
		{"S04", creating, false, []sdkOrder{{"order", "POST", "plans/deploy/forceComplete?phase=web&step=y%3A%5Bz%5D", "", 404, 1,
			[]string{"Plan, phase, and/or step does not exist"}, shows("deploy", 202, "PENDING", false)}}},
		{"S05", halfway, false, []sdkOrder{{"status", "GET", "plans/deploy", "", 202, 0, []string{"deploy (serial strategy) (IN_PROGRESS)"}, nil}}},
		{"S06", failed, false, []sdkOrder{
			{"status", "GET", "plans/deploy", "", 417, 0, []string{"Errors:", "25 percent s of the disk"}, nil},
			{"raw", "GET", "plans/deploy", "", 417, 0, []string{`"errors": [`}, nil},
		}},
		{"S07", active, false, []sdkOrder{{"order", "POST", "plans/deploy/interrupt", "", 208, 1,
			[]string{"Command has already been issued or the plan has completed"}, nil}}},
		{"S08", halfway, false, []sdkOrder{{"order", "POST", "plans/deploy/interrupt", "", 200, 0, []string{`"deploy" plan has been paused.`},
			func(s *sdkShop) {
				s.finish("deploy")
				shows("deploy", 202, "WAITING", false)(s)
				s.expect("web-0", s.step("deploy", "web", "web-0").Status, "COMPLETE")
				s.expect("begun on web-1", s.begun("deploy", "web-1"), "[]")
				s.order(sdkOrder{"pod", "GET", "pod/{web-0}/status", "", 200, 0, []string{"{web-0}-web (RUNNING)"}, nil})
			}}}},
		{"S09", held, false, []sdkOrder{{"order", "POST", "plans/deploy/continue", "", 200, 0, []string{`"deploy" plan has been resumed.`},
			func(s *sdkShop) {
				s.begin("web-1")
				s.expect("begun on web-1", len(s.begun("deploy", "web-1")), 1)
			}}}},
		{"S10", held, false, []sdkOrder{{"order", "POST", "plans/deploy/restart?phase=web&step={step web-0}", "", 200, 0,
			[]string{`step "{step web-0}" in phase "web" has been restarted.`}, func(s *sdkShop) {
				s.expect("what runs while the plan is paused", s.finish("deploy"), "[]")
				s.expect("web-0", s.step("deploy", "web", "web-0").Status, "PENDING")
				s.order(sdkOrder{"order", "POST", "plans/deploy/continue", "", 200, 0, nil, nil})
				s.finish("deploy")
				shows("deploy", 200, "COMPLETE", false)(s)
			}}}},
		{"S11", held, false, []sdkOrder{{"raw", "POST", "plans/deploy/start", "{}", 200, 0,
			[]string{"Received cmd: start deploy with parameters: {}"}, func(s *sdkShop) {
				done := s.finish("deploy")
				s.expect("db-0 restarts", slices.Contains(done, "db-0 STOP"), false)
				shows("deploy", 200, "COMPLETE", false)(s)
			}}}},
		{"S12", active, false, []sdkOrder{{"order", "POST", "plans/deploy/restart", "", 200, 0, []string{`"deploy" plan has been restarted.`},
			relaunched}}},
		{"S13", active, false, []sdkOrder{
			{"order", "POST", "plans/deploy/restart", "", 200, 0, nil, nil},
			{"raw", "GET", "plans/deploy", "", 202, 0, nil, func(s *sdkShop) {
				s.expect("the step says what is skipped", strings.Contains(s.step("deploy", "db", "db-0").Message, "not repeated: initialize db"), true)
			}},
		}},
		{"S14", failed, false, []sdkOrder{{"order", "POST", "plans/deploy/forceComplete?phase=web&step={step web-1}", "", 200, 0,
			[]string{"has been forced to complete."}, func(s *sdkShop) {
				s.begin("web-2")
				shows("deploy", 202, "IN_PROGRESS", false)(s)
			}}}},
		{"S15", failed, false, []sdkOrder{{"order", "POST", "plans/deploy/restart?phase=web", "", 200, 0, []string{`phase "web" has been restarted.`},
			func(s *sdkShop) {
				order := []string{}
				for _, task := range s.finish("deploy") {
					if node, action, _ := strings.Cut(task, " "); action == "START" {
						order = append(order, node)
					}
				}
				s.expect("the order of the nodes", order, "[web-0 web-1 web-2]")
				shows("deploy", 200, "COMPLETE", false)(s)
			}}}},
		{"S16", failed, false, []sdkOrder{
			{"order", "POST", "plans/deploy/interrupt", "", 200, 0, []string{"has been paused."}, nil},
			{"order", "POST", "plans/deploy/continue", "", 200, 0, []string{"has been resumed."}, func(s *sdkShop) {
				s.begin("web-1")
				s.finish("deploy")
				shows("deploy", 200, "COMPLETE", false)(s)
			}},
		}},
		{"S17", backupFailed, false, []sdkOrder{{"status", "GET", "plans/backup", "", 417, 0, []string{"backup (serial strategy) (ERROR)"}, nil}}},
		{"S18 complete", backupFailed, false, []sdkOrder{{"order", "POST", "plans/backup/forceComplete?phase=copy&step={copy}", "", 200, 0,
			[]string{"forced to complete."}, shows("backup", 200, "COMPLETE", false)}}},
		{"S18 restart", backupFailed, false, []sdkOrder{{"order", "POST", "plans/backup/restart?phase=copy&step={copy}", "", 200, 0,
			[]string{"has been restarted."}, func(s *sdkShop) {
				s.expect("what runs", s.finish("backup"), "[db-0 CONFIGURE]")
				shows("backup", 200, "COMPLETE", false)(s)
			}}}},
		{"S19", backupFailed, false, []sdkOrder{{"raw", "POST", "plans/backup/start", `{"A":"b=c"}`, 200, 0, []string{"with parameters: {A=b=c}"},
			func(s *sdkShop) {
				s.expect("the parameters", s.mustOperation("backup").Parameters, "map[A:b=c]")
				s.expect("what runs", s.finish("backup"), "[db-0 CONFIGURE]")
				shows("backup", 200, "COMPLETE", false)(s)
			}}}},
		{"S20", backupFailed, false, []sdkOrder{
			{"raw", "POST", "plans/backup/stop", "", 200, 0, []string{"Received cmd: stop"}, nil},
			{"raw", "POST", "plans/backup/stop", "", 200, 0, []string{"Received cmd: stop"}, func(s *sdkShop) {
				shows("backup", 202, "WAITING", false)(s)
				s.expect("the step", s.step("backup", "copy", "db-0").Status, "PENDING")
				s.expect("health", s.client("GET", "/service/shop/v1/health", "").status, 200)
			}},
		}},
		{"S21", active, false, []sdkOrder{{"raw", "POST", "plans/backup/start", `{"1A":"x"}`, 400, 1,
			[]string{"1A is not a valid environment variable name"}, nil}}},
		{"S22", rolledBack, false, []sdkOrder{{"status", "GET", "plans/deploy", "", 200, 0, []string{"deploy (serial strategy) (COMPLETE)"},
			func(s *sdkShop) {
				s.expect("errors", strings.Contains(s.printed, "Errors:"), false)
				s.expect("health", s.client("GET", "/service/shop/v1/health", "").status, 200)
			}}}},
		{"S23", rolledBack, false, []sdkOrder{{"order", "POST", "plans/deploy/restart?phase=web&step={step web-0}", "", 200, 0,
			[]string{"has been restarted."}, func(s *sdkShop) {
				done := s.finish("deploy")
				s.expect("web-0 starts", slices.Contains(done, "web-0 START"), true)
				shows("deploy", 200, "COMPLETE", false)(s)
				s.order(sdkOrder{"versions", "POST", "/cosmos/service/describe", `{"appId":"shop"}`, 200, 0,
					[]string{"Current package version is: 3"}, nil})
			}}}},
		{"S24", all(rollingBack, func(s *sdkShop) { s.fail("deploy") }), false, []sdkOrder{{"order", "POST",
			"plans/deploy/forceComplete?phase={phase}&step={failed}", "", 200, 0, []string{"has been forced to complete."}, func(s *sdkShop) {
				s.finish("deploy")
				shows("deploy", 200, "COMPLETE", false)(s)
			}}}},
		{"S25", all(creating, func(s *sdkShop) {
			s.workUntil("deploy", func(t model.Task) bool { return t.Node == s.node("web-1") && t.Action == model.Start })
			t, _ := s.Next(s.mustOperation("deploy").ID)
			s.Report(t.ID, model.TaskLeased, "")
		}), false, []sdkOrder{{"pod", "GET", "pod/{web-1}/status", "", 200, 0, []string{"{web-1}-web (STARTING)"}, nil}}},
	}, append(podCases(), []sdkCase{
		{"S30", active, false, []sdkOrder{{"raw", "POST", "pod/nope/restart", "", 404, 1, []string{"Response data (18 bytes): Pod nope not found"}, nil}}},
		{"S31 paused", s31given, false, []sdkOrder{{"raw", "POST", "pod/{web-0}/pause", "", 200, 0, []string{`"pod": "{web-0}"`, `"{web-0}-web"`}, s31then}}},
		{"S31 running", runningGiven, false, []sdkOrder{{"raw", "POST", "pod/{web-0}/resume", "", 200, 0, []string{`"pod": "{web-0}"`, `"{web-0}-web"`},
			runningThen}}},
		{"S32", unknownGiven, false, []sdkOrder{
			{"raw", "POST", "pod/{web-0}/pause", `["web","nope"]`, 404, 1, []string{"Got 404 Not Found response from", "has no task nope"}, unknownThen},
			{"raw", "POST", "pod/{web-0}/pause", `["web","{web-0}-web"]`, 404, 1, []string{"Got 404 Not Found response from", "twice"}, unknownThen},
			{"raw", "POST", "pod/{web-0}/pause", `["{web-0}-web"]`, 200, 0, []string{`"{web-0}-web"`}, func(s *sdkShop) {
				s.expect("what is done", s.finish("recovery"), "[web-0 STOP]")
				shows("recovery", 202, "STARTED", false)(s)
				s.order(sdkOrder{"status", "GET", "plans/recovery", "", 202, 0, []string{"{web-0}:[stop web] (PAUSED)"}, nil})
				s.order(sdkOrder{"status", "GET", "plans/deploy", "", 200, 0, []string{"start] (PAUSED)"}, nil})
				s.order(sdkOrder{"pod", "GET", "pod/{web-0}/status", "", 200, 0, []string{"{web-0}-web (PAUSED)"}, nil})
			}},
			{"raw", "POST", "pod/{web-0}/resume", "", 200, 0, []string{`"{web-0}-web"`}, func(s *sdkShop) {
				s.expect("what is done", s.finish("recovery"), "[web-0 START]")
				shows("recovery", 200, "COMPLETE", false)(s)
				s.order(sdkOrder{"pod", "GET", "pod/{web-0}/status", "", 200, 0, []string{"{web-0}-web (RUNNING)"}, nil})
			}},
		}},
		{"S33", active, false, []sdkOrder{update(0, `{"appId":"shop","options":{"a":{"y":3}},"replace":false}`, started,
			config(`{"a":{"x":1,"y":3}}`))}},
		{"S34", active, false, []sdkOrder{update(0, `{"appId":"shop","options":{"a":{"y":3}},"replace":true}`, started,
			config(`{"a":{"x":0,"y":3}}`))}},
		{"S35", active, false, []sdkOrder{update(0, `{"appId":"shop","replace":true}`, started, config(`{"a":{"x":0}}`))}},
		{"S36", describedGiven, false, []sdkOrder{
			{"describe", "POST", "/cosmos/service/describe", `{"appId":"shop"}`, 200, 0, []string{`"name": "shop"`}, nil},
			update(0, `{"appId":"shop","options":{printed},"replace":true}`, started, all(describedThen, shows("deploy", 200, "COMPLETE", false))),
		}},
		{"S37", active, false, []sdkOrder{{"versions", "POST", "/cosmos/service/describe", `{"appId":"shop"}`, 200, 0,
			[]string{"Current package version is: 3", "downgraded to:\n- 2\n- 1", "upgraded to:\n- 4"}, nil}}},
		{"S38", active, false, []sdkOrder{
			update(1, `{"appId":"shop","packageVersion":"9","replace":false}`, "Valid package versions are:\n- 4\n- 2\n- 1",
				shows("deploy", 200, "COMPLETE", false)),
			update(0, `{"appId":"shop","packageVersion":"4","replace":false}`, started, shows("deploy", 202, "PENDING", false)),
		}},
		{"S39", s39given, false, []sdkOrder{
			update(1, `{"appId":"shop","options":{"service":{"name":"x"}},"replace":false}`,
				`Could not update service name from "/shop" to "/x".`, s39then),
			update(1, `{"appId":"shop","options":{"a":{"port":"%host.service.web[9]%"}},"replace":false}`, "/a/port", s39then),
		}},
		{"S40", none, false, []sdkOrder{{"describe", "POST", "/cosmos/service/describe", `{"appId":"shop"}`, 400, 1,
			[]string{"Unable to find the service named 'shop'."}, nil}}},
		{"S41", all(active, func(s *sdkShop) { s.must(202, apitest.User, "DELETE", "/v1/clusters/shop", "") }), false, []sdkOrder{
			update(1, `{"appId":"shop","packageVersion":"4","replace":false}`, "(OperationInProgress)", nil)}},
		{"S42", all(upgrading, func(s *sdkShop) { s.begin("web-1") }), false, []sdkOrder{
			update(0, `{"appId":"shop","options":{"db":{"size":2}},"replace":false}`, started, func(s *sdkShop) {
				for node, want := range map[string]string{"web-0": "COMPLETE", "web-1": "PENDING", "web-2": "PENDING"} {
					s.expect(node, s.step("deploy", "web", node).Status, want)
				}
				s.expect("db-0", s.step("deploy", "db", "db-0").Status, "PENDING")
			})}},
		{"S43", none, false, nil},
		{"S44", active, false, []sdkOrder{
			{"raw", "GET", "endpoints", "", 200, 0, []string{"[\n  \"web-ui\"\n]"}, nil},
			{"raw", "GET", "endpoints/web-ui", "", 200, 0, []string{`"address": [`, "10.0.0."}, func(s *sdkShop) {
				s.expect("addresses", strings.Count(s.printed, `"10.0.0.`), 3)
				s.expect("a balancer", strings.Contains(s.printed, "vip"), false)
			}},
			{"raw", "GET", "endpoints/nope", "", 404, 1, []string{"Got 404 Not Found response from", "Endpoint nope not found"}, nil},
		}},
		{"S45", all(upgrading, func(s *sdkShop) { s.finish("deploy") }), false, configurations()},
		{"S46", active, true, []sdkOrder{
			{"raw", "GET", "state/frameworkId", "", 200, 0, []string{"[\n  \"{id}\"\n]"}, nil},
			{"raw", "GET", "state/properties", "", 200, 0, []string{`"last-completed-update-type"`, `"operation"`, `"{db-0}-db:task-status"`},
				func(s *sdkShop) {
					names := strings.FieldsFunc(s.printed, func(r rune) bool { return strings.ContainsRune("[]\", \n", r) })
					s.expect("sorted", slices.IsSorted(names), true)
				}},
			{"raw", "GET", "state/properties/operation", "", 200, 0, []string{"{\n", `"status": "succeeded"`}, nil},
			{"raw", "PUT", "state/refresh", "", 200, 0, []string{"Received cmd: refresh"}, nil},
		}},
		{"S47", all(func(s *sdkShop) {
			s.template = `,"replace-db":{"recovers":{"service":"db","when":"replace"},"others":"restart",
				"phases":{"database":{"service":"db","steps":[{"default":[["install","configure"],["start"]]}]}}}`
		}, active), false, []sdkOrder{{"raw", "POST", "pod/{db-0}/replace", "", 200, 0, []string{`"pod": "{db-0}"`}, func(s *sdkShop) {
			s.order(sdkOrder{"status", "GET", "plans/recovery", "", 202, 0, []string{"└─ replace-db (serial strategy) (PENDING)",
				"├─ {db-0}:[install, configure] (PENDING)", "└─ {db-0}:[start] (PENDING)"}, nil})
			s.order(sdkOrder{"status", "GET", "plans/replace-db", "", 202, 0, []string{"replace-db (serial strategy) (WAITING)"}, nil})
			op := s.mustOperation("recovery")
			s.expect("the environment", op.Parameters, map[string]string{"COOPR_OLD_IP": s.nodes()["db-0"].IPAddresses["access_v4"],
				"COOPR_OLD_HOST": s.nodes()["db-0"].Hostname})
			s.expect("an initialization", slices.Contains(s.finish("recovery"), "db-0 INITIALIZE"), false)
			shows("recovery", 200, "COMPLETE", false)(s)
		}}}},
	}...)...)
}

// relaunched checks that the restart of a complete plan has begun, and that it relaunches all services in place.
func relaunched(s *sdkShop) {
	s.t.Helper()
	before := s.taskIDs()
	_, code := s.plan("deploy")
	s.expect("the HTTP status of the plan", code, 202)
	s.expect("the tasks that still run are the same", s.taskIDs(), before)
	done := s.finish("deploy")
	after := s.taskIDs()
	for _, node := range []string{"db-0", "web-0", "web-1", "web-2"} {
		stop, start := slices.Index(done, node+" STOP"), slices.Index(done, node+" START")
		s.expect(node+" stops and starts", stop >= 0 && stop < start, true)
		s.expect(node+" after db-0", node == "db-0" || stop > slices.Index(done, "db-0 START"), true)
		s.expect("the task of "+node+" is the same", after[node] == before[node], false)
		s.expect("a later start of "+node, startOf(s, after[node]) > startOf(s, before[node]), true)
	}
	for _, kept := range []string{"db-0 INITIALIZE", "db-0 CREATE", "db-0 DELETE"} {
		s.expect(kept, slices.Contains(done, kept), false)
	}
	shows("deploy", 200, "COMPLETE", false)(s)
	a := s.must(200, apitest.User, "GET", "/v1/clusters/shop", "")
	var cl model.Cluster
	a.into(s.t, &cl)
	s.expect("the cluster", cl.Status, model.ClusterActive)
}

// startOf returns the number of the start in the id of a pod's task.
func startOf(s *sdkShop, id string) uint64 {
	s.t.Helper()
	number, err := strconv.ParseUint(id[strings.LastIndex(id, "/")+1:], 10, 64)
	s.expect("the end of task id "+id, err, nil)
	return number
}

// podCases are the cases about pods while the plan deploy is open.
func podCases() []sdkCase {
	working := func(s *sdkShop) map[model.OperationType]int {
		out := map[model.OperationType]int{}
		v, err := s.View(s.t.Context(), "", 0)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, op := range v.ActiveOperations() {
			out[op.Type]++
		}
		return out
	}
	restarted := func(s *sdkShop) {
		upgrading(s)
		s.begin("web-0")
		s.order(sdkOrder{"raw", "POST", "pod/{web-2}/restart", "", 200, 0, nil, nil})
	}
	return []sdkCase{
		{"S26", func(s *sdkShop) {
			active(s)
			s.define(5, 5, `,"strategy":"serial-canary"`, "")
			s.must(202, apitest.User, "POST", "/v1/clusters/shop/sync-template", `{"to":5,"onFailure":"leave"}`)
			s.finish("deploy")
			s.order(sdkOrder{"order", "POST", "plans/deploy/continue?phase=web", "", 200, 0, nil, nil})
			s.finish("deploy")
		}, false, []sdkOrder{{"raw", "POST", "pod/{web-1}/replace", "", 200, 0, []string{`"pod": "{web-1}"`}, func(s *sdkShop) {
			s.expect("replacements", working(s)[model.OpRecreateNode], 1)
			old := s.nodes()["web-1"].Marks["web"].Definition
			s.finish("recovery")
			s.expect("the target of web-1", s.nodes()["web-1"].Marks["web"].Definition, old)
			s.expect("web-1", s.step("deploy", "web", "web-1").Status, "WAITING")
			// web-0 is at the new target already, and its new machine is, too.
			s.order(sdkOrder{"raw", "POST", "pod/{web-0}/replace", "", 200, 0, nil, nil})
			s.order(sdkOrder{"raw", "POST", "pod/{web-0}/replace", "", 200, 0, nil, nil}) // it is under way
			s.expect("replacements", working(s)[model.OpRecreateNode], 1)
			s.expect("web-0 is made", slices.Contains(s.finish("recovery"), "web-0 CREATE"), true)
			s.order(sdkOrder{"order", "POST", "plans/deploy/continue?phase=web", "", 200, 0, nil, nil})
			s.finish("deploy")
			shows("deploy", 200, "COMPLETE", false)(s)
			for _, node := range []string{"web-0", "web-1", "web-2"} {
				s.expect("the target of "+node, s.nodes()[node].Marks["web"].Definition, s.nodes()["web-2"].Marks["web"].Definition)
				s.expect("the state of "+node, s.nodes()[node].States["web"], "START")
			}
			s.expect("a newer target", s.nodes()["web-0"].Marks["web"].Definition > old, true)
		}}}},
		{"S27", func(s *sdkShop) {
			upgrading(s)
			s.workUntil("deploy", func(t model.Task) bool { return t.Node == s.node("web-1") && t.Action == model.Start })
			t, _ := s.Next(s.mustOperation("deploy").ID)
			s.Report(t.ID, model.TaskLeased, "")
		}, false, []sdkOrder{{"raw", "POST", "pod/{web-1}/restart", "", 200, 0, []string{`"tasks": [`}, func(s *sdkShop) {
			shows("recovery", 200, "COMPLETE", false)(s)
			s.expect("web-1 starts", slices.Contains(s.finish("deploy"), "web-1 START"), true)
			shows("deploy", 200, "COMPLETE", false)(s)
		}}}},
		{"S28", halfway, false, []sdkOrder{{"raw", "POST", "pod/{web-2}/restart", "", 200, 0, []string{`"pod": "{web-2}"`}, func(s *sdkShop) {
			old := s.nodes()["web-2"].Marks["web"].Definition
			s.expect("recovery", s.finish("recovery"), "[web-2 STOP web-2 START]")
			s.expect("the target of web-2", s.nodes()["web-2"].Marks["web"].Definition, old)
			s.expect("web-2 is moved", slices.Contains(s.finish("deploy"), "web-2 INSTALL"), true)
			shows("deploy", 200, "COMPLETE", false)(s)
		}}}},
		{"S29", restarted, false, []sdkOrder{{"raw", "POST", "pod/{web-2}/replace", "", 200, 0, []string{`"pod": "{web-2}"`}, func(s *sdkShop) {
			s.expect("restarts", working(s)[model.OpRecover], 0)
			s.expect("replacements", working(s)[model.OpRecreateNode], 1)
			info, _ := s.plan("recovery")
			s.expect("phases of recovery", len(info.Phases), 1)
		}}}},
	}
}

// configurations are the orders about two targets, of which the latter is the present one.
func configurations() []sdkOrder {
	var ids []string
	var shown string
	return []sdkOrder{
		{"raw", "GET", "configurations", "", 200, 0, nil, func(s *sdkShop) {
			ids = strings.FieldsFunc(s.printed, func(r rune) bool { return strings.ContainsRune("[]\", \n", r) })
			s.expect("targets", len(ids), 2)
		}},
		{"raw", "GET", "configurations/targetId", "", 200, 0, nil, func(s *sdkShop) {
			s.expect("the present target", s.printed, "[\n  \""+ids[len(ids)-1]+"\"\n]")
			a := s.client("GET", "/service/shop/v1/configurations/"+ids[len(ids)-1], "")
			s.expect("its HTTP status", a.status, 200)
			shown = strings.TrimSpace(a.body)
		}},
		{"raw", "GET", "configurations/target", "", 200, 0, nil, func(s *sdkShop) { s.expect("the present target", s.printed, shown) }},
		{"raw", "GET", "configurations/x", "", 400, 1, []string{"failed: 400 Bad Request", "Invalid UUID string: x"}, nil},
	}
}

// TestSDKCases carries out the table: the client's requests, what it prints, and the effects. Each case has a cluster of its own.
func TestSDKCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range sdkCases() {
		if seen[c.id] {
			t.Errorf("%s is twice in the table", c.id)
		}
		seen[c.id] = true
		t.Run(c.id, func(t *testing.T) {
			faults := faultsOf(t, c)
			switch {
			case len(c.orders) == 0 && !clientAlone[c.id]:
				t.Error("the case has no request")
			case !notYet[c.id]:
				for _, f := range faults {
					t.Error(f)
				}
			case len(faults) == 0:
				t.Error("the agent satisfies this case: take it out of notYet")
			default:
				t.Logf("not yet: %s", strings.Join(faults, "\n"))
			}
		})
	}
	for id := range notYet {
		if !seen[id] {
			t.Errorf("notYet has %s, which is no case", id)
		}
	}
}
