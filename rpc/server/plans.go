package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
)

// ByPlan names a plan of a cluster.
type ByPlan struct {
	ByCluster
	Plan string `path:"plan" doc:"The plan's name: deploy, rollback:OPERATION"`
}

// sdkAnswer describes one status that a route of the DC/OS SDK answers with. A nil body type means
// plain text.
type sdkAnswer struct {
	status int
	what   string
	body   reflect.Type
}

// sdk registers a route that answers like the scheduler of the DC/OS SDK (docs/spec/plans.md §5):
// the HTTP status is that of the plan, and refusals are plain text.
func sdk[I any](s *server, r route, answers []sdkAnswer, h func(context.Context, *call, *I) (status int, body any, index uint64, err error)) {
	stream(s, r, "application/json", answers[0].what, func(ctx context.Context, c *call, in *I, w http.ResponseWriter, _ *http.Request) error {
		status, body, index, err := h(ctx, c, in)
		var no *tree.Refusal
		switch {
		case errors.As(err, &no):
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(no.Code)
			_, err := io.WriteString(w, no.Message)
			return err
		case err != nil:
			return err
		}
		text, err := json.MarshalIndent(body, "", "  ")
		if err != nil {
			return err
		}
		if index > 0 {
			w.Header().Set(api.HeaderIndex, strconv.FormatUint(index, 10))
		}
		w.WriteHeader(status)
		if status == http.StatusNoContent {
			return nil
		}
		_, err = w.Write(append(text, '\n'))
		return err
	})
	doc := s.api.OpenAPI()
	item := doc.Paths[r.path]
	for _, op := range []*huma.Operation{item.Get, item.Post} {
		if op == nil || op.OperationID != r.id {
			continue
		}
		for _, a := range append(answers, sdkAnswer{404, "There is no such cluster, plan, phase, step or pod", nil}) {
			kind, schema := "text/plain", &huma.Schema{Type: huma.TypeString}
			if a.body != nil {
				kind, schema = "application/json", doc.Components.Schemas.Schema(a.body, true, "")
			}
			op.Responses[strconv.Itoa(a.status)] = &huma.Response{Description: a.what, Content: map[string]*huma.MediaType{kind: {Schema: schema}}}
		}
	}
}

// service returns a cluster, or a refusal as the SDK has it.
func (c *call) service(v View, idOrName string) (*model.Cluster, error) {
	cl, err := c.cluster(v, idOrName)
	if err != nil {
		return nil, &tree.Refusal{Code: http.StatusNotFound, Message: "Service " + idOrName + " not found"}
	}
	return cl, nil
}

// viewOf returns the state that a request asks for, and its cluster.
func (s *server) viewOf(ctx context.Context, c *call, idOrName string) (View, *model.Cluster, error) {
	v, err := s.view(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	cl, err := c.service(v, idOrName)
	return v, cl, err
}

// planOf returns a plan of a cluster by its name.
func (c *call) planOf(v View, cl *model.Cluster, name string) (api.Plan, error) {
	plans := v.Plans(c.who.Tenant, cl.ID)
	i := slices.IndexFunc(plans, func(p api.Plan) bool { return p.Name == name })
	if i < 0 {
		return api.Plan{}, &tree.Refusal{Code: http.StatusNotFound, Message: "Plan " + name + " not found"}
	}
	return plans[i], nil
}

// trees returns all plans of a cluster as trees.
func (c *call) trees(v View, cl *model.Cluster) []*tree.View {
	var out []*tree.View
	for _, p := range v.Plans(c.who.Tenant, cl.ID) {
		if t, ok := c.tree(v, cl, p); ok {
			out = append(out, t)
		}
	}
	return out
}

// tree returns a plan of a cluster as a tree.
func (c *call) tree(v View, cl *model.Cluster, p api.Plan) (*tree.View, bool) {
	switch {
	case p.Operation == "" && !p.Custom:
		return tree.Idle(p.Name, cl.ID), true
	case p.Operation == "":
		return v.CustomTree(c.who.Tenant, cl.ID, p.Name)
	}
	return v.PlanTree(c.who.Tenant, p.Operation)
}

// alsoSDK describes the other paths of every route that the DC/OS SDK has.
const alsoSDK = "Also served where the DC/OS SDK's client looks for it: /v1/service/{cluster}/…, /v1/multi/{cluster}/… and /service/{cluster}/v1/…"

func (s *server) planRoutes() {
	const tag, path = "plans", "/v1/clusters/{cluster}/plans"
	reads, writes := rule{need: model.RoleRead}, rule{need: model.RoleUser, once: true}
	sdk(s, route{id: "listPlans", method: http.MethodGet, path: path, tag: tag, rule: reads, summary: "List the names of a cluster's plans, the one with the highest priority first", description: alsoSDK},
		[]sdkAnswer{{200, "The names", reflect.TypeFor[[]string]()}},
		func(ctx context.Context, c *call, in *ByCluster) (int, any, uint64, error) {
			v, cl, err := s.viewOf(ctx, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			names := []string{}
			for _, p := range v.Plans(c.who.Tenant, cl.ID) {
				names = append(names, p.Name)
			}
			return http.StatusOK, names, v.Index(), nil
		})
	info := reflect.TypeFor[api.PlanInfo]()
	sdk(s, route{id: "getPlan", method: http.MethodGet, path: path + "/{plan}", tag: tag, rule: reads, summary: "Get a plan with its phases and steps", description: alsoSDK},
		[]sdkAnswer{{200, "The plan is complete", info}, {202, "The plan is not complete", info}, {417, "The plan has errors", info}},
		func(ctx context.Context, c *call, in *ByPlan) (int, any, uint64, error) {
			v, cl, err := s.viewOf(ctx, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			p, err := c.planOf(v, cl, in.Plan)
			if err != nil {
				return 0, nil, 0, err
			}
			t, ok := c.tree(v, cl, p)
			if !ok {
				return 0, nil, 0, &tree.Refusal{Code: http.StatusNotFound, Message: "Plan " + in.Plan + " not found"}
			}
			out := t.Info()
			return out.Code(), out, v.Index(), nil
		})
	said := []sdkAnswer{{200, "The order is carried out", reflect.TypeFor[api.Said]()}, {208, "It had been given already, or there is nothing left to do", nil}}
	sdk(s, route{id: "startPlan", method: http.MethodPost, path: path + "/{plan}/start", tag: tag, rule: writes, optional: true, summary: "Start a plan, with parameters ({} for none); a complete or stopped plan starts again from the beginning", description: alsoSDK}, said,
		func(ctx context.Context, c *call, in *struct {
			ByPlan
			Body raw[map[string]string]
		}) (int, any, uint64, error) {
			o := tree.Order{Command: "start", Plan: in.Plan}
			if err := json.Unmarshal(in.Body.data, &o.Params); err != nil {
				return 0, nil, 0, &tree.Refusal{Code: http.StatusBadRequest, Message: "Couldn't parse parameters: " + err.Error()}
			}
			if r, ok := tree.CheckParams(o.Params); !ok {
				return 0, nil, 0, &tree.Refusal{Code: r.Code, Message: r.Message}
			}
			return s.orderPlan(ctx, c, in.ID, o)
		})
	sdk(s, route{id: "stopPlan", method: http.MethodPost, path: path + "/{plan}/stop", tag: tag, rule: writes, summary: "Interrupt a plan and reset all of it; running tasks are cancelled", description: alsoSDK}, said,
		func(ctx context.Context, c *call, in *ByPlan) (int, any, uint64, error) {
			return s.orderPlan(ctx, c, in.ID, tree.Order{Command: "stop", Plan: in.Plan})
		})
	for _, o := range []struct{ command, id, summary string }{
		{"interrupt", "interruptPlan", "Start no further steps of a plan or of a phase"},
		{"continue", "continuePlan", "Continue a plan or a phase; in a phase with canaries, release the next one"},
	} {
		sdk(s, route{id: o.id, method: http.MethodPost, path: path + "/{plan}/" + o.command, tag: tag, rule: writes, summary: o.summary, description: alsoSDK}, said,
			func(ctx context.Context, c *call, in *struct {
				ByPlan
				Phase string `query:"phase" doc:"Name or id of a phase; absent: the whole plan"`
			}) (int, any, uint64, error) {
				return s.orderPlan(ctx, c, in.ID, tree.Order{Command: o.command, Plan: in.Plan, Phase: in.Phase})
			})
	}
	for _, o := range []struct{ command, id, summary string }{
		{"forceComplete", "forceCompletePlan", "Mark a plan, a phase or a step as complete; its running tasks are cancelled"},
		{"restart", "restartPlan", "Repeat a plan, a phase or a step; its running tasks are cancelled"},
	} {
		sdk(s, route{id: o.id, method: http.MethodPost, path: path + "/{plan}/" + o.command, tag: tag, rule: writes, summary: o.summary, description: alsoSDK}, said,
			func(ctx context.Context, c *call, in *struct {
				ByPlan
				Phase string `query:"phase" doc:"Name or id of a phase; absent: the whole plan"`
				Step  string `query:"step" doc:"Name or id of a step; absent: the whole phase"`
			}) (int, any, uint64, error) {
				return s.orderPlan(ctx, c, in.ID, tree.Order{Command: o.command, Plan: in.Plan, Phase: in.Phase, Step: in.Step})
			})
	}
	read(s, route{id: "explainOperation", path: "/v1/operations/{operation}/explain", tag: "operations", rule: reads, summary: "Explain what each waiting step of an operation waits for"},
		func(ctx context.Context, c *call, v View, in *struct {
			ByOperation
			Limit int `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of steps; 100 if absent"`
		}) (*tree.Explanation, error) {
			op, err := c.operation(v, in.ID)
			if err != nil {
				return nil, err
			}
			return s.Operations.Explain(ctx, c.who.Tenant, op.ID, cmp.Or(in.Limit, 100))
		})
	sdk(s, route{id: "debugPlans", method: http.MethodGet, path: "/v1/clusters/{cluster}/debug/plans", tag: tag, rule: reads, summary: "Get all plans of a cluster", description: alsoSDK},
		[]sdkAnswer{{200, "The plans", reflect.TypeFor[api.PlansAtAGlance]()}},
		func(ctx context.Context, c *call, in *struct {
			ByCluster
			Plan  string `query:"plan" doc:"Only this plan"`
			Phase string `query:"phase" doc:"Only this phase"`
			Step  string `query:"step" doc:"Only this step"`
			Sync  bool   `query:"sync" doc:"Has no effect: an answer is always of one moment"`
		}) (int, any, uint64, error) {
			v, cl, err := s.viewOf(ctx, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			d, err := tree.DebugOf(c.trees(v, cl), in.Plan, in.Phase, in.Step)
			if err != nil {
				return http.StatusOK, map[string]string{"invalid-input": err.Error()}, v.Index(), nil
			}
			return http.StatusOK, d, v.Index(), nil
		})
	sdk(s, route{id: "getClusterHealth", method: http.MethodGet, path: "/v1/clusters/{cluster}/health", tag: tag, rule: reads, summary: "Get the status of a cluster's plans, as an HTTP status of the DC/OS SDK", description: alsoSDK},
		[]sdkAnswer{{200, "All is done; other codes say what is under way", reflect.TypeFor[api.ClusterHealth]()}},
		func(ctx context.Context, c *call, in *struct {
			ByCluster
			Verbose string `query:"verbose" doc:"Has no effect: the answer always has the reasons"`
		}) (int, any, uint64, error) {
			v, cl, err := s.viewOf(ctx, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			h := tree.HealthOf(c.trees(v, cl), true)
			return h.Code, h, v.Index(), nil
		})
}

// orderPlan carries out an order about a plan.
func (s *server) orderPlan(ctx context.Context, c *call, cluster string, o tree.Order) (int, any, uint64, error) {
	v, err := s.now(ctx)
	if err != nil {
		return 0, nil, 0, err
	}
	cl, err := c.service(v, cluster)
	if err != nil {
		return 0, nil, 0, err
	}
	p, err := c.planOf(v, cl, o.Plan)
	if err != nil {
		return 0, nil, 0, err
	}
	if p.Custom && (p.Operation == "" || p.Over && o.Phase == "" && (o.Command == "start" || o.Command == "restart")) {
		// The order starts a new run of the plan, unless it would change nothing.
		t, ok := c.tree(v, cl, p)
		if !ok {
			return 0, nil, 0, &tree.Refusal{Code: http.StatusNotFound, Message: "Plan " + o.Plan + " not found"}
		}
		if r := tree.Give([]*tree.View{t}, o); r.Code != tree.CodeOK {
			return 0, nil, 0, &tree.Refusal{Code: r.Code, Message: r.Message}
		}
		if p.Operation, _, err = s.Operations.BeginPlan(ctx, c.who, cl.ID, p.Name); err != nil {
			return 0, nil, 0, err
		}
	}
	if p.Operation == "" { // the plan has nothing to do
		if r := tree.Give([]*tree.View{tree.Idle(p.Name, cl.ID)}, o); r.Code != tree.CodeOK {
			return 0, nil, 0, &tree.Refusal{Code: r.Code, Message: r.Message}
		}
		return http.StatusOK, api.Said{Message: o.Received()}, v.Index(), nil
	}
	w, err := s.Operations.OrderPlan(ctx, c.who, p.Operation, o)
	return http.StatusOK, api.Said{Message: o.Received()}, w.Index, err
}

// sdkPath returns the path of this API for a path of the DC/OS SDK's scheduler, or "" if the path
// is not one.
func sdkPath(escaped string) string {
	part := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	var rest []string
	var service string
	switch {
	case len(part) > 3 && part[0] == "v1" && (part[1] == "service" || part[1] == "multi"):
		service, rest = part[2], part[3:]
	case len(part) > 3 && part[0] == "service" && part[2] == "v1":
		service, rest = part[1], part[3:]
	default:
		return ""
	}
	switch rest[0] {
	case "plan": // deprecated alias of the plan deploy
		rest = append([]string{"plans", "deploy"}, rest[1:]...)
	case "plans", "pod", "debug", "health":
	default:
		return ""
	}
	return "/v1/clusters/" + service + "/" + strings.Join(rest, "/")
}

// asSDK rewrites requests of the DC/OS SDK's client to the paths of this API.
func asSDK(r *http.Request) *http.Request {
	to := sdkPath(r.URL.EscapedPath())
	if to == "" {
		return r
	}
	path, err := url.PathUnescape(to)
	if err != nil {
		return r
	}
	out := new(http.Request)
	*out = *r
	u := *r.URL
	u.Path, u.RawPath = path, to
	out.URL = &u
	return out
}
