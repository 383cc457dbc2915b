package server_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// sdkShop is the cluster "shop" of the cases, with the nodes db-0, web-0, web-1 and web-2, at version 3 of its template.
type sdkShop struct {
	*world
	at       *world // that the client asks
	id       string
	printed  string // by the client after its latest order
	template string // further plans of the template
}

// sdkDefinitions are the definitions of the cases. A "%d" stands for the version.
const sdkDefinitions = `{"providers":[{"name":"cloud","providertype":"cloud"}],
	"hardwaretypes":[{"name":"small","providermap":{"cloud":{"flavor":"s"}}}],
	"imagetypes":[{"name":"debian","providermap":{"cloud":{"image":"d"}}}],
	"services":[
		{"name":"db","reads":["db"],"provisioner":{"actions":{"install":{"type":"shell","fields":{"script":"db %[1]d"}},
			"configure":{"type":"shell"},"initialize":{"type":"shell"},"start":{"type":"shell"},"stop":{"type":"shell"}}}},
		{"name":"web","reads":["a"],"links":[{"label":"Web UI","url":"http://%%host.service.web[0]%%:8080/"}],
			"provisioner":{"actions":{"install":{"type":"shell","fields":{"script":"web %[1]d"}},
			"configure":{"type":"shell"},"start":{"type":"shell"},"stop":{"type":"shell"}}}}]}`

// sdkTemplate is the template of the cases; its version and further plans follow.
const sdkTemplate = `{"name":"shop","description":"version %d","defaults":{"services":["db","web"],"provider":"cloud","config":{"a":{"x":0}}},
	"constraints":{"layout":{"cantcoexist":[["db","web"]]},"services":{"db":{"quantities":{"min":1,"max":1}}}},
	"plans":{"deploy":{"phases":{"db":{"service":"db"},"web":{"service":"web"%s}}},
		"backup":{"phases":{"copy":{"service":"db","steps":[{"default":[["configure"]]}]}}}%s}}`

// define writes version after version of the template and its services up to this one. options are appended to the phase web of the
// plan deploy, and plans to the plans.
func (s *sdkShop) define(from, to int, phase, plans string) {
	s.t.Helper()
	for v := from; v <= to; v++ {
		s.must(200, apitest.Admin, "POST", "/v1/import", fmt.Sprintf(sdkDefinitions, v))
		s.must(200, apitest.Admin, "PUT", "/v1/clustertemplates/shop", fmt.Sprintf(sdkTemplate, v, phase, plans))
	}
}

// create begins to create the cluster.
func (s *sdkShop) create() {
	s.t.Helper()
	a := s.must(202, apitest.User, "POST", "/v1/clusters",
		`{"name":"shop","clusterTemplate":"shop","numMachines":4,"config":{"a":{"x":1,"y":2}},"onFailure":"leave"}`)
	var st struct{ ID string }
	a.into(s.t, &st)
	s.id = st.ID
}

// creating is the cluster while it is created.
func creating(s *sdkShop) {
	s.define(1, 3, "", s.template)
	s.create()
}

// active is the cluster when it is complete.
func active(s *sdkShop) {
	creating(s)
	s.finish("deploy")
	s.define(4, 4, "", s.template)
}

// upgrading is the cluster when it begins to move to version 4. What fails is left.
func upgrading(s *sdkShop) {
	active(s)
	s.must(202, apitest.User, "POST", "/v1/clusters/shop/sync-template", `{"to":4,"onFailure":"leave"}`)
}

// halfway is the cluster while web-0 moves to version 4: its first task is done.
func halfway(s *sdkShop) {
	upgrading(s)
	s.begin("web-0")
}

// held is the cluster while web-0 moves to version 4, with the plan paused.
func held(s *sdkShop) {
	halfway(s)
	s.order(sdkOrder{"order", "POST", "plans/deploy/interrupt", "", 200, 0, nil, nil})
}

// failed is the cluster when web-1 has failed for good while it moved to version 4.
func failed(s *sdkShop) {
	upgrading(s)
	s.workUntil("deploy", func(t model.Task) bool { return t.Node == s.node("web-1") })
	s.fail("deploy")
}

// backupFailed is the cluster when a run of the plan backup has failed.
func backupFailed(s *sdkShop) {
	active(s)
	s.must(200, apitest.User, "POST", "/v1/clusters/shop/plans/backup/start", "{}")
	s.fail("backup")
}

// rollingBack is the cluster when web-1 has failed while it moved to version 4, and what was done is undone.
func rollingBack(s *sdkShop) {
	active(s)
	s.must(202, apitest.User, "POST", "/v1/clusters/shop/sync-template", `{"to":4,"onFailure":"rollback"}`)
	s.workUntil("deploy", func(t model.Task) bool { return t.Node == s.node("web-1") })
	s.fail("deploy")
	eventually(s.t, "the rollback begins", func() bool {
		op := s.operation("deploy")
		return op != nil && op.Type == model.OpRollback && op.Status == model.OpRunning
	})
}

// rolledBack is the cluster when a move to version 4 has been rolled back.
func rolledBack(s *sdkShop) {
	rollingBack(s)
	s.finish("deploy")
}

// plans returns the latest operation of each plan.
func (s *sdkShop) plans() map[string]*model.Operation {
	s.t.Helper()
	v, err := s.View(s.t.Context(), "", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]*model.Operation{}
	for _, p := range v.Plans("acme", s.id) {
		if op, ok := v.Operation("acme", p.Operation); ok {
			out[p.Name] = op
		}
	}
	return out
}

// operation returns the operation of a plan, or nil.
func (s *sdkShop) operation(plan string) *model.Operation { return s.plans()[plan] }

// mustOperation returns the operation of a plan.
func (s *sdkShop) mustOperation(plan string) *model.Operation {
	s.t.Helper()
	op := s.operation(plan)
	if op == nil {
		s.t.Fatalf("plan %s has no operation", plan)
	}
	return op
}

// nodes returns the nodes of the cluster by their names in the table.
func (s *sdkShop) nodes() map[string]*model.Node {
	s.t.Helper()
	v, err := s.View(s.t.Context(), "", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	out, count := map[string]*model.Node{}, map[string]int{}
	nodes := v.Nodes("acme", s.id)
	slices.SortFunc(nodes, func(a, b *model.Node) int { return a.Number - b.Number })
	for _, n := range nodes {
		kind := n.Services[0]
		out[kind+"-"+strconv.Itoa(count[kind])] = n
		count[kind]++
	}
	return out
}

// node returns the id of a node.
func (s *sdkShop) node(name string) string {
	s.t.Helper()
	n := s.nodes()[name]
	if n == nil {
		s.t.Fatalf("there is no node %s", name)
	}
	return n.ID
}

// workUntil carries out the tasks of a plan until the next one is as wanted, or none is left. It returns the actions that were carried
// out, as "web-0 START".
func (s *sdkShop) workUntil(plan string, wanted func(model.Task) bool) (done []string) {
	s.t.Helper()
	op := s.mustOperation(plan).ID
	names := map[string]string{}
	for name, n := range s.nodes() {
		names[n.ID] = name
	}
	for {
		t, ok := s.Next(op)
		if !ok || t.Service != "" && wanted(t) {
			return done
		}
		if action := s.Does(t); action != "" {
			done = append(done, names[t.Node]+" "+action)
		}
		s.Report(t.ID, model.TaskSucceeded, "")
	}
}

// finish carries out what is left of a plan.
func (s *sdkShop) finish(plan string) []string {
	s.t.Helper()
	return s.workUntil(plan, func(model.Task) bool { return false })
}

// begin carries out the tasks of the plan deploy until the first one on a node is done.
func (s *sdkShop) begin(node string) {
	s.t.Helper()
	s.workUntil("deploy", func(t model.Task) bool { return t.Node == s.node(node) })
	t, ok := s.Next(s.mustOperation("deploy").ID)
	if !ok {
		s.t.Fatalf("nothing is left to do on %s", node)
	}
	s.Report(t.ID, model.TaskSucceeded, "")
}

// fail lets the next task of a plan fail for good.
func (s *sdkShop) fail(plan string) {
	s.t.Helper()
	t, ok := s.Next(s.mustOperation(plan).ID)
	if !ok {
		s.t.Fatalf("plan %s has nothing to do", plan)
	}
	s.Report(t.ID, model.TaskFailed, "25% s of the disk")
}

// begun returns the actions of a plan on the services of a node that have begun.
func (s *sdkShop) begun(plan, node string) (out []model.Action) {
	s.t.Helper()
	for _, t := range s.Tasks(s.mustOperation(plan).ID) {
		if t.Node == s.node(node) && t.Service != "" && t.LeasedAt > 0 {
			out = append(out, t.Action)
		}
	}
	return out
}

// plan returns a plan as the client gets it, with its HTTP status.
func (s *sdkShop) plan(name string) (tree.Info, int) {
	s.t.Helper()
	var info tree.Info
	a := s.client("GET", "/service/shop/v1/plans/"+name, "")
	a.into(s.t, &info)
	return info, a.status
}

// step returns a step of a plan by the name of its node.
func (s *sdkShop) step(plan, phase, node string) tree.StepInfo {
	s.t.Helper()
	info, _ := s.plan(plan)
	for _, p := range info.Phases {
		for _, step := range p.Steps {
			if p.Name == phase && strings.HasPrefix(step.Name, s.nodes()[node].ShortName()+":") {
				return step
			}
		}
	}
	s.t.Fatalf("plan %s has no step on %s", plan, node)
	return tree.StepInfo{}
}

// taskIDs returns the ids of the tasks of all pods, by name in the table and service.
func (s *sdkShop) taskIDs() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for name, n := range s.nodes() {
		var p tree.Pod
		s.client("GET", "/service/shop/v1/pod/"+n.ShortName()+"/status", "").into(s.t, &p)
		for _, t := range p.Tasks {
			out[name] = t.ID
		}
	}
	return out
}

// expect reports a fault if what is not as wanted.
func (s *sdkShop) expect(what string, got, want any) {
	s.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		s.t.Errorf("%s: %s, not %s", what, g, w)
	}
}

// names puts the names of the cluster in place of the words in braces: {web-0} is a pod, {step web-0} is the first step of the phase web
// on it, {copy} is the step of the plan backup, {phase} and {failed} are those of the step of the plan deploy that has failed.
func (s *sdkShop) names(text string, escape func(string) string) string {
	s.t.Helper()
	if !strings.Contains(text, "{") {
		return text
	}
	pairs := []string{"{id}", s.id, "{printed}", s.printed}
	for name, n := range s.nodes() {
		pairs = append(pairs, "{"+name+"}", n.ShortName())
		if strings.Contains(text, "{step "+name+"}") {
			pairs = append(pairs, "{step "+name+"}", escape(s.step("deploy", "web", name).Name))
		}
	}
	if strings.Contains(text, "{copy}") {
		pairs = append(pairs, "{copy}", escape(s.step("backup", "copy", "db-0").Name))
	}
	if strings.Contains(text, "{failed}") {
		info, _ := s.plan("deploy")
		for _, p := range info.Phases {
			for _, step := range p.Steps {
				if step.Status == tree.Error.String() {
					pairs = append(pairs, "{phase}", escape(p.Name), "{failed}", escape(step.Name))
				}
			}
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// faultsOf carries out a case and returns its faults.
func faultsOf(t *testing.T, c sdkCase) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("%v", p)
			}
		}()
		w := newWorld(r)
		s := &sdkShop{world: w, at: w}
		if c.follower {
			b := apitest.NewAgent(w.Store, "b")
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			b.Follow(w.url, true, transport)
			s.at = serve(r, b, nil)
		}
		if c.given != nil {
			c.given(s)
		}
		for _, o := range c.orders {
			s.order(o)
		}
	}()
	<-done
	return r.faults
}

// recorder keeps the faults of a case in place of letting the test fail.
type recorder struct {
	testing.TB
	faults []string
}

// Errorf records a fault.
func (r *recorder) Errorf(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// Fatalf records a fault and ends the case.
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Fatal records a fault and ends the case.
func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }
