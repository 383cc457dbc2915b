package search

import (
	"context"
	"errors"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// kinds are the types of things that are found, in the order in which equally good ones are answered.
var kinds = []struct {
	name string
	find func(context.Context, *search) error
}{
	{"cluster", state(clusters)},
	{"node", state(nodes)},
	{"operation", state(operations)},
	{"task", state(task)},
	{"run", state(runsOf)},
	{"template", definitions(access.TypeTemplate, model.KindClusterTemplate)},
	{"partialtemplate", definitions(access.TypeTemplate, model.KindPartialTemplate)},
	{"service", definitions(access.TypeService, model.KindService)},
	{"provider", definitions(access.TypeProvider, model.KindProvider)},
	{"hardwaretype", definitions(access.TypeHardwareType, model.KindHardwareType)},
	{"imagetype", definitions(access.TypeImageType, model.KindImageType)},
	{"providertype", definitions(access.TypePluginType, model.KindProviderType)},
	{"automatortype", definitions(access.TypePluginType, model.KindAutomatorType)},
	{"policy", definitions(access.TypePolicy, model.KindPolicies)},
	{"program", state(programs)},
	{"profile", state(profiles)},
	{"schedule", state(schedules)},
	{"site", sites},
	{"secret", state(secrets)},
	{"pluginresource", resources},
	{"user", state(users)},
	{"token", state(tokens)},
	{"tenant", state(tenants)},
	{"agent", state(agents)},
}

// state returns the function for things of the replicated state, which cannot fail.
func state(find func(*search)) func(context.Context, *search) error {
	return func(_ context.Context, x *search) error {
		find(x)
		return nil
	}
}

func clusters(x *search) {
	listed := x.s.ClusterFilter(x.c)
	for cl := range x.v.ClustersFrom(x.c.Who.Tenant, "") {
		x.add(api.Found{Name: cl.Name, ID: cl.ID, Status: string(cl.Status)}, func() bool { return listed(x.v, cl.ID) })
	}
}

func nodes(x *search) {
	cluster, listed := x.s.ClusterFilter(x.c), rest.NodeFilter(x.c, x.v)
	for n := range x.v.NodesOf(x.c.Who.Tenant) {
		x.add(api.Found{Name: n.Hostname, ID: n.ID, Cluster: n.Cluster}, func() bool { return cluster(x.v, n.Cluster) && listed(n) })
	}
}

func operations(x *search) {
	cluster := x.s.ClusterFilter(x.c)
	for op := range x.v.OperationsOf(x.c.Who.Tenant) {
		x.add(api.Found{Name: op.ID, Cluster: op.Cluster, Status: string(op.Status)}, func() bool { return cluster(x.v, op.Cluster) })
	}
}

// task finds a task by its whole id, because a search through all tasks of all plans would take too long.
func task(x *search) {
	if t, err := x.c.Task(x.v, x.text); err == nil {
		x.add(api.Found{Name: t.ID, Cluster: t.Cluster, Status: t.Status.String()}, func() bool { return true })
	}
}

func runsOf(x *search) {
	listed := x.c.RunFilter()
	for _, r := range x.v.Runs(x.c.Who.Tenant) {
		f := api.Found{Name: r.Program.Name, ID: r.ID, Status: string(r.Status)}
		if f.Name == "" {
			f.Name = r.ID
		}
		x.add(f, func() bool { return listed(r) })
	}
}

func definitions(on access.Type, kind model.Kind) func(context.Context, *search) error {
	return state(func(x *search) {
		listed := rest.NameFilter(x.c, on)
		for _, d := range x.v.Definitions(x.c.Who.Tenant, kind) {
			x.add(api.Found{Name: d.Name}, func() bool { return listed(d.Name) })
		}
	})
}

// names adds things that have nothing but a name.
func names[T any](x *search, on access.Type, all []T, name func(T) string) {
	listed := rest.NameFilter(x.c, on)
	for _, item := range all {
		x.add(api.Found{Name: name(item)}, func() bool { return listed(name(item)) })
	}
}

func programs(x *search) {
	names(x, access.TypeProgram, x.v.Programs(x.c.Who.Tenant), func(p profile.Program) string { return p.Name })
}

func profiles(x *search) {
	names(x, access.TypeProfile, x.v.Profiles(x.c.Who.Tenant, true), func(p profile.Profile) string { return p.Ref().String() })
}

func schedules(x *search) {
	names(x, access.TypeSchedule, x.v.Schedules(x.c.Who.Tenant), func(s profile.Schedule) string { return s.Name })
}

func secrets(x *search) {
	names(x, access.TypeSecret, x.v.SecretNames(x.c.Who.Tenant), func(name string) string { return name })
}

func users(x *search) {
	names(x, access.TypeUser, x.v.Users(x.c.Who.Tenant), func(u model.User) string { return u.Name })
}

func tenants(x *search) {
	names(x, access.TypeTenant, x.v.Tenants(), func(t model.Tenant) string { return t.Name })
}

func tokens(x *search) {
	listed := rest.NameFilter(x.c, access.TypeToken)
	for _, t := range x.v.Tokens(x.c.Who.Tenant) {
		x.add(api.Found{Name: t.Actor, ID: t.ID}, func() bool { return listed(t.ID) })
	}
}

func agents(x *search) {
	listed := rest.NameFilter(x.c, access.TypeAgent)
	for _, a := range x.v.Agents() {
		x.add(api.Found{Name: a.Name, ID: a.ID}, func() bool { return listed(a.ID) })
	}
}

// sites finds sites. Only the leader knows them, so that a stale read of another agent lacks them.
func sites(ctx context.Context, x *search) error {
	all, err := x.s.Sites.List(ctx, x.c.Who.Tenant)
	listed := rest.NameFilter(x.c, access.TypeSite)
	for _, o := range all {
		x.add(api.Found{Name: o.Name}, func() bool { return listed(o.Name) })
	}
	return unlessFollower(err)
}

// resources finds plugin resources. Only the leader knows them, so that a stale read of another agent lacks them.
func resources(_ context.Context, x *search) error {
	all, _, err := x.s.Resources.List(x.c.Who.Tenant)
	listed := rest.NameFilter(x.c, access.TypePluginResource)
	seen := map[model.ResourceKey]bool{}
	for _, r := range all {
		if !seen[r.ResourceKey] {
			seen[r.ResourceKey] = true
			x.add(api.Found{Name: r.Name, ID: r.ResourceKey.String()}, func() bool { return listed(r.Name) })
		}
	}
	return unlessFollower(err)
}

func unlessFollower(err error) error {
	if errors.Is(err, problem.NoLeader) {
		return nil
	}
	return err
}
