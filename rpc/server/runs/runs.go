package runs

import (
	"context"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/listing"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByRun names a run in the path.
type ByRun struct {
	ID string `path:"run" doc:"The run's id"`
}

func details(s *rest.Server, r *profile.Run) api.RunDetails {
	var u profile.Usage
	u.Add(r, s.Millis())
	return api.RunDetails{Run: *r, NodeMinutes: u.NodeMinutes, ProvisioningMillis: u.ProvisioningMillis}
}

// wrote returns the answer to a write of a run.
func wrote(s *rest.Server, w api.Written) (api.RunDetails, api.Written, error) {
	r, err := rest.Wrote(w, w.Effect.Run)
	if err != nil {
		return api.RunDetails{}, w, err
	}
	return details(s, &r), w, nil
}

func runRoutes(s *rest.Server) {
	const tag, path, one = "runs", "/v1/runs", "/v1/runs/{run}"

	rest.Pages(
		s,
		rest.Route{
			ID:      "listRuns",
			Path:    path,
			Tag:     tag,
			Order:   "-created,-id",
			Paged:   true,
			Summary: "List runs, the newest first; their programs come without scripts and files",
		},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			Program  string `query:"program" doc:"Only runs of this program"`
			Profile  string `query:"profile" doc:"Only runs with this profile"`
			Schedule string `query:"schedule" doc:"Only runs that this schedule started"`
			Status   string `query:"status" doc:"Only runs with one of these statuses of the program or the cluster, separated by commas"`
			Orphaned bool   `query:"orphaned" doc:"Only runs whose clusters may still exist although nothing manages them"`
		}) (out listing.Source[*profile.Run, api.RunDetails], err error) {
			wanted := strings.FieldsFunc(strings.ToUpper(in.Status), func(r rune) bool { return r == ',' })
			ref := ""
			if in.Profile != "" {
				r, err := refOf(in.Profile)
				if err != nil {
					return out, err
				}
				ref = r.String()
			}
			listed := c.RunFilter()
			return listing.Source[*profile.Run, api.RunDetails]{
				All: func(string) iter.Seq[*profile.Run] {
					return slices.Values(slices.DeleteFunc(v.Runs(c.Who.Tenant), func(r *profile.Run) bool {
						return !listed(r) ||
							in.Program != "" && r.Program.Name != in.Program || ref != "" && r.Profile != ref ||
							in.Schedule != "" && r.Schedule != in.Schedule || in.Orphaned && !r.Lost() ||
							len(wanted) > 0 && !slices.Contains(wanted, string(r.Status)) && !slices.Contains(wanted, string(r.Cluster.Status))
					}))
				},
				Sorted: true,
				Show: func(r *profile.Run) api.RunDetails {
					d := details(s, r)
					d.Program = d.Program.WithoutFiles(false)
					return d
				},
			}, nil
		},
	)
	rest.Read(
		s,
		rest.Route{ID: "getRun", Path: one, Tag: tag, Summary: "Get a run with the status of its program and its cluster"},
		func(_ context.Context, c *rest.Call, v rest.View, in *ByRun) (api.RunDetails, error) {
			r, err := c.Run(v, in.ID)
			if err != nil {
				return api.RunDetails{}, err
			}
			return details(s, r), nil
		},
	)
	startRoute(s, rest.Route{ID: "startRun", Path: path, Tag: tag, Summary: "Start a run of a stored program, or of a program in the body"})
	runOrders(s, tag, one)
	runLogRoute(s, tag, one)
}

// startRoute registers one of the two routes that start a run.
func startRoute(s *rest.Server, r rest.Route) {
	r.Method, r.Status, r.Rule.Later = http.MethodPost, http.StatusAccepted, true
	start := func(ctx context.Context, c *rest.Call, program string, body rest.Raw[api.StartRun]) (api.RunDetails, api.Written, error) {
		req, err := body.Value()
		if err != nil {
			return api.RunDetails{}, api.Written{}, err
		}
		if program != "" {
			if req.Inline != nil || req.Program != "" && req.Program != program {
				return api.RunDetails{}, api.Written{}, rest.Invalid(
					model.Faults{{Path: "program", Message: "the path names the program: omit program and inline"}},
				)
			}
			req.Program = program
		}
		if (req.Program == "") == (req.Inline == nil) {
			return api.RunDetails{}, api.Written{}, rest.Invalid(model.Faults{{Path: "program", Message: "name a program, or give one inline"}})
		}
		if req.Nodes < 0 {
			return api.RunDetails{}, api.Written{}, rest.Invalid(model.Faults{{Path: "nodes", Message: "must not be negative"}})
		}
		v, done, err := s.Before(ctx, c)
		if err != nil {
			return api.RunDetails{}, api.Written{}, err
		}
		if done == nil {
			if err := mayStart(c, v, req.Program); err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
			if err := profile.UnreadKeys(req.Runtime, profile.OfRun, v.Provisioners(c.Who.Tenant)).Err(); err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
		}
		w, err := s.Runs.Start(ctx, c.Who, req)
		if err != nil {
			return api.RunDetails{}, w, err
		}
		return wrote(s, w)
	}
	if strings.Contains(r.Path, "{program}") {
		r.Optional = true
		rest.Write(s, r, func(ctx context.Context, c *rest.Call, in *struct {
			ByProgram
			Body rest.Raw[api.StartRun]
		}) (api.RunDetails, api.Written, error) {
			return start(ctx, c, in.Name, in.Body)
		})
		return
	}
	rest.Write(s, r, func(ctx context.Context, c *rest.Call, in *struct {
		Body rest.Raw[api.StartRun]
	}) (api.RunDetails, api.Written, error) {
		return start(ctx, c, "", in.Body)
	})
}

// mayStart returns nil if the caller may start a run, and execute the program, unless it is "".
func mayStart(c *rest.Call, v rest.View, program string) error {
	if err := c.MayStartRun(); err != nil || program == "" {
		return err
	}
	if _, ok := v.Program(c.Who.Tenant, program, 0); !ok {
		return nil // the service refuses it
	}
	return c.MayNamed(access.Execute, access.TypeProgram, program)
}

// runOrders registers the orders about runs.
func runOrders(s *rest.Server, tag, one string) {
	runOrder(s, tag, one, "stop", "Stop a run's program; its nodes are deleted or kept",
		func(b api.StopBody) profile.Event {
			return profile.Event{Kind: profile.Stop, Keep: b.KeepAlive, Reason: b.Reason}
		})
	runOrder(s, tag, one, "deprovision", "Delete the nodes of a run that were kept",
		func(api.OrderBody) profile.Event { return profile.Event{Kind: profile.TearDown} })
	runOrder(s, tag, one, "extend", "Keep a run's nodes for longer",
		func(b api.ExtendBody) profile.Event { return profile.Event{Kind: profile.Extend, At: b.ExpireAt} })
	runOrder(s, tag, one, "force", "Record that a run's cluster is deprovisioned, or an orphan, whatever its status",
		func(b api.ForceBody) profile.Event {
			return profile.Event{Kind: profile.Force, To: b.To, Reason: b.Reason}
		})
	runOrder(s, tag, one, "retry", "Try again to delete what is left of a run's cluster",
		func(api.OrderBody) profile.Event { return profile.Event{Kind: profile.Retry} })
	runOrder(s, tag, one, "purge", "Remove a run from the list of orphans, because nothing is left of its cluster",
		func(b api.OrderBody) profile.Event { return profile.Event{Kind: profile.Purge, Reason: b.Reason} })
}

// deletes reports whether an order deletes a run's cluster, or lets it be deleted earlier.
func deletes(r *profile.Run, e profile.Event) bool {
	switch e.Kind {
	case profile.Stop:
		return !e.Keep || r.Status == profile.Pending
	case profile.Extend:
		return e.At != 0 && (r.Cluster.ExpiresAt == 0 || e.At < r.Cluster.ExpiresAt)
	case profile.TearDown, profile.Retry:
		return true
	default:
		return false
	}
}

func runOrder[B any](s *rest.Server, tag, one, verb, summary string, event func(B) profile.Event) {
	rest.Write(
		s,
		rest.Route{
			ID:       verb + "Run",
			Method:   http.MethodPost,
			Path:     one + "/" + verb,
			Tag:      tag,
			Optional: verb != "force" && verb != "extend",
			Summary:  summary,
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			ByRun
			Body rest.Raw[B]
		}) (api.RunDetails, api.Written, error) {
			b, err := in.Body.Value()
			if err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
			v, done, err := s.Before(ctx, c)
			if err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
			if done != nil {
				return wrote(s, *done)
			}
			r, err := c.Run(v, in.ID)
			if err != nil {
				return api.RunDetails{}, api.Written{}, err
			}
			e := event(b)
			if deletes(r, e) {
				if err := c.MayDelete(v, r.Cluster.Name); err != nil {
					return api.RunDetails{}, api.Written{}, err
				}
			}
			w, err := s.Runs.Order(ctx, c.Who, in.ID, e)
			if err != nil {
				return api.RunDetails{}, w, err
			}
			return wrote(s, w)
		},
	)
}
