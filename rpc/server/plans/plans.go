package plans

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByPlan names a plan of a cluster.
type ByPlan struct {
	rest.ByCluster
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
func sdk[I any](
	s *rest.Server,
	r rest.Route,
	answers []sdkAnswer,
	h func(context.Context, *rest.Call, *I) (status int, body any, index uint64, err error),
) {
	rest.Stream(
		s,
		r,
		"application/json",
		answers[0].what,
		func(ctx context.Context, c *rest.Call, in *I, w http.ResponseWriter, _ *http.Request) error {
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
			if text, ok := body.(plainText); ok {
				w.Header().Set("Content-Type", "text/plain; charset=utf-8")
				_, err := io.WriteString(w, string(text))
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
			_, err = w.Write(append(model.HideSealedRefs(text), '\n'))
			return err
		},
	)
	doc := s.OpenAPI()
	item := doc.Paths[r.Path]
	for _, op := range []*huma.Operation{item.Get, item.Post, item.Put} {
		if op == nil || op.OperationID != r.ID {
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

// plainText is a body that is no JSON.
type plainText string

// inspect registers a route that reads something of a cluster and answers like the scheduler of the DC/OS SDK.
func inspect[I any](
	s *rest.Server,
	id, path, summary string,
	body reflect.Type,
	cluster func(*I) string,
	h func(*rest.Call, rest.View, *model.Cluster, *I) (any, error),
) {
	sdk(
		s,
		rest.Route{ID: id, Method: http.MethodGet, Path: "/v1/clusters/{cluster}/" + path, Tag: "plans", Summary: summary, Description: alsoSDK},
		[]sdkAnswer{{http.StatusOK, "As asked for", body}},
		func(ctx context.Context, c *rest.Call, in *I) (int, any, uint64, error) {
			v, cl, err := viewOf(ctx, s, c, cluster(in))
			if err != nil {
				return 0, nil, 0, err
			}
			out, err := h(c, v, cl, in)
			return http.StatusOK, out, v.Index(), err
		},
	)
}

// notFound returns the refusal of a request for something that is not there.
func notFound(what, name string) error {
	return &tree.Refusal{Code: http.StatusNotFound, Message: what + " " + name + " not found"}
}

// serviceOf returns a cluster, or a refusal as the SDK has it.
func serviceOf(c *rest.Call, v rest.View, idOrName string) (*model.Cluster, error) {
	cl, err := c.Cluster(v, idOrName)
	if errors.Is(err, problem.NotFound) {
		return nil, &tree.Refusal{Code: http.StatusNotFound, Message: "Service " + idOrName + " not found"}
	}
	return cl, err
}

// viewOf returns the state that a request asks for, and its cluster.
func viewOf(ctx context.Context, s *rest.Server, c *rest.Call, idOrName string) (rest.View, *model.Cluster, error) {
	v, err := s.View(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	cl, err := serviceOf(c, v, idOrName)
	return v, cl, err
}

// planOf returns a plan of a cluster by its name.
func planOf(c *rest.Call, v rest.View, cl *model.Cluster, name string) (api.Plan, error) {
	plans := v.Plans(c.Who.Tenant, cl.ID)
	i := slices.IndexFunc(plans, func(p api.Plan) bool { return p.Name == name })
	if i < 0 {
		return api.Plan{}, &tree.Refusal{Code: http.StatusNotFound, Message: "Plan " + name + " not found"}
	}
	return plans[i], nil
}

// treesOf returns all plans of a cluster as trees, each under the plan's name: the plan of a rollback has two.
func treesOf(c *rest.Call, v rest.View, cl *model.Cluster) []*tree.View {
	var out []*tree.View
	for _, p := range v.Plans(c.Who.Tenant, cl.ID) {
		if t, ok := treeOf(c, v, cl, p); ok {
			named := *t.Tree
			named.Name, t.Tree = p.Name, &named
			out = append(out, t)
		}
	}
	return out
}

// treeOf returns a plan of a cluster as a tree.
func treeOf(c *rest.Call, v rest.View, cl *model.Cluster, p api.Plan) (*tree.View, bool) {
	switch {
	case p.Operation == "" && !p.Custom:
		return tree.Idle(p.Name, cl.ID), true
	case p.Operation == "":
		return v.CustomTree(c.Who.Tenant, cl.ID, p.Name)
	}
	return v.PlanTree(c.Who.Tenant, p.Operation)
}

// alsoSDK describes the other paths of every route that the DC/OS SDK has.
const alsoSDK = "Also served where the DC/OS SDK's client looks for it: " +
	"/v1/service/{cluster}/…, /v1/multi/{cluster}/… and /service/{cluster}/v1/…"

func planRoutes(s *rest.Server) {
	const tag, path = "plans", "/v1/clusters/{cluster}/plans"
	writes := rest.Rule{Once: true}
	sdk(
		s,
		rest.Route{
			ID:          "listPlans",
			Method:      http.MethodGet,
			Path:        path,
			Tag:         tag,
			Summary:     "List the names of a cluster's plans, the one with the highest priority first",
			Description: alsoSDK,
		},
		[]sdkAnswer{{200, "The names", reflect.TypeFor[[]string]()}},
		func(ctx context.Context, c *rest.Call, in *rest.ByCluster) (int, any, uint64, error) {
			v, cl, err := viewOf(ctx, s, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			names := []string{}
			for _, p := range v.Plans(c.Who.Tenant, cl.ID) {
				names = append(names, p.Name)
			}
			return http.StatusOK, names, v.Index(), nil
		},
	)
	info := reflect.TypeFor[api.PlanInfo]()
	sdk(
		s,
		rest.Route{
			ID:          "getPlan",
			Method:      http.MethodGet,
			Path:        path + "/{plan}",
			Tag:         tag,
			Summary:     "Get a plan with its phases and steps",
			Description: alsoSDK,
		},
		[]sdkAnswer{{200, "The plan is complete", info}, {202, "The plan is not complete", info}, {417, "The plan has errors", info}},
		func(ctx context.Context, c *rest.Call, in *ByPlan) (int, any, uint64, error) {
			v, cl, err := viewOf(ctx, s, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			p, err := planOf(c, v, cl, in.Plan)
			if err != nil {
				return 0, nil, 0, err
			}
			t, ok := treeOf(c, v, cl, p)
			if !ok {
				return 0, nil, 0, &tree.Refusal{Code: http.StatusNotFound, Message: "Plan " + in.Plan + " not found"}
			}
			out := t.Info()
			out.Operation = p.Operation
			return out.Code(), out, v.Index(), nil
		},
	)
	said := []sdkAnswer{
		{200, "The order is carried out", reflect.TypeFor[api.Said]()},
		{208, "It had been given already, or there is nothing left to do", nil},
	}
	sdk(
		s,
		rest.Route{
			ID:          "startPlan",
			Method:      http.MethodPost,
			Path:        path + "/{plan}/start",
			Tag:         tag,
			Rule:        writes,
			Optional:    true,
			Summary:     "Start a plan, with parameters ({} for none); a complete or stopped plan starts again from the beginning",
			Description: alsoSDK,
		},
		said,
		func(ctx context.Context, c *rest.Call, in *struct {
			ByPlan
			Body rest.Raw[map[string]string]
		}) (int, any, uint64, error) {
			o := tree.Order{Command: "start", Plan: in.Plan}
			if err := json.Unmarshal(in.Body.Data, &o.Params); err != nil {
				return 0, nil, 0, &tree.Refusal{Code: http.StatusBadRequest, Message: "Couldn't parse parameters: " + err.Error()}
			}
			if r, ok := tree.CheckParams(o.Params); !ok {
				return 0, nil, 0, &tree.Refusal{Code: r.Code, Message: r.Message}
			}
			return orderPlan(ctx, s, c, in.ID, o)
		},
	)
	sdk(
		s,
		rest.Route{
			ID:          "stopPlan",
			Method:      http.MethodPost,
			Path:        path + "/{plan}/stop",
			Tag:         tag,
			Rule:        writes,
			Summary:     "Interrupt a plan and reset all of it; running tasks are cancelled",
			Description: alsoSDK,
		},
		said,
		func(ctx context.Context, c *rest.Call, in *ByPlan) (int, any, uint64, error) {
			return orderPlan(ctx, s, c, in.ID, tree.Order{Command: "stop", Plan: in.Plan})
		},
	)
	for _, o := range []struct{ command, ID, summary string }{
		{"interrupt", "interruptPlan", "Start no further steps of a plan or of a phase"},
		{"continue", "continuePlan", "Continue a plan or a phase; in a phase with canaries, release the next one"},
	} {
		sdk(
			s,
			rest.Route{
				ID:          o.ID,
				Method:      http.MethodPost,
				Path:        path + "/{plan}/" + o.command,
				Tag:         tag,
				Rule:        writes,
				Summary:     o.summary,
				Description: alsoSDK,
			},
			said,
			func(ctx context.Context, c *rest.Call, in *struct {
				ByPlan
				Phase string `query:"phase" doc:"Name or id of a phase; absent: the whole plan"`
			}) (int, any, uint64, error) {
				return orderPlan(ctx, s, c, in.ID, tree.Order{Command: o.command, Plan: in.Plan, Phase: in.Phase})
			},
		)
	}
	for _, o := range []struct{ command, ID, summary string }{
		{"forceComplete", "forceCompletePlan", "Mark a plan, a phase or a step as complete; its running tasks are cancelled"},
		{"restart", "restartPlan", "Repeat a plan, a phase or a step; its running tasks are cancelled"},
	} {
		sdk(
			s,
			rest.Route{
				ID:          o.ID,
				Method:      http.MethodPost,
				Path:        path + "/{plan}/" + o.command,
				Tag:         tag,
				Rule:        writes,
				Summary:     o.summary,
				Description: alsoSDK,
			},
			said,
			func(ctx context.Context, c *rest.Call, in *struct {
				ByPlan
				Phase string `query:"phase" doc:"Name or id of a phase; absent: the whole plan"`
				Step  string `query:"step" doc:"Name or id of a step; absent: the whole phase"`
			}) (int, any, uint64, error) {
				return orderPlan(ctx, s, c, in.ID, tree.Order{Command: o.command, Plan: in.Plan, Phase: in.Phase, Step: in.Step})
			},
		)
	}
	rest.Read(
		s,
		rest.Route{
			ID:      "explainOperation",
			Path:    "/v1/operations/{operation}/explain",
			Tag:     "operations",
			Summary: "Explain what each waiting step of an operation waits for",
		},
		func(ctx context.Context, c *rest.Call, v rest.View, in *struct {
			rest.ByOperation
			Limit int `query:"limit" minimum:"1" maximum:"10000" doc:"Maximum number of steps; 100 if absent"`
		}) (*tree.Explanation, error) {
			op, err := c.Operation(v, in.ID)
			if err != nil {
				return nil, err
			}
			return s.Operations.Explain(ctx, c.Who.Tenant, op.ID, cmp.Or(in.Limit, 100))
		},
	)
	sdk(
		s,
		rest.Route{
			ID:          "debugPlans",
			Method:      http.MethodGet,
			Path:        "/v1/clusters/{cluster}/debug/plans",
			Tag:         tag,
			Summary:     "Get all plans of a cluster",
			Description: alsoSDK,
		},
		[]sdkAnswer{{200, "The plans", reflect.TypeFor[api.PlansAtAGlance]()}},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByCluster
			Plan  string `query:"plan" doc:"Only this plan"`
			Phase string `query:"phase" doc:"Only this phase"`
			Step  string `query:"step" doc:"Only this step"`
			Sync  bool   `query:"sync" doc:"Has no effect: an answer is always of one moment"`
		}) (int, any, uint64, error) {
			v, cl, err := viewOf(ctx, s, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			d, err := tree.DebugOf(treesOf(c, v, cl), in.Plan, in.Phase, in.Step)
			if err != nil {
				return http.StatusOK, map[string]string{"invalid-input": err.Error()}, v.Index(), nil
			}
			return http.StatusOK, d, v.Index(), nil
		},
	)
	sdk(
		s,
		rest.Route{
			ID:          "getClusterHealth",
			Method:      http.MethodGet,
			Path:        "/v1/clusters/{cluster}/health",
			Tag:         tag,
			Summary:     "Get the status of a cluster's plans, as an HTTP status of the DC/OS SDK",
			Description: alsoSDK,
		},
		[]sdkAnswer{{200, "No work is left; other codes mean that work is in progress or has failed", reflect.TypeFor[api.ClusterHealth]()}},
		func(ctx context.Context, c *rest.Call, in *struct {
			rest.ByCluster
			Verbose string `query:"verbose" doc:"Has no effect: the answer always has the reasons"`
		}) (int, any, uint64, error) {
			v, cl, err := viewOf(ctx, s, c, in.ID)
			if err != nil {
				return 0, nil, 0, err
			}
			h := tree.HealthOf(treesOf(c, v, cl), true)
			return h.Code, h, v.Index(), nil
		},
	)
}

// startsRun reports whether an order about a custom plan whose run has ended makes another run. A stopped plan is as one that was never
// started, so that what its last run ended with does not count any more.
func startsRun(command string) bool {
	return command == "start" || command == "restart" || command == "stop"
}

// orderPlan carries out an order about a plan.
func orderPlan(ctx context.Context, s *rest.Server, c *rest.Call, cluster string, o tree.Order) (int, any, uint64, error) {
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return 0, nil, 0, err
	}
	if done != nil {
		return http.StatusOK, api.Said{Message: o.Received()}, done.Index, nil
	}
	cl, err := serviceOf(c, v, cluster)
	if err != nil {
		return 0, nil, 0, err
	}
	p, err := planOf(c, v, cl, o.Plan)
	if err != nil {
		return 0, nil, 0, err
	}
	if p.Custom && (p.Operation == "" || p.Over && o.Phase == "" && startsRun(o.Command)) {
		// The order makes a new run of the plan, unless it would change nothing.
		t, ok := treeOf(c, v, cl, p)
		if !ok {
			return 0, nil, 0, &tree.Refusal{Code: http.StatusNotFound, Message: "Plan " + o.Plan + " not found"}
		}
		if r := tree.Give([]*tree.View{t}, o); r.Code != tree.CodeOK {
			return 0, nil, 0, &tree.Refusal{Code: r.Code, Message: r.Message}
		}
		if p.Operation, _, err = s.Operations.BeginPlan(ctx, c.Who, cl.ID, p.Name); err != nil {
			return 0, nil, 0, err
		}
	}
	if p.Operation == "" { // the plan has nothing to do
		if r := tree.Give([]*tree.View{tree.Idle(p.Name, cl.ID)}, o); r.Code != tree.CodeOK {
			return 0, nil, 0, &tree.Refusal{Code: r.Code, Message: r.Message}
		}
		return http.StatusOK, api.Said{Message: o.Received()}, v.Index(), nil
	}
	said := api.Said{Message: o.Received()}
	if o.Command == "continue" && o.Phase == "" {
		if t, ok := treeOf(c, v, cl, p); ok {
			said.Waits = t.Caged()
		}
	}
	w, err := s.Operations.OrderPlan(ctx, c.Who, p.Operation, o)
	if err != nil || o.Command != "restart" {
		return http.StatusOK, said, w.Index, err
	}
	if v, err = s.View(ctx, c); err == nil {
		if t, ok := treeOf(c, v, cl, p); ok {
			said.Skipped = t.LeftOut()
		}
	}
	return http.StatusOK, said, w.Index, err
}
