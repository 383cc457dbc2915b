package runs

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// ByProgram names a program in the path.
type ByProgram struct {
	Name string `path:"program" doc:"The program's name"`
}

func programRoutes(s *rest.Server) {
	const tag, path, one = "programs", "/v1/programs", "/v1/programs/{program}"

	rest.List(s, rest.Route{ID: "listPrograms", Order: "name", Path: path, Tag: tag, Summary: "List the latest version of every program"},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]profile.Program, error) {
			return rest.Listed(c, access.TypeProgram, v.Programs(c.Who.Tenant), func(p profile.Program) string { return p.Name })
		})
	rest.Read(s, rest.Route{ID: "getProgram", Path: one, Tag: tag, Summary: "Get a program, with what its runs have used"},
		func(_ context.Context, c *rest.Call, v rest.View, in *struct {
			ByProgram
			Version int `query:"version" minimum:"0" doc:"The version; 0 or absent: the latest"`
		}) (api.ProgramDetails, error) {
			p, ok := v.Program(c.Who.Tenant, in.Name, in.Version)
			if !ok {
				return api.ProgramDetails{}, rest.NotFound("there is no program %q in tenant %s", in.Name, c.Who.Tenant)
			}
			return api.ProgramDetails{Program: p, Usage: v.ProgramUsage(c.Who.Tenant, in.Name, s.Millis())}, nil
		})
	rest.Write(
		s,
		rest.Route{ID: "putProgram", Method: http.MethodPut, Path: one, Tag: tag, Rule: rest.Rule{Later: true},
			Summary: "Write a new version of a program"},
		func(ctx context.Context, c *rest.Call, in *struct {
			ByProgram
			Body rest.Raw[profile.Program]
		}) (profile.Program, api.Written, error) {
			p, err := in.Body.Value()
			if err != nil {
				return p, api.Written{}, err
			}
			if p.Name != "" && p.Name != in.Name {
				return p, api.Written{}, rest.Invalid(
					model.Faults{{Path: "name", Message: fmt.Sprintf("is %q, but the path says %q: they must be equal", p.Name, in.Name)}},
				)
			}
			p.Name, p.Version = in.Name, 0
			p.Complete()
			if fs := p.Check(); len(fs) > 0 {
				return p, api.Written{}, fs
			}
			v, err := s.Latest(ctx)
			if err != nil {
				return p, api.Written{}, err
			}
			_, there := v.Program(c.Who.Tenant, in.Name, 0)
			if err := c.MayWrite(access.TypeProgram, in.Name, there); err != nil {
				return p, api.Written{}, err
			}
			for i := range p.Steps {
				if err := v.MayUseSecrets(c.Who, p.Steps[i].Env); err != nil {
					return p, api.Written{}, err
				}
			}
			w, err := s.Runs.ChangeSetting(ctx, c.Who, api.Setting{Kind: "program", Name: in.Name, Order: "put", Value: p})
			if err != nil {
				return p, w, err
			}
			made, err := rest.Wrote(w, w.Effect.Program)
			p.Version, p.Author = made.Version, c.Who.Actor
			return p, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "deleteProgram",
			Method:  http.MethodDelete,
			Path:    one,
			Tag:     tag,
			Summary: "Delete a program with all its versions (refused while it has schedules)",
		},
		func(ctx context.Context, c *rest.Call, in *ByProgram) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.Who, api.Setting{Kind: "program", Name: in.Name, Order: "delete"})
			return api.Deleted{Name: in.Name}, w, err
		},
	)
	startRoute(s, rest.Route{ID: "startProgram", Path: one + "/start", Tag: tag, Summary: "Start a run of a program"})
}

// BySchedule names a schedule in the path.
type BySchedule struct {
	Name string `path:"schedule" doc:"The schedule's name"`
}

func scheduleDetails(s *rest.Server, x profile.Schedule) api.ScheduleDetails {
	out := api.ScheduleDetails{Schedule: x}
	if x.Status != profile.Disabled && x.Status != profile.SuspendedSchedule {
		_, _, out.Next = x.Due(s.Millis())
	}
	return out
}

func scheduleRoutes(s *rest.Server) {
	const tag, path, one = "schedules", "/v1/schedules", "/v1/schedules/{schedule}"

	rest.List(s, rest.Route{ID: "listSchedules", Order: "name", Path: path, Tag: tag, Summary: "List schedules"},
		func(_ context.Context, c *rest.Call, v rest.View, _ *rest.None) ([]api.ScheduleDetails, error) {
			list, err := rest.Listed(c, access.TypeSchedule, v.Schedules(c.Who.Tenant), func(x profile.Schedule) string { return x.Name })
			out := []api.ScheduleDetails{}
			for _, x := range list {
				out = append(out, scheduleDetails(s, x))
			}
			return out, err
		})
	rest.Read(s, rest.Route{ID: "getSchedule", Path: one, Tag: tag, Summary: "Get a schedule"},
		func(_ context.Context, c *rest.Call, v rest.View, in *BySchedule) (api.ScheduleDetails, error) {
			x, ok := v.Schedule(c.Who.Tenant, in.Name)
			if !ok {
				return api.ScheduleDetails{}, rest.NotFound("there is no schedule %q in tenant %s", in.Name, c.Who.Tenant)
			}
			return scheduleDetails(s, x), nil
		})
	rest.Write(
		s,
		rest.Route{ID: "putSchedule", Method: http.MethodPut, Path: one, Tag: tag, Rule: rest.Rule{Later: true},
			Summary: "Create or change a schedule"},
		func(ctx context.Context, c *rest.Call, in *struct {
			BySchedule
			Body rest.Raw[profile.Schedule]
		}) (api.ScheduleDetails, api.Written, error) {
			x, err := in.Body.Value()
			if err != nil {
				return api.ScheduleDetails{}, api.Written{}, err
			}
			x.Name, x.Tenant, x.Status, x.Actor, x.LastRun, x.Message = in.Name, "", "", "", "", ""
			x.Last, x.Waits, x.Skipped, x.Version = 0, 0, 0, 0
			x.Complete()
			v, err := s.Latest(ctx)
			if err != nil {
				return api.ScheduleDetails{}, api.Written{}, err
			}
			fs := append(x.Check(), profile.UnreadKeys(x.Properties, profile.OfRun, v.Provisioners(c.Who.Tenant))...)
			fs = append(fs, outOfRange(v, c.Who.Tenant, &x)...)
			if err = fs.Err(); err == nil {
				_, there := v.Schedule(c.Who.Tenant, in.Name)
				err = c.MayWrite(access.TypeSchedule, in.Name, there)
			}
			if err == nil {
				err = mayStart(c, v, x.Program)
			}
			if err == nil {
				err = v.MayUseSecrets(c.Who, x.Properties)
			}
			if err != nil {
				return api.ScheduleDetails{}, api.Written{}, err
			}
			w, err := s.Runs.ChangeSetting(ctx, c.Who, api.Setting{Kind: "schedule", Name: in.Name, Order: "put", Value: x})
			if err != nil {
				return api.ScheduleDetails{}, w, err
			}
			x, err = rest.Wrote(w, w.Effect.Schedule)
			return scheduleDetails(s, x), w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "deleteSchedule",
			Method:  http.MethodDelete,
			Path:    one,
			Tag:     tag,
			Summary: "Delete a schedule; its runs continue",
		},
		func(ctx context.Context, c *rest.Call, in *BySchedule) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.Who, api.Setting{Kind: "schedule", Name: in.Name, Order: "delete"})
			return api.Deleted{Name: in.Name}, w, err
		},
	)
	for _, order := range []string{"enable", "disable"} {
		rest.Write(
			s,
			rest.Route{
				ID:      order + "Schedule",
				Method:  http.MethodPost,
				Path:    one + "/" + order,
				Tag:     tag,
				Summary: "Enable or disable a schedule; runs that were due while it was disabled are not made up for",
			},
			func(ctx context.Context, c *rest.Call, in *BySchedule) (api.Done, api.Written, error) {
				w, err := s.Runs.ChangeSetting(ctx, c.Who, api.Setting{Kind: "schedule", Name: in.Name, Order: order})
				return api.Done{Done: true}, w, err
			},
		)
	}
}

// outOfRange returns the faults of properties that the runs of a schedule would have now, and that their profile does not allow.
func outOfRange(v rest.View, tenant string, x *profile.Schedule) model.Faults {
	l := v.Levels(tenant, x.Program)
	l[profile.OfRun] = x.Properties
	ref, err := l.Choose()
	if err != nil {
		return nil // it is a fault of its own
	}
	p, ok := v.Profile(tenant, ref)
	if !ok {
		return nil // the state refuses the schedule
	}
	final, _ := p.Final(l)
	return profile.OutOfRange(final)
}
