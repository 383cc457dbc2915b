package sites

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// clusterPrefix begins the name of the site of a cluster.
const clusterPrefix = "cluster-"

// ClusterSite returns the name of the site that keeps a cluster in shape. It consists of
// the change objects of the cluster's services.
func ClusterSite(cluster string) string { return clusterPrefix + cluster }

// followCluster brings the site of a cluster up to the cluster's services and nodes, and
// adds the sites that have hosts in the cluster. Faults are logged: the author of a
// service has to correct them.
func (c *Controller) followCluster(ctx context.Context, id string) (time.Time, error) {
	v := c.cfg.Machine.View()
	cl, ok := v.ClusterByID(id)
	if !ok {
		return time.Time{}, nil
	}
	c.addSitesOn(v, cl)
	name := ClusterSite(cl.ID)
	r, has := v.Site(cl.Tenant, name)
	if cl.Status == model.ClusterTerminated {
		if has { // its nodes are gone with everything on them
			return time.Time{}, forgetSite(ctx, c.cfg.Propose, r)
		}
		return time.Time{}, nil
	}
	if cl.Status == model.ClusterPending || !has && !site.Carries(cl) || busy(v, cl) {
		return time.Time{}, nil // the end of the operation adds the cluster again
	}
	doc, err := site.OfCluster(name, cl, v.Nodes(cl.Tenant, cl.ID))
	if err != nil {
		c.cfg.Logger.Warn("the change objects of a cluster's services have macros that cannot be expanded", "cluster", cl.ID, "error", err)
		return time.Time{}, nil
	}
	for i := range doc.Objects {
		if o := &doc.Objects[i]; len(o.Refs()) > 0 { // a macro may have put it together: only the mesh writes references
			c.cfg.Logger.Warn("a change object of a cluster's services has the name of an encrypted value", "cluster", cl.ID, "object", o.Name)
			return time.Time{}, nil
		}
	}
	if len(doc.Objects) == 0 && !has {
		return time.Time{}, nil
	}
	// Before the attempt, so that a generation that comes into force meanwhile adds the
	// cluster again.
	c.block(cl.ID, true)
	who := model.Caller{Tenant: cl.Tenant, Actor: model.Self, Role: model.RoleAdmin}
	_, err = c.apply(ctx, who, doc, 0, false)
	var faults model.Faults
	switch {
	case errors.Is(err, problem.Conflict):
		return time.Time{}, nil // another generation is on its way
	case errors.Is(err, problem.Stale):
		return time.Now().Add(retryPause), nil
	case errors.As(err, &faults):
		c.cfg.Logger.Warn("the change objects of a cluster's services contradict each other", "cluster", cl.ID, "error", err)
		err = nil
	}
	c.block(cl.ID, false)
	return time.Time{}, err
}

// block notes whether a cluster's site has to follow the cluster once the generation that
// is on its way is in force.
func (c *Controller) block(cluster string, blocked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if blocked {
		c.blocked[cluster] = true
	} else {
		delete(c.blocked, cluster)
	}
}

// addSitesOn adds the sites that have nodes of a cluster as hosts: the way to the nodes,
// and whether the sites are paused, may have changed.
func (c *Controller) addSitesOn(v *state.View, cl *model.Cluster) {
	for _, r := range v.Sites(cl.Tenant) {
		if r.Name == ClusterSite(cl.ID) || slices.ContainsFunc(r.Hosts, func(h site.Host) bool {
			name, _, ok := cutHost(h.Name)
			return ok && (name == cl.ID || name == cl.Name)
		}) {
			c.queue.Add(key{site: state.SiteKey{Tenant: r.Tenant, Name: r.Name}})
		}
	}
}

// forgetSite removes a site without driving its objects to any state.
func forgetSite(ctx context.Context, propose func(context.Context, ...*pb.Command) ([]state.Answer, error), r *site.Record) error {
	cmd := command(state.SiteKey{Tenant: r.Tenant, Name: r.Name},
		&pb.ChangeSite{Site: r.Name, Change: &pb.ChangeSite_Forget{Forget: &pb.ForgetSite{}}})
	cmd.Actor = model.Self
	answers, err := propose(ctx, cmd)
	if err == nil {
		err = answers[0].Err
	}
	if errors.Is(err, problem.NotFound) {
		return nil
	}
	return err
}

// Resting reports whether the mesh is held, or an operation works on the cluster whose site this is. The
// site's objects must not act then.
func Resting(v *state.View, tenant, name string) bool {
	return v.Hold() != nil || slices.ContainsFunc(v.Clusters(tenant), func(cl *model.Cluster) bool {
		return ClusterSite(cl.ID) == name && busy(v, cl)
	})
}

// busy reports whether an operation is under way on a cluster, be it the main one or a
// concurrent one.
func busy(v *state.View, cl *model.Cluster) bool {
	if op, ok := v.Operation(cl.Tenant, cl.Operation); ok && !op.Status.Ended() {
		return true
	}
	return slices.ContainsFunc(v.ActiveOperations(), func(op *model.Operation) bool {
		return op.Tenant == cl.Tenant && op.Cluster == cl.ID && op.Status == model.OpRunning
	})
}

// cutHost splits the name of a host "node:CLUSTER/NODE".
func cutHost(host string) (cluster, node string, ok bool) {
	rest, ok := strings.CutPrefix(host, "node:")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// ClusterOf returns the name or id of the cluster of a host "node:CLUSTER/NODE". It reports false for
// other hosts.
func ClusterOf(host string) (string, bool) {
	cluster, _, ok := cutHost(host)
	return cluster, ok
}

// NodeOf returns the node of a host "node:CLUSTER/NODE". CLUSTER is the cluster's name or
// id, NODE the node's id, hostname or number.
func NodeOf(v *state.View, tenant, host string) (*model.Cluster, *model.Node, error) {
	cluster, node, ok := cutHost(host)
	if !ok {
		return nil, nil, problem.New(problem.NotFound, "%q is not a node", host)
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

// NodeAccess returns a function for Config.Node. It reports false where there is no such node, or
// its machine is not confirmed yet. The opener decrypts the results of the machine's plugin; those that
// it cannot decrypt stay references, with which nobody reaches the node.
func NodeAccess(o state.Opener) func(v *state.View, tenant, host string) (access *site.Access, machine string, ok bool) {
	return func(v *state.View, tenant, host string) (access *site.Access, machine string, ok bool) {
		_, n, err := NodeOf(v, tenant, host)
		if err != nil || !n.Confirmed {
			return nil, "", false
		}
		access = &site.Access{Hostname: n.Hostname, IPAddresses: n.IPAddresses, SSHUser: n.SSHUser, Results: n.Results}
		if opened, err := o.OpenFields(v.SealedView, tenant, n.Results); err == nil {
			access.Results = opened
		}
		return access, n.AgentMachine(), true
	}
}
