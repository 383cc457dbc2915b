package apitest

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/solver"
	"github.com/coopr/coopr/rpc/api"
)

// CreateCluster plans a cluster of equal nodes: CREATE for each node, then INSTALL and
// START of each service.
func (a *Agent) CreateCluster(_ context.Context, who model.Caller, req model.CreateCluster, dryRun bool) (api.Started, error) {
	var st api.Started
	if err := a.failure(); err != nil {
		return st, err
	}
	a.Store.mu.Lock()
	defer a.Store.mu.Unlock()
	key := who.Tenant + "/" + who.Actor + "/" + who.Request
	if r, ok := a.done[key]; ok && who.Request != "" {
		r.started.Written.Repeated = true
		return r.started, nil
	}
	stored, ok := view{a.now}.Definition(who.Tenant, model.KindClusterTemplate, req.ClusterTemplate, 0)
	if !ok {
		return st, problem.New(problem.NotFound, "there is no cluster template %q", req.ClusterTemplate)
	}
	def, err := model.Restore(stored.Kind, stored.Body)
	if err != nil {
		return st, err
	}
	template := *def.Value.(*model.ClusterTemplate)
	n := int(req.NumMachines)
	if size := template.Constraints.Size; size != nil && size.Max != nil && n > int(*size.Max) {
		return st, &solver.Unsolvable{Nodes: n, Conflict: []solver.Constraint{{Path: "constraints.size.max",
			Words: fmt.Sprintf("at most %d nodes", *size.Max)}},
			Hints: []string{fmt.Sprintf("with %d nodes instead of %d it has a solution", *size.Max, n)}}
	}
	if quota := a.now.Tenants[who.Tenant].MaxClusters; quota > 0 && len(view{a.now}.Clusters(who.Tenant)) >= quota {
		return st, problem.New(problem.Quota, "tenant %s may have %d clusters and has them", who.Tenant, quota)
	}
	services := req.Services
	if len(services) == 0 {
		for _, s := range template.Defaults.Services {
			services = append(services, s.Name)
		}
	}
	slices.Sort(services)
	provider := model.Provider{Base: model.Base{Name: template.Defaults.Provider}}
	if d, ok := (view{a.now}).Definition(who.Tenant, model.KindProvider, template.Defaults.Provider, 0); ok {
		if def, err := model.Restore(d.Kind, d.Body); err == nil {
			provider = *def.Value.(*model.Provider)
		}
	}
	id := string(model.NewClusterID(len(a.now.Clusters) + 1))
	cluster := &model.Cluster{
		ID: id, Tenant: who.Tenant, Name: req.Name, Description: req.Description, Owner: who.Actor, Status: model.ClusterPending,
		Template: template, Provider: provider, Services: services, Config: req.Config, Definitions: map[string]model.Service{},
		CreatedAt: a.clock,
	}
	var nodes []*model.Node
	for i := range n {
		nodes = append(nodes, &model.Node{
			ID: string(model.ClusterID(id).Node(1000 + i)), Cluster: id, Tenant: who.Tenant, Number: 1000 + i,
			Hostname:     fmt.Sprintf("%s1-%d.local", req.Name, 1000+i),
			HardwareType: "small", ImageType: "debian", Services: services,
			IPAddresses: map[string]string{"access_v4": fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)},
			Results:     map[string]any{"providerid": fmt.Sprintf("vm-%d", i), "ssh-auth": map[string]any{"user": "root", "password": "hunter2"}},
		})
		st.Preview.Nodes = append(st.Preview.Nodes, *nodes[i])
	}
	cost := 0.25 * float64(n)
	st.Preview.Layout = model.Layout{{Count: n, HardwareType: "small", ImageType: "debian", Services: services}}
	st.Preview.Cost, st.Preview.Tight = &cost, []string{"constraints.size.max: at most 10 nodes"}
	plan := []map[model.Action][]string{{model.Create: {""}}, {model.Install: services}, {model.Start: services}}
	tasks := a.plan(&st.Preview, id, nodes, plan)
	if dryRun {
		return st, nil
	}
	return a.begin(who, key, st, cluster, nodes, &model.Operation{Type: model.OpCreate}, tasks)
}

// plan returns the tasks of a plan's stages, and adds the stages to a preview.
func (a *Agent) plan(p *api.Preview, cluster string, nodes []*model.Node, stages []map[model.Action][]string) []model.Task {
	var tasks []model.Task
	op := model.ClusterID(cluster).Operation(a.now.operations(cluster) + 1)
	for i, stage := range stages {
		counts := map[string]int{}
		for action, services := range stage {
			for _, service := range services {
				name := action.String()
				if service != "" {
					name += " " + service
				}
				for _, n := range nodes {
					counts[name]++
					t := model.Task{ID: string(op.Task(uint32(len(tasks)))), Operation: string(op), Cluster: cluster, Node: n.ID, Hostname: n.Hostname,
						Service: service, Action: action}
					if i == 0 {
						t.Status = model.TaskReady
					}
					tasks = append(tasks, t)
				}
			}
		}
		p.Stages = append(p.Stages, counts)
	}
	p.Tasks = len(tasks)
	return tasks
}

func (s *state) operations(cluster string) int {
	n := 0
	for _, op := range s.Ops {
		if op.Cluster == cluster {
			n++
		}
	}
	return n
}

// begin writes a new operation. The caller holds the store's lock.
func (a *Agent) begin(who model.Caller, key string, st api.Started, cluster *model.Cluster, nodes []*model.Node, op *model.Operation,
	tasks []model.Task) (api.Started, error) {
	op.ID = string(model.ClusterID(cluster.ID).Operation(a.now.operations(cluster.ID) + 1))
	op.Tenant, op.Cluster, op.Actor, op.Request, op.Status, op.CreatedAt = who.Tenant, cluster.ID, who.Actor, who.Request,
		model.OpRunning, a.clock
	cl := *cluster
	cl.Operation, cl.Status = op.ID, model.ClusterPending
	w, err := a.changeLocked(who, func(next *state) ([]model.Event, error) {
		op.Version, cl.Version = next.Index, next.Index
		next.Clusters[cl.ID], next.Nodes[cl.ID], next.Tasks[op.ID] = &cl, nodes, tasks
		next.Ops = append(next.Ops, op)
		next.setPlan(planOf(op.ID, cl.ID, tasks))
		events := []model.Event{
			{Type: "cluster.changed", Cluster: cl.ID, Subject: cl.ID, Status: string(cl.Status)},
			{Type: "operation.changed", Cluster: cl.ID, Operation: op.ID, Subject: op.ID, Status: string(op.Status)},
		}
		return events, nil
	})
	if err != nil {
		return st, err
	}
	st.Operation, st.Cluster, st.Written = *op, cl, w
	if who.Request != "" {
		a.done[key] = reply{index: w.Index, started: st}
	}
	return st, nil
}

// Operate starts an operation of one stage: an action for each node and service.
func (a *Agent) Operate(_ context.Context, who model.Caller, cluster string, req api.Operate) (api.Started, error) {
	var st api.Started
	if err := a.failure(); err != nil {
		return st, err
	}
	a.Store.mu.Lock()
	defer a.Store.mu.Unlock()
	key := who.Tenant + "/" + who.Actor + "/" + who.Request
	if r, ok := a.done[key]; ok && who.Request != "" {
		r.started.Written.Repeated = true
		return r.started, nil
	}
	cl, ok := (view{a.now}).Cluster(who.Tenant, cluster)
	if !ok {
		return st, problem.New(problem.NotFound, "there is no cluster %s", cluster)
	}
	if op, ok := (view{a.now}).Operation(who.Tenant, cl.Operation); ok && !op.Status.Ended() {
		return st, problem.New(problem.Conflict, "operation %s is still under way for cluster %s: wait for it or abort it", op.ID, cl.Name)
	}
	services := req.Services
	if len(services) == 0 {
		services = cl.Services
	}
	action := map[model.OperationType]model.Action{model.OpStart: model.Start, model.OpStop: model.Stop, model.OpRestart: model.Start,
		model.OpConfigure: model.Configure, model.OpDelete: model.Delete}[req.Type]
	if req.Type == model.OpDelete {
		services = []string{""}
	}
	nodes := a.now.Nodes[cl.ID]
	tasks := a.plan(&st.Preview, cl.ID, nodes, []map[model.Action][]string{{action: services}})
	if req.DryRun {
		return st, nil
	}
	next := *cl
	if req.Config != nil {
		next.Config = model.CombineConfig(cl.Config, req.Config, req.ConfigMode)
	}
	return a.begin(who, key, st, &next, nodes, &model.Operation{Type: req.Type, Services: req.Services, Config: req.Config}, tasks)
}

// Resolve makes a cluster active.
func (a *Agent) Resolve(_ context.Context, who model.Caller, cluster, reason string) (api.Written, error) {
	return a.write(who, func(st *state) ([]model.Event, error) {
		for i, cl := range st.Clusters {
			if cl.ID != cluster || cl.Tenant != who.Tenant {
				continue
			}
			if cl.Status == model.ClusterActive {
				return nil, problem.New(problem.Conflict, "cluster %s is active: there is nothing to resolve", cl.Name)
			}
			next := *cl
			next.Status, next.Message = model.ClusterActive, reason
			st.Clusters[i] = &next
			return []model.Event{{Type: "cluster.changed", Cluster: cl.ID, Status: string(next.Status)}}, nil
		}
		return nil, problem.New(problem.NotFound, "there is no cluster %s", cluster)
	})
}

// Order pauses, resumes, aborts or rolls back an operation.
func (a *Agent) Order(_ context.Context, who model.Caller, operation, order, reason string) (api.Written, error) {
	return a.write(who, func(st *state) ([]model.Event, error) {
		i := slices.IndexFunc(st.Ops, func(o *model.Operation) bool { return o.ID == operation && o.Tenant == who.Tenant })
		if i < 0 {
			return nil, problem.New(problem.NotFound, "there is no operation %s", operation)
		}
		op := *st.Ops[i]
		next := map[string]model.OperationStatus{"pause": model.OpPaused, "resume": model.OpRunning, "abort": model.OpAborted,
			"rollback": model.OpRolledBack}[order]
		if op.Status.Ended() || order == "resume" && op.Status != model.OpPaused {
			return nil, problem.New(problem.Conflict, "operation %s is %s", op.ID, op.Status)
		}
		op.Status, op.Message = next, reason
		if next.Ended() {
			op.EndedAt = a.clock
		}
		st.Ops[i] = &op
		return []model.Event{{Type: "operation.changed", Cluster: op.Cluster, Operation: op.ID, Subject: op.ID, Status: string(op.Status)}}, nil
	})
}

// TaskLog copies a task's log to w. With follow it continues until the task has ended.
func (a *Agent) TaskLog(ctx context.Context, who model.Caller, task string, attempt int, follow bool, w io.Writer) error {
	sent := 0
	for {
		a.Store.mu.Lock()
		text, wake := a.logs[task], a.wake
		t, ok := (view{a.now}).Task(who.Tenant, task)
		a.Store.mu.Unlock()
		switch {
		case !ok || attempt > t.Attempt:
			return problem.New(problem.NotFound, "there is no log of %s", task)
		case sent < len(text):
			if _, err := w.Write(text[sent:]); err != nil {
				return err
			}
			sent = len(text)
			continue
		case !follow || t.Status.Ended():
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// Events calls fn with the events after an index, and with later ones until ctx ends or fn fails.
func (a *Agent) Events(ctx context.Context, tenant string, after uint64, fn func([]model.Event) error) error {
	if err := fn(nil); err != nil {
		return err
	}
	for {
		a.Store.mu.Lock()
		floor, wake, index := a.floor, a.wake, a.now.Index
		var batch []model.Event
		for _, e := range a.events {
			if e.Index > after && (tenant == "" || e.Tenant == tenant) {
				batch = append(batch, e)
			}
		}
		a.Store.mu.Unlock()
		if after < floor {
			return problem.New(problem.Conflict, "events after %d are not kept any more: read the state again and go on from its index", after)
		}
		if len(batch) > 0 {
			if err := fn(batch); err != nil {
				return err
			}
		}
		after = index
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}
