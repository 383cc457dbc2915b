package plans

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
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

// recoveryRoutes registers orders about nodes as pods, and about recovery (docs/spec/plans.md §9).
func recoveryRoutes(s *rest.Server) {
	for _, o := range []struct {
		command, summary string
		op               model.OperationType
	}{
		{"restart", "Restart a node's services where they are", model.OpRecover},
		{"replace", "Replace a node", model.OpReplaceNode},
	} {
		sdk(s, podOrder(o.command, o.summary), podAnswers, func(ctx context.Context, c *rest.Call, in *ByPod) (int, any, uint64, error) {
			return orderPod(ctx, s, c, in, o.op, nil)
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
		r.Optional = true
		sdk(s, r, podAnswers, func(ctx context.Context, c *rest.Call, in *struct {
			ByPod
			Body rest.Raw[[]string]
		}) (int, any, uint64, error) {
			var names []string
			if len(strings.TrimSpace(string(in.Body.Data))) > 0 {
				if err := json.Unmarshal(in.Body.Data, &names); err != nil {
					return 0, nil, 0, &tree.Refusal{Code: http.StatusBadRequest, Message: "Couldn't parse the names of tasks: " + err.Error()}
				}
			}
			return orderPod(ctx, s, c, &in.ByPod, o.op, names)
		})
	}
	for _, o := range []struct{ command, order, summary string }{
		{"pause", "pause-recovery", "Pause the recovery of a cluster"},
		{"resume", "resume-recovery", "Resume the recovery of a cluster"},
	} {
		rest.Write(
			s,
			rest.Route{
				ID:       o.command + "Recovery",
				Method:   http.MethodPost,
				Path:     "/v1/clusters/{cluster}/recovery/" + o.command,
				Tag:      "clusters",
				Optional: true,
				Summary:  o.summary,
			},
			func(ctx context.Context, c *rest.Call, in *struct {
				rest.ByCluster
				Body rest.Raw[api.OrderBody]
			}) (model.Cluster, api.Written, error) {
				body, err := in.Body.Value()
				if err != nil {
					return model.Cluster{}, api.Written{}, err
				}
				v, done, err := s.Before(ctx, c)
				if err != nil {
					return model.Cluster{}, api.Written{}, err
				}
				var w api.Written
				if done != nil {
					w = *done
				} else {
					cl, err := c.Cluster(v, in.ID)
					if err != nil {
						return model.Cluster{}, api.Written{}, err
					}
					if w, err = s.Operations.Order(ctx, c.Who, cl.ID, o.order, body.Reason); err != nil {
						return model.Cluster{}, w, err
					}
				}
				cl, err := rest.Wrote(w, w.Effect.Cluster)
				return redact.For(v, c.Who.Tenant).Cluster(&cl), w, err
			},
		)
	}
}

var podAnswers = []sdkAnswer{{200, "The order is carried out", reflect.TypeFor[api.PodOrdered]()}}

func podOrder(command, summary string) rest.Route {
	return rest.Route{
		ID:          command + "Pod",
		Method:      http.MethodPost,
		Path:        "/v1/clusters/{cluster}/pod/{pod}/" + command,
		Tag:         "plans",
		Summary:     summary,
		Description: alsoSDK,
	}
}

// orderPod starts an operation on a node. The names are services, or task names that begin with
// the pod's name. If one is unknown, orderPod starts nothing, and neither does it if the order would
// change nothing.
func orderPod(
	ctx context.Context,
	s *rest.Server,
	c *rest.Call,
	in *ByPod,
	op model.OperationType,
	names []string,
) (int, any, uint64, error) {
	v, done, err := s.Before(ctx, c)
	if err != nil {
		return 0, nil, 0, err
	}
	cl, n, err := nodeOf(c, v, in)
	if done != nil && err != nil { // the node is gone since
		return http.StatusOK, api.PodOrdered{Pod: in.Pod, Tasks: append([]string{}, names...)}, done.Index, nil
	}
	if err != nil {
		return 0, nil, 0, err
	}
	services, err := tasksOf(n, names)
	if err != nil && done == nil {
		return 0, nil, 0, err
	}
	out := api.PodOrdered{Pod: podName(n), Tasks: []string{}}
	for _, service := range services {
		out.Tasks = append(out.Tasks, podName(n)+"-"+service)
	}
	if done != nil {
		return http.StatusOK, out, done.Index, nil
	}
	req := api.Operate{Type: op, Change: model.ChangeCluster{NodeNames: []string{n.ID}, Forced: op == model.OpReplaceNode}}
	changed := slices.DeleteFunc(slices.Clone(services), func(service string) bool { return already(op, n, service) })
	if len(changed) == 0 && len(services) > 0 {
		return http.StatusOK, out, v.Index(), nil
	}
	if len(names) > 0 {
		req.Services = changed
	}
	st, err := s.Clusters.Operate(ctx, c.Who, cl.ID, req)
	var faults model.Faults
	if errors.As(err, &faults) {
		return 0, nil, 0, &tree.Refusal{Code: http.StatusConflict, Message: faults.Error()} // the operation does not apply to the node
	}
	return http.StatusOK, out, st.Written.Index, err
}

// tasksOf returns the services of a node that names stand for: a service, or a task, which is the pod's name and the service. Without
// names, it returns all. It fails if a name is unknown, or two names stand for one service.
func tasksOf(n *model.Node, names []string) ([]string, error) {
	if len(names) == 0 {
		return n.Services, nil
	}
	var out []string
	by := map[string]string{}
	for _, name := range names {
		service := name
		if !slices.Contains(n.Services, service) {
			service = strings.TrimPrefix(name, podName(n)+"-")
		}
		other, twice := by[service]
		switch {
		case !slices.Contains(n.Services, service):
			return out, &tree.Refusal{Code: http.StatusNotFound, Message: "Pod " + podName(n) + " has no task " + name}
		case twice && other != name:
			return out, &tree.Refusal{Code: http.StatusNotFound,
				Message: "Pod " + podName(n) + ": a task is named twice, as " + other + " and as " + name}
		case !twice:
			out = append(out, service)
		}
		by[service] = name
	}
	return out, nil
}

// already reports whether a service is in the state that an order brings it to, so that the order changes nothing.
func already(op model.OperationType, n *model.Node, service string) bool {
	paused := ""
	if n.Health != nil {
		paused = n.Health.Paused[service]
	}
	switch op {
	case model.OpPauseNode:
		return paused == model.Paused || paused == model.Pausing
	case model.OpResumeNode:
		return paused == "" || paused == model.Resuming
	}
	return false
}

// nodeOf returns the cluster and the node that a pod's path names.
func nodeOf(c *rest.Call, v rest.View, in *ByPod) (*model.Cluster, *model.Node, error) {
	cl, err := serviceOf(c, v, in.ID)
	if err != nil {
		return nil, nil, err
	}
	n, err := podOf(c, v, cl, in.Pod)
	return cl, n, err
}
