package sites

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// ClusterSite is the name of the site that holds a cluster in shape: its
// services' change objects.
func ClusterSite(cluster string) string { return "cluster-" + cluster }

// followClusters brings the sites of clusters to what their services and nodes
// are now. What cannot be is logged: a service's author has to mend it.
func (k *Keeper) followClusters(ctx context.Context) error {
	k.mu.Lock()
	changed := k.clusters
	k.clusters = false
	k.mu.Unlock()
	if !changed {
		return nil
	}
	v := k.cfg.Machine.View()
	for _, cl := range v.Clusters("") {
		name := ClusterSite(cl.ID)
		r, has := v.Site(cl.Tenant, name)
		if cl.Status == model.ClusterTerminated {
			if has { // its nodes are gone, and all that was on them
				if err := k.forget(ctx, r); err != nil {
					return err
				}
			}
			continue
		}
		if cl.Status == model.ClusterPending || !has && !site.Carries(cl) || busy(v, cl) {
			continue // its end brings us here again
		}
		doc, err := site.OfCluster(name, cl, v.Nodes(cl.Tenant, cl.ID))
		if err != nil {
			k.cfg.Logger.Warn("the change objects of a cluster's services have macros that cannot be filled in", "cluster", cl.ID, "error", err)
			continue
		}
		if len(doc.Objects) == 0 && !has {
			continue
		}
		who := model.Caller{Tenant: cl.Tenant, Actor: model.Self, Role: model.RoleAdmin}
		_, err = k.apply(ctx, who, doc, 0, false)
		var faults model.Faults
		switch {
		case err == nil:
		case errors.As(err, &faults):
			k.cfg.Logger.Warn("the change objects of a cluster's services contradict each other", "cluster", cl.ID, "error", err)
		case errors.Is(err, problem.Conflict), errors.Is(err, problem.Stale):
			k.mu.Lock()
			k.clusters = true // when the one on its way is in force
			k.mu.Unlock()
		default:
			return err
		}
	}
	return nil
}

// forget removes a site as it is: nothing is driven anywhere.
func (k *Keeper) forget(ctx context.Context, r *site.Record) error {
	c := command(state.SiteKey{Tenant: r.Tenant, Name: r.Name}, &pb.ChangeSite{Site: r.Name, Forget: true})
	c.Actor = model.Self
	answers, err := k.cfg.Propose(ctx, c)
	if err == nil {
		err = answers[0].Err
	}
	if errors.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// Resting says that a plan is at work on the cluster whose site it is, so that the
// site's objects leave it alone.
func Resting(v *state.View, tenant, name string) bool {
	return slices.ContainsFunc(v.Clusters(tenant), func(cl *model.Cluster) bool {
		return ClusterSite(cl.ID) == name && busy(v, cl)
	})
}

// busy says whether an operation is under way on a cluster, or runs beside others.
func busy(v *state.View, cl *model.Cluster) bool {
	if op, ok := v.Operation(cl.Tenant, cl.Operation); ok && !op.Status.Ended() {
		return true
	}
	return slices.ContainsFunc(v.ActiveOperations(), func(op *model.Operation) bool {
		return op.Tenant == cl.Tenant && op.Cluster == cl.ID && op.Status == model.OpRunning
	})
}

func cutHost(host string) (cluster, node string, ok bool) {
	rest, ok := strings.CutPrefix(host, "node:")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// NodeOf finds the node of a host "node:CLUSTER/NODE": by the cluster's name or id,
// and the node's id, hostname or number.
func NodeOf(v *state.View, tenant, host string) (*model.Cluster, *model.Node, error) {
	cluster, node, ok := cutHost(host)
	if !ok {
		return nil, nil, problem.New(problem.NotFound, "%q is no node", host)
	}
	cl, ok := v.Cluster(tenant, cluster)
	if !ok {
		return nil, nil, problem.New(problem.NotFound, "there is no cluster %q", cluster)
	}
	for _, n := range v.Nodes(tenant, cl.ID) {
		if n.ID == node || n.Hostname == node || n.ShortName() == node || strconv.Itoa(n.Number) == node {
			return cl, n, nil
		}
	}
	return nil, nil, problem.New(problem.NotFound, "cluster %s has no node %q", cl.Name, node)
}

// NodeConfig returns how a node of a cluster is reached, as JSON of model.TaskConfig,
// and the machine that an agent must be on to reach it ("" for any). It reports false
// where there is no such node, or its machine is not confirmed yet.
func NodeConfig(v *state.View, tenant, host string) (config json.RawMessage, machine string, ok bool) {
	_, n, err := NodeOf(v, tenant, host)
	if err != nil || !n.Confirmed {
		return nil, "", false
	}
	b, err := json.Marshal(model.TaskConfig{Hostname: n.Hostname, IPAddresses: n.IPAddresses, SSHUser: n.SSHUser, Results: n.Results})
	machine = n.AgentMachine()
	return b, machine, err == nil
}
