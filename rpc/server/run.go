package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// ByRun names a run in the path.
type ByRun struct {
	ID string `path:"run" doc:"The run's id"`
}

func (s *server) details(r *profile.Run) api.RunDetails {
	var u profile.Usage
	u.Add(r, s.clock().UnixMilli())
	return api.RunDetails{Run: *r, NodeMinutes: u.NodeMinutes, ProvisioningMillis: u.ProvisioningMillis}
}

// run returns a run that the caller sees. Users see their own runs.
func (c *call) run(v View, id string) (*profile.Run, error) {
	r, ok := v.Run(c.who.Tenant, id)
	if !ok || c.who.Role == model.RoleUser && r.Actor != c.who.Actor {
		return nil, notFound("there is no run %q in tenant %s", id, c.who.Tenant)
	}
	return r, nil
}

func (s *server) runRoutes() {
	const tag, path, one = "runs", "/v1/runs", "/v1/runs/{run}"
	reads := rule{need: model.RoleRead}

	list(s, route{id: "listRuns", path: path, tag: tag, rule: reads, summary: "List runs, the newest first; their programs come without scripts and files"},
		func(_ context.Context, c *call, v View, in *struct {
			Program  string `query:"program" doc:"Only runs of this program"`
			Profile  string `query:"profile" doc:"Only runs with this profile"`
			Schedule string `query:"schedule" doc:"Only runs that this schedule started"`
			Status   string `query:"status" doc:"Only runs with one of these statuses of the program or the cluster, separated by commas"`
			Orphaned bool   `query:"orphaned" doc:"Only runs whose clusters may still exist although nothing manages them"`
			Offset   int    `query:"offset" minimum:"0" doc:"Number of results to skip"`
			Limit    int    `query:"limit" minimum:"0" doc:"Maximum number of results; 1000 if absent"`
		}) ([]api.RunDetails, int, error) {
			wanted := strings.FieldsFunc(strings.ToUpper(in.Status), func(r rune) bool { return r == ',' })
			var out []api.RunDetails
			total, limit := 0, min(in.Limit, maxPage)
			if limit == 0 {
				limit = defaultPage
			}
			ref := ""
			if in.Profile != "" {
				r, err := refOf(in.Profile)
				if err != nil {
					return nil, 0, err
				}
				ref = r.String()
			}
			for _, r := range v.Runs(c.who.Tenant) {
				switch {
				case c.who.Role == model.RoleUser && r.Actor != c.who.Actor,
					in.Program != "" && r.Program.Name != in.Program, ref != "" && r.Profile != ref,
					in.Schedule != "" && r.Schedule != in.Schedule, in.Orphaned && !r.Lost(),
					len(wanted) > 0 && !slices.Contains(wanted, string(r.Status)) && !slices.Contains(wanted, string(r.Cluster.Status)):
					continue
				}
				if total++; total > in.Offset && len(out) < limit {
					d := s.details(r)
					d.Program = d.Program.WithoutFiles(false)
					out = append(out, d)
				}
			}
			return out, total, nil
		})
	read(s, route{id: "getRun", path: one, tag: tag, rule: reads, summary: "Get a run with the status of its program and its cluster"},
		func(_ context.Context, c *call, v View, in *ByRun) (api.RunDetails, error) {
			r, err := c.run(v, in.ID)
			if err != nil {
				return api.RunDetails{}, err
			}
			return s.details(r), nil
		})
	s.startRoute(route{id: "startRun", path: path, tag: tag, summary: "Start a run of a stored program, or of a program in the body"})
	s.runOrders(tag, one)
	s.runLogRoute(tag, one)
}

// startRoute registers one of the two routes that start a run.
func (s *server) startRoute(r route) {
	r.method, r.status, r.rule = http.MethodPost, http.StatusAccepted, rule{need: model.RoleUser}
	start := func(ctx context.Context, c *call, program string, body raw[api.StartRun]) (api.RunDetails, api.Written, error) {
		req, err := body.value()
		if err != nil {
			return api.RunDetails{}, api.Written{}, err
		}
		if program != "" {
			if req.Inline != nil || req.Program != "" && req.Program != program {
				return api.RunDetails{}, api.Written{}, invalid(model.Faults{{Path: "program", Message: "the path names the program: omit program and inline"}})
			}
			req.Program = program
		}
		if (req.Program == "") == (req.Inline == nil) {
			return api.RunDetails{}, api.Written{}, invalid(model.Faults{{Path: "program", Message: "name a program, or give one inline"}})
		}
		if req.Nodes < 0 {
			return api.RunDetails{}, api.Written{}, invalid(model.Faults{{Path: "nodes", Message: "must not be negative"}})
		}
		id, w, err := s.Runs.Start(ctx, c.who, req)
		if err != nil {
			return api.RunDetails{}, w, err
		}
		v, err := s.now(ctx)
		if err != nil {
			return api.RunDetails{}, w, err
		}
		run, err := c.run(v, id)
		if err != nil {
			return api.RunDetails{}, w, err
		}
		return s.details(run), w, nil
	}
	if strings.Contains(r.path, "{program}") {
		r.optional = true
		write(s, r, func(ctx context.Context, c *call, in *struct {
			ByProgram
			Body raw[api.StartRun]
		}) (api.RunDetails, api.Written, error) {
			return start(ctx, c, in.Name, in.Body)
		})
		return
	}
	write(s, r, func(ctx context.Context, c *call, in *struct {
		Body raw[api.StartRun]
	}) (api.RunDetails, api.Written, error) {
		return start(ctx, c, "", in.Body)
	})
}

// runOrders registers the orders about runs.
func (s *server) runOrders(tag, one string) {
	runOrder(s, tag, one, "stop", model.RoleUser, "Stop a run's program; its nodes are deleted or kept",
		func(b api.StopBody) profile.Event {
			return profile.Event{Kind: profile.Stop, Keep: b.KeepAlive, Reason: b.Reason}
		})
	runOrder(s, tag, one, "deprovision", model.RoleUser, "Delete the nodes of a run that were kept",
		func(api.OrderBody) profile.Event { return profile.Event{Kind: profile.TearDown} })
	runOrder(s, tag, one, "extend", model.RoleUser, "Keep a run's nodes for longer",
		func(b api.ExtendBody) profile.Event { return profile.Event{Kind: profile.Extend, At: b.ExpireAt} })
	runOrder(s, tag, one, "force", model.RoleAdmin, "Record that a run's cluster is deprovisioned, or an orphan, whatever its status",
		func(b api.ForceBody) profile.Event {
			return profile.Event{Kind: profile.Force, To: b.To, Reason: b.Reason}
		})
	runOrder(s, tag, one, "retry", model.RoleUser, "Try again to delete what is left of a run's cluster",
		func(api.OrderBody) profile.Event { return profile.Event{Kind: profile.Retry} })
	runOrder(s, tag, one, "purge", model.RoleAdmin, "Remove a run from the list of orphans, because nothing is left of its cluster",
		func(b api.OrderBody) profile.Event { return profile.Event{Kind: profile.Purge, Reason: b.Reason} })
}

func runOrder[B any](s *server, tag, one, verb string, need model.Role, summary string, event func(B) profile.Event) {
	write(s, route{id: verb + "Run", method: http.MethodPost, path: one + "/" + verb, tag: tag, rule: rule{need: need}, optional: verb != "force" && verb != "extend", summary: summary},
		func(ctx context.Context, c *call, in *struct {
			ByRun
			Body raw[B]
		}) (api.RunDetails, api.Written, error) {
			b, err := in.Body.value()
			if err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
			v, err := s.now(ctx)
			if err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
			if _, err := c.run(v, in.ID); err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
			w, err := s.Runs.Order(ctx, c.who, in.ID, event(b))
			if err != nil {
				return api.RunDetails{}, w, err
			}
			if v, err = s.now(ctx); err != nil {
				return api.RunDetails{}, w, err
			}
			r, err := c.run(v, in.ID)
			if err != nil {
				return api.RunDetails{}, w, problem.New(problem.NotFound, "there is no run %q any more", in.ID)
			}
			return s.details(r), w, nil
		})
}
