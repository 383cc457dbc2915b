package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/builtin"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// Sites asks the leader's site controller.
type Sites struct {
	Supervisor Supervisor
	// HostExec decides who may act on control hosts.
	HostExec hostexec.Rules
}

func (s *Sites) controller() (*sites.Controller, error) {
	_, l, err := leader(s.Supervisor)
	if err != nil {
		return nil, err
	}
	return l.Sites, nil
}

// List returns all sites of a tenant.
func (s *Sites) List(ctx context.Context, tenant string) ([]site.Overview, error) {
	k, err := s.controller()
	if err != nil {
		return nil, err
	}
	return k.List(ctx, tenant)
}

// Status returns the status of a site's objects. With another after than 0 it waits for
// another revision.
func (s *Sites) Status(ctx context.Context, tenant, name string, after uint64) (site.SiteStatus, error) {
	k, err := s.controller()
	if err != nil {
		return site.SiteStatus{}, err
	}
	return k.Status(ctx, tenant, name, after)
}

// Document returns the document of a generation; 0 means the newest.
func (s *Sites) Document(tenant, name string, generation uint64) (*site.Document, error) {
	k, err := s.controller()
	if err != nil {
		return nil, err
	}
	return k.Document(tenant, name, generation)
}

// History returns the generations that are kept.
func (s *Sites) History(tenant, name string) ([]site.PastGeneration, error) {
	k, err := s.controller()
	if err != nil {
		return nil, err
	}
	return k.History(tenant, name)
}

// Graph returns a site's objects and their dependencies.
func (s *Sites) Graph(tenant, name string) (*site.Graph, error) {
	k, err := s.controller()
	if err != nil {
		return nil, err
	}
	return k.Graph(tenant, name)
}

// Explain returns the reasons why an object waits, up to the root cause.
func (s *Sites) Explain(tenant, name, object string) ([]site.Reason, error) {
	k, err := s.controller()
	if err != nil {
		return nil, err
	}
	return k.Explain(tenant, name, object)
}

// Preview returns the changes that the application of a document would make.
func (s *Sites) Preview(who model.Caller, doc *site.Document) (site.ChangePreview, error) {
	k, err := s.controller()
	if err != nil {
		return site.ChangePreview{}, err
	}
	if err := s.permit(who, doc); err != nil {
		return site.ChangePreview{}, err
	}
	return k.Preview(who, doc)
}

// permit returns an error if the caller may not act with one of a document's objects on its host.
func (s *Sites) permit(who model.Caller, doc *site.Document) error {
	m, err := voter(s.Supervisor)
	if err != nil {
		return err
	}
	v := m.Machine.View()
	for _, o := range doc.Objects {
		automator, _ := builtin.Automator(o.Type)
		if err := s.HostExec.Ask(who, hostexec.Host(o.Host, automator)); err != nil {
			return fmt.Errorf("object %s: %w", o.Name, err)
		}
		if err := s.permitNode(v, who, o.Host); err != nil {
			return fmt.Errorf("object %s: %w", o.Name, err)
		}
	}
	return nil
}

// permitNode returns an error unless the caller may operate the cluster of a host
// "node:CLUSTER/NODE", and may have its work done where its nodes are. All but administrators operate their own clusters, and see no
// others. They name a cluster by its id, because its name may belong to another user's cluster later; so do administrators
// where that may be one on control hosts.
func (s *Sites) permitNode(v *state.View, who model.Caller, host string) error {
	cluster, isNode := sites.ClusterOf(host)
	if !isNode || hostexec.May(who) {
		return nil
	}
	cl, ok := v.Cluster(who.Tenant, cluster)
	if ok {
		if err := s.HostExec.Among(v.Agents).Ask(who, hostexec.Provider(cl.Provider.ProviderType, cl.Provider.Provisioner)); err != nil {
			return err
		}
	}
	all := who.Role == model.RoleAdmin
	switch {
	case all && controlHosts(v, who.Tenant, s.HostExec) == "":
	case !ok || cl.Owner != who.Actor && !all:
		return problem.New(problem.Forbidden, "%s: there is no cluster %q that %s may operate", host, cluster, who.Actor)
	case cl.ID != cluster:
		return problem.New(problem.Forbidden, "%s: name the cluster by its id, %s, because its name may belong to another user's cluster later",
			host, cl.ID)
	}
	return nil
}

// permitChange is like permit, for a change of a site: of objects in the new document, and of those
// that are there now. doc is nil if the site is deleted.
func (s *Sites) permitChange(k *sites.Controller, who model.Caller, name string, doc *site.Document) error {
	if doc != nil {
		if err := s.permit(who, doc); err != nil {
			return err
		}
	}
	now, err := k.Document(who.Tenant, name, 0)
	if errors.Is(err, problem.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.permit(who, now)
}

// Apply starts a generation with a document. unchanged is true if the document is in force
// already.
func (s *Sites) Apply(ctx context.Context, who model.Caller, doc *site.Document) (p site.ChangePreview, unchanged bool, w api.Written,
	err error) {
	return s.apply(who, doc.Name, func(k *sites.Controller) (sites.Applied, error) {
		if err := s.permitChange(k, who, doc.Name, doc); err != nil {
			return sites.Applied{}, err
		}
		return k.Apply(ctx, who, doc)
	})
}

// Revert starts a generation with the content of an earlier one; 0 means the one before.
func (s *Sites) Revert(ctx context.Context, who model.Caller, name string, to uint64) (p site.ChangePreview, unchanged bool, w api.Written,
	err error) {
	return s.apply(who, name, func(k *sites.Controller) (sites.Applied, error) {
		m, err := voter(s.Supervisor)
		if err != nil {
			return sites.Applied{}, err
		}
		doc, _, err := sites.Earlier(m.Machine.View(), who.Tenant, name, to)
		if err != nil {
			return sites.Applied{}, err
		}
		if err := s.permitChange(k, who, name, doc); err != nil {
			return sites.Applied{}, err
		}
		return k.Revert(ctx, who, name, to)
	})
}

// Delete takes all objects down in order and forgets the site.
func (s *Sites) Delete(ctx context.Context, who model.Caller, name string) (site.ChangePreview, api.Written, error) {
	p, _, w, err := s.apply(who, name, func(k *sites.Controller) (sites.Applied, error) {
		if err := s.permitChange(k, who, name, nil); err != nil {
			return sites.Applied{}, err
		}
		return k.Delete(ctx, who, name)
	})
	return p, w, err
}

// apply makes a change to a site, unless the request was carried out before. Then the answer names the
// generation that began, without its changes.
func (s *Sites) apply(who model.Caller, name string, change func(*sites.Controller) (sites.Applied, error)) (p site.ChangePreview,
	unchanged bool, w api.Written, err error) {
	m, l, err := leader(s.Supervisor)
	if err != nil {
		return p, false, w, err
	}
	w, repeated := (view{View: m.Machine.View()}).Answered(who)
	var a sites.Applied
	if !repeated {
		a, err = change(l.Sites)
		w = written(a.Answer)
	}
	if w.Repeated {
		return site.ChangePreview{
			Site: name, Generation: w.Effect.Generation, Added: []string{}, Changed: []string{}, Removed: []string{}, Rewired: []string{},
			Rounds: [][]site.TransitionStep{}, Hosts: [][]string{},
		}, false, w, err
	}
	return a.Preview, a.Unchanged, w, err
}

// Check compares all objects with the real things and changes nothing.
func (s *Sites) Check(ctx context.Context, tenant, name string) ([]site.Finding, error) {
	k, err := s.controller()
	if err != nil {
		return nil, err
	}
	return k.Probe(ctx, tenant, name)
}

// Release records that an object on a lost host holds nothing.
func (s *Sites) Release(ctx context.Context, who model.Caller, name, object, reason string) (api.Written, error) {
	m, l, err := leader(s.Supervisor)
	if err != nil {
		return api.Written{}, err
	}
	if w, ok := (view{View: m.Machine.View()}).Answered(who); ok {
		return w, nil
	}
	a, err := l.Sites.Release(ctx, who, name, object, reason)
	return written(a), err
}
