package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// ByProgram names a program in the path.
type ByProgram struct {
	Name string `path:"program" doc:"The program's name"`
}

func (s *server) programRoutes() {
	const tag, path, one = "programs", "/v1/programs", "/v1/programs/{program}"
	reads, writes := rule{need: model.RoleRead}, rule{need: model.RoleUser}

	read(s, route{id: "listPrograms", path: path, tag: tag, rule: reads, summary: "List the latest version of every program"},
		func(_ context.Context, c *call, v View, _ *none) ([]profile.Program, error) {
			return append([]profile.Program{}, v.Programs(c.who.Tenant)...), nil
		})
	read(s, route{id: "getProgram", path: one, tag: tag, rule: reads, summary: "Get a program, with what its runs have used"},
		func(_ context.Context, c *call, v View, in *struct {
			ByProgram
			Version int `query:"version" minimum:"0" doc:"The version; 0 or absent: the latest"`
		}) (api.ProgramDetails, error) {
			p, ok := v.Program(c.who.Tenant, in.Name, in.Version)
			if !ok {
				return api.ProgramDetails{}, notFound("there is no program %q in tenant %s", in.Name, c.who.Tenant)
			}
			return api.ProgramDetails{Program: p, Usage: v.ProgramUsage(c.who.Tenant, in.Name, s.clock().UnixMilli())}, nil
		})
	write(s, route{id: "putProgram", method: http.MethodPut, path: one, tag: tag, rule: writes, summary: "Write a new version of a program"},
		func(ctx context.Context, c *call, in *struct {
			ByProgram
			Body raw[profile.Program]
		}) (profile.Program, api.Written, error) {
			p, err := in.Body.value()
			if err != nil {
				return p, api.Written{}, err
			}
			if p.Name != "" && p.Name != in.Name {
				return p, api.Written{}, invalid(model.Faults{{Path: "name", Message: fmt.Sprintf("is %q, but the path says %q: they must be equal", p.Name, in.Name)}})
			}
			p.Name, p.Version = in.Name, 0
			p.Complete()
			if fs := p.Check(); len(fs) > 0 {
				return p, api.Written{}, fs
			}
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "program", Name: in.Name, Order: "put", Value: p})
			if err != nil {
				return p, w, err
			}
			if v, err := s.now(ctx); err == nil {
				p, _ = v.Program(c.who.Tenant, in.Name, 0)
			}
			return p, w, nil
		})
	write(s, route{id: "deleteProgram", method: http.MethodDelete, path: one, tag: tag, rule: writes, summary: "Delete all versions of a program that has no schedules"},
		func(ctx context.Context, c *call, in *ByProgram) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "program", Name: in.Name, Order: "delete"})
			return api.Deleted{Name: in.Name}, w, err
		})
	s.startRoute(route{id: "startProgram", path: one + "/start", tag: tag, summary: "Start a run of a program"})
}

// BySchedule names a schedule in the path.
type BySchedule struct {
	Name string `path:"schedule" doc:"The schedule's name"`
}

func (s *server) schedule(x profile.Schedule) api.ScheduleDetails {
	out := api.ScheduleDetails{Schedule: x}
	if x.Status != profile.Disabled {
		_, _, out.Next = x.Due(s.clock().UnixMilli())
	}
	return out
}

func (s *server) scheduleRoutes() {
	const tag, path, one = "schedules", "/v1/schedules", "/v1/schedules/{schedule}"
	reads, writes := rule{need: model.RoleRead}, rule{need: model.RoleUser}

	read(s, route{id: "listSchedules", path: path, tag: tag, rule: reads, summary: "List schedules"},
		func(_ context.Context, c *call, v View, _ *none) ([]api.ScheduleDetails, error) {
			out := []api.ScheduleDetails{}
			for _, x := range v.Schedules(c.who.Tenant) {
				out = append(out, s.schedule(x))
			}
			return out, nil
		})
	read(s, route{id: "getSchedule", path: one, tag: tag, rule: reads, summary: "Get a schedule"},
		func(_ context.Context, c *call, v View, in *BySchedule) (api.ScheduleDetails, error) {
			x, ok := v.Schedule(c.who.Tenant, in.Name)
			if !ok {
				return api.ScheduleDetails{}, notFound("there is no schedule %q in tenant %s", in.Name, c.who.Tenant)
			}
			return s.schedule(x), nil
		})
	write(s, route{id: "putSchedule", method: http.MethodPut, path: one, tag: tag, rule: writes, summary: "Create or change a schedule"},
		func(ctx context.Context, c *call, in *struct {
			BySchedule
			Body raw[profile.Schedule]
		}) (api.ScheduleDetails, api.Written, error) {
			x, err := in.Body.value()
			if err != nil {
				return api.ScheduleDetails{}, api.Written{}, err
			}
			x.Name, x.Tenant, x.Status, x.Actor, x.LastRun, x.Message = in.Name, "", "", "", "", ""
			x.Last, x.Waits, x.Skipped, x.Version = 0, 0, 0, 0
			x.Complete()
			if fs := x.Check(); len(fs) > 0 {
				return api.ScheduleDetails{}, api.Written{}, fs
			}
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "schedule", Name: in.Name, Order: "put", Value: x})
			if err != nil {
				return api.ScheduleDetails{}, w, err
			}
			if v, err := s.now(ctx); err == nil {
				x, _ = v.Schedule(c.who.Tenant, in.Name)
			}
			return s.schedule(x), w, nil
		})
	write(s, route{id: "deleteSchedule", method: http.MethodDelete, path: one, tag: tag, rule: writes, summary: "Delete a schedule; its runs continue"},
		func(ctx context.Context, c *call, in *BySchedule) (api.Deleted, api.Written, error) {
			w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "schedule", Name: in.Name, Order: "delete"})
			return api.Deleted{Name: in.Name}, w, err
		})
	for _, order := range []string{"enable", "disable"} {
		write(s, route{id: order + "Schedule", method: http.MethodPost, path: one + "/" + order, tag: tag, rule: writes, summary: "Enable or disable a schedule; runs that were due while it was disabled are not made up for"},
			func(ctx context.Context, c *call, in *BySchedule) (api.Done, api.Written, error) {
				w, err := s.Runs.ChangeSetting(ctx, c.who, api.Setting{Kind: "schedule", Name: in.Name, Order: order})
				return api.Done{Done: true}, w, err
			})
	}
}
