package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
)

// recoveryRoutes registers orders about nodes as pods, and about recovery (docs/spec/plans.md §9).
func (s *server) recoveryRoutes() {
	for _, o := range []struct {
		command, summary string
		op               model.OperationType
	}{
		{"restart", "Restart a node's services where they are", model.OpRecover},
		{"replace", "Replace a node", model.OpReplaceNode},
	} {
		sdk(s, podOrder(o.command, o.summary), podAnswers, func(ctx context.Context, c *call, in *ByPod) (int, any, uint64, error) {
			return s.orderPod(ctx, c, in, o.op, nil)
		})
	}
	for _, o := range []struct {
		command, summary string
		op               model.OperationType
	}{
		{"pause", "Stop the services of a node that the body names, or all, and exclude them from recovery", model.OpPauseNode},
		{"resume", "Start the paused services of a node that the body names, or all of them", model.OpResumeNode},
	} {
		r := podOrder(o.command, o.summary)
		r.optional = true
		sdk(s, r, podAnswers, func(ctx context.Context, c *call, in *struct {
			ByPod
			Body raw[[]string]
		}) (int, any, uint64, error) {
			var names []string
			if len(strings.TrimSpace(string(in.Body.data))) > 0 {
				if err := json.Unmarshal(in.Body.data, &names); err != nil {
					return 0, nil, 0, &tree.Refusal{Code: http.StatusBadRequest, Message: "Couldn't parse the names of tasks: " + err.Error()}
				}
			}
			return s.orderPod(ctx, c, &in.ByPod, o.op, names)
		})
	}
	for _, o := range []struct{ command, order, summary string }{
		{"pause", "pause-recovery", "Pause the recovery of a cluster"},
		{"resume", "resume-recovery", "Resume the recovery of a cluster"},
	} {
		write(s, route{id: o.command + "Recovery", method: http.MethodPost, path: "/v1/clusters/{cluster}/recovery/" + o.command, tag: "clusters", rule: rule{need: model.RoleUser}, optional: true, summary: o.summary},
			func(ctx context.Context, c *call, in *struct {
				ByCluster
				Body raw[api.OrderBody]
			}) (model.Cluster, api.Written, error) {
				body, err := in.Body.value()
				if err != nil {
					return model.Cluster{}, api.Written{}, err
				}
				v, err := s.now(ctx)
				if err != nil {
					return model.Cluster{}, api.Written{}, err
				}
				cl, err := c.cluster(v, in.ID)
				if err != nil {
					return model.Cluster{}, api.Written{}, err
				}
				w, err := s.Operations.Order(ctx, c.who, cl.ID, o.order, body.Reason)
				if err != nil {
					return model.Cluster{}, w, err
				}
				if v, err = s.now(ctx); err != nil {
					return model.Cluster{}, w, err
				}
				if cl, err = c.cluster(v, cl.ID); err != nil {
					return model.Cluster{}, w, err
				}
				return newRedactor(v, c.who.Tenant).cluster(cl), w, nil
			})
	}
}

var podAnswers = []sdkAnswer{{200, "The order is carried out", reflect.TypeFor[api.PodOrdered]()}}

func podOrder(command, summary string) route {
	return route{id: command + "Pod", method: http.MethodPost, path: "/v1/clusters/{cluster}/pod/{pod}/" + command, tag: "plans", rule: rule{need: model.RoleUser}, summary: summary, description: alsoSDK}
}

// orderPod starts an operation on a node. The names are services, or task names that begin with
// the pod's name. If one is unknown, orderPod starts nothing.
func (s *server) orderPod(ctx context.Context, c *call, in *ByPod, op model.OperationType, names []string) (int, any, uint64, error) {
	v, err := s.now(ctx)
	if err != nil {
		return 0, nil, 0, err
	}
	cl, err := c.service(v, in.ID)
	if err != nil {
		return 0, nil, 0, err
	}
	n, err := c.podOf(v, cl, in.Pod)
	if err != nil {
		return 0, nil, 0, err
	}
	out := api.PodOrdered{Pod: podName(n), Tasks: []string{}}
	req := api.Operate{Type: op, Change: model.ChangeCluster{NodeNames: []string{n.ID}, Forced: op == model.OpReplaceNode}}
	for _, name := range names {
		service := strings.TrimPrefix(name, podName(n)+"-")
		if !slices.Contains(n.Services, service) {
			return 0, nil, 0, &tree.Refusal{Code: http.StatusNotFound, Message: "Pod " + in.Pod + " has no task " + name}
		}
		req.Services = append(req.Services, service)
	}
	services := req.Services
	if len(services) == 0 {
		services = n.Services
	}
	for _, service := range services {
		out.Tasks = append(out.Tasks, podName(n)+"-"+service)
	}
	st, err := s.Clusters.Operate(ctx, c.who, cl.ID, req)
	var faults model.Faults
	if errors.As(err, &faults) {
		return 0, nil, 0, &tree.Refusal{Code: http.StatusConflict, Message: faults.Error()} // the operation does not apply to the node
	}
	return http.StatusOK, out, st.Written.Index, err
}
