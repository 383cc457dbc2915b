package plans

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/redact"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByPod names a node of a cluster as the DC/OS SDK names a pod.
type ByPod struct {
	rest.ByCluster
	Pod string `path:"pod" doc:"The first part of the node's host name, the whole host name, or the node's id"`
}

// podName returns a node's name within its cluster.
func podName(n *model.Node) string {
	name, _, _ := strings.Cut(n.Hostname, ".")
	if name == "" {
		return n.ID
	}
	return name
}

// pod returns a node as a pod, with a task for each service.
func pod(cl *model.Cluster, n *model.Node, now attempts) tree.Pod {
	p := tree.Pod{Name: podName(n), Tasks: []tree.PodTask{}}
	for _, s := range n.Services {
		p.Tasks = append(p.Tasks, tree.PodTask{ID: taskID(n, s, now), Name: p.Name + "-" + s, Status: taskState(cl, n, s, now)})
	}
	return p
}

// taskID returns the id of a service's task: the placement of the service and, once it was started, the number of its latest start. So the
// id of a service that was started again is another one.
func taskID(n *model.Node, service string, now attempts) string {
	id := string(model.NodeID(n.ID).Placement(service))
	if started := max(n.Marks[service].Started, now.starts[[2]string{n.ID, service}]); started > 0 {
		id += "/" + strconv.FormatUint(started, 10)
	}
	return id
}

// attempts is what operations under way have begun to change, by node and service: the states of services, and the numbers of their starts.
type attempts struct {
	states map[[2]string]string
	starts map[[2]string]uint64
}

// attemptsOf returns the present attempts of the operations of a cluster that have not ended.
func attemptsOf(c *rest.Call, v rest.View, cl *model.Cluster) attempts {
	out := attempts{states: map[[2]string]string{}, starts: map[[2]string]uint64{}}
	stopped, running := map[[2]string]bool{}, map[[2]string]bool{}
	numbered := v.NumbersStarts()
	for _, n := range v.Nodes(c.Who.Tenant, cl.ID) {
		for service, state := range n.States {
			running[[2]string{n.ID, service}] = state == model.Start.String()
		}
	}
	for _, op := range v.ActiveOperations() {
		if op.Tenant != c.Who.Tenant || op.Cluster != cl.ID {
			continue
		}
		tasks := v.Tasks(op.Tenant, op.ID)
		for _, t := range tasks {
			if t.Action == model.Stop && t.Status == model.TaskSucceeded {
				stopped[[2]string{t.Node, t.Service}] = true
			}
		}
		latest := map[[2]string]int64{}
		for _, t := range tasks {
			at := [2]string{t.Node, t.Service}
			if numbered && t.Action == model.Start {
				out.starts[at] = max(out.starts[at], t.Fence)
			}
			if t.Service == "" || t.LeasedAt == 0 || t.LeasedAt < latest[at] {
				continue
			}
			prepares := t.Action == model.Install || t.Action == model.Configure || t.Action == model.Initialize
			if prepares && running[at] && !stopped[at] {
				continue // the service goes on running until it is stopped
			}
			if state := attemptState(cl, &t); state != "" {
				latest[at], out.states[at] = t.LeasedAt, state
			}
		}
	}
	return out
}

// attemptState returns the state that a task that has begun brings its service to, or "" if it does not say so.
func attemptState(cl *model.Cluster, t *model.Task) string {
	if t.Status == model.TaskFailed || t.Status == model.TaskReady && t.Attempt > 0 {
		return "FAILED"
	}
	ended := t.Status == model.TaskSucceeded
	if !ended && !t.Status.Held() {
		return ""
	}
	switch t.Action {
	case model.Install, model.Configure, model.Initialize:
		return "STAGING"
	case model.Start:
		switch {
		case !ended:
			return "STARTING"
		case !runs(cl, t.Service):
			return "FINISHED"
		}
		return "RUNNING"
	case model.Check:
		return "RUNNING"
	case model.Stop, model.Remove:
		if ended {
			return "KILLED"
		}
		return "KILLING"
	}
	return ""
}

// runs reports whether a service goes on running once it is started.
func runs(cl *model.Cluster, service string) bool {
	def := cl.Definitions[service]
	return def.Runs()
}

// taskState returns the state of a service on a node in the words of the DC/OS SDK, or "" if the
// service was never started. The present attempt of an operation counts, and not the state at its beginning.
func taskState(cl *model.Cluster, n *model.Node, service string, now attempts) string {
	if h := n.Health; h != nil {
		switch {
		case h.Paused[service] != "":
			return h.Paused[service]
		case h.Machine == model.MachineGone:
			return "GONE"
		case now.states[[2]string{n.ID, service}] != "": // below
		case h.Services[service].Status == model.Unhealthy:
			return "FAILED"
		}
	}
	if state := now.states[[2]string{n.ID, service}]; state != "" {
		return state
	}
	switch n.States[service] {
	case "START":
		if !runs(cl, service) {
			return "FINISHED"
		}
		return "RUNNING"
	case "START?":
		return "STARTING"
	case "STOP":
		return "KILLED"
	case "STOP?":
		return "KILLING"
	}
	return ""
}

// pods groups the nodes of a cluster by their services.
func pods(cl *model.Cluster, nodes []*model.Node, now attempts) tree.Pods {
	out := tree.Pods{Service: cl.Name, Pods: []tree.PodType{}}
	for _, n := range nodes {
		name := strings.Join(n.Services, "+")
		i := slices.IndexFunc(out.Pods, func(t tree.PodType) bool { return t.Name == name })
		if i < 0 {
			i = len(out.Pods)
			out.Pods = append(out.Pods, tree.PodType{Name: name})
		}
		out.Pods[i].Instances = append(out.Pods[i].Instances, pod(cl, n, now))
	}
	slices.SortStableFunc(out.Pods, func(a, b tree.PodType) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// mesosState returns the state of a task as Mesos has it, or "" for one that was never started and for the states that only the SDK has.
func mesosState(status string) string {
	switch status {
	case "", model.Pausing, model.Paused:
		return ""
	}
	return "TASK_" + status
}

// machineOf returns the provider's id of a node's machine.
func machineOf(n *model.Node) api.PodValue {
	id, _ := n.Results["providerid"].(string)
	return api.PodValue{Value: id}
}

// commandOf returns the script that starts a service on a node, without secrets, or the type of the action that does.
func commandOf(r *redact.Redactor, cl *model.Cluster, n *model.Node, service string) api.PodValue {
	def, _ := cl.DefinitionAt(n.Marks[service], service)
	start := r.Definition(model.Define(model.KindService, &def)).Value.(*model.Service).Provisioner.Actions[model.Start.Key()]
	if script, ok := start.Fields["script"].(string); ok {
		return api.PodValue{Value: script}
	}
	return api.PodValue{Value: start.Type}
}

// podOf returns the node that a pod name stands for.
func podOf(c *rest.Call, v rest.View, cl *model.Cluster, name string) (*model.Node, error) {
	hidden := &tree.Refusal{Code: http.StatusNotFound, Message: "Pod " + name + " not found"}
	for _, n := range v.Nodes(c.Who.Tenant, cl.ID) {
		if name == podName(n) || name == n.Hostname || name == n.ID {
			return n, c.UseNode(v, n, hidden)
		}
	}
	return nil, hidden
}

func podRoutes(s *rest.Server) {
	const tag, path = "plans", "/v1/clusters/{cluster}/pod"
	get := func(id, path, summary string, body reflect.Type, h func(*rest.Call, rest.View, *model.Cluster, string) (any, error)) {
		answer := func(ctx context.Context, c *rest.Call, cluster, pod string) (int, any, uint64, error) {
			v, err := s.View(ctx, c)
			if err != nil {
				return 0, nil, 0, err
			}
			cl, err := serviceOf(c, v, cluster)
			if err != nil {
				return 0, nil, 0, err
			}
			out, err := h(c, v, cl, pod)
			return http.StatusOK, out, v.Index(), err
		}
		r := rest.Route{ID: id, Method: http.MethodGet, Path: path, Tag: tag, Summary: summary, Description: alsoSDK}
		answers := []sdkAnswer{{http.StatusOK, "As asked for", body}}
		if strings.Contains(path, "{pod}") {
			sdk(s, r, answers, func(ctx context.Context, c *rest.Call, in *ByPod) (int, any, uint64, error) {
				return answer(ctx, c, in.ID, in.Pod)
			})
			return
		}
		sdk(s, r, answers, func(ctx context.Context, c *rest.Call, in *rest.ByCluster) (int, any, uint64, error) {
			return answer(ctx, c, in.ID, "")
		})
	}
	get(
		"listPods",
		path,
		"The names of a cluster's nodes, as pods of the DC/OS SDK",
		reflect.TypeFor[[]string](),
		func(c *rest.Call, v rest.View, cl *model.Cluster, _ string) (any, error) {
			names := []string{}
			for _, n := range c.Nodes(v, cl) {
				names = append(names, podName(n))
			}
			slices.Sort(names)
			return names, nil
		},
	)
	get(
		"getPods",
		path+"/status",
		"Get all nodes of a cluster, grouped by their services, with the status of each service",
		reflect.TypeFor[tree.Pods](),
		func(c *rest.Call, v rest.View, cl *model.Cluster, _ string) (any, error) {
			return pods(cl, c.Nodes(v, cl), attemptsOf(c, v, cl)), nil
		},
	)
	get(
		"getPod",
		path+"/{pod}/status",
		"Get a node and the status of each of its services",
		reflect.TypeFor[tree.Pod](),
		func(c *rest.Call, v rest.View, cl *model.Cluster, name string) (any, error) {
			n, err := podOf(c, v, cl, name)
			if err != nil {
				return nil, err
			}
			return pod(cl, n, attemptsOf(c, v, cl)), nil
		},
	)
	get(
		"getPodInfo",
		path+"/{pod}/info",
		"What each service of a node is",
		reflect.TypeFor[[]api.PodInfo](),
		func(c *rest.Call, v rest.View, cl *model.Cluster, name string) (any, error) {
			n, err := podOf(c, v, cl, name)
			if err != nil {
				return nil, err
			}
			out, r := []api.PodInfo{}, redact.For(v, c.Who.Tenant)
			for i, t := range pod(cl, n, attemptsOf(c, v, cl)).Tasks {
				service, id := n.Services[i], api.PodValue{Value: t.ID}
				out = append(out, api.PodInfo{Status: api.PodTaskStatus{PodTask: t, TaskID: id, State: mesosState(t.Status)}, Info: api.PodTaskInfo{
					Name: t.Name, Pod: podName(n), Service: service, Version: cl.Definitions[service].Version, Node: n.ID, IPAddresses: n.IPAddresses,
					TaskID: id, SlaveID: machineOf(n), Command: commandOf(r, cl, n, service),
				}})
			}
			return out, nil
		},
	)
}
