package client

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// Programs returns the latest version of each program.
func (c *Client) Programs(ctx context.Context, read Read) ([]profile.Program, Meta, error) {
	var out []profile.Program
	m, err := c.get(ctx, "/v1/programs", read, nil, &out)
	return out, m, err
}

// Program returns the latest version of a program.
func (c *Client) Program(ctx context.Context, name string, read Read) (api.ProgramDetails, Meta, error) {
	var out api.ProgramDetails
	m, err := c.get(ctx, "/v1/programs/"+seg(name), read, nil, &out)
	return out, m, err
}

// PutProgram writes a new version of a program.
func (c *Client) PutProgram(ctx context.Context, name string, p profile.Program) (profile.Program, Meta, error) {
	var out profile.Program
	m, err := c.send(ctx, http.MethodPut, "/v1/programs/"+seg(name), nil, p, &out)
	return out, m, err
}

// DeleteProgram deletes a program.
func (c *Client) DeleteProgram(ctx context.Context, name string) error {
	_, err := c.send(ctx, http.MethodDelete, "/v1/programs/"+seg(name), nil, nil, nil)
	return err
}

// Schedules returns the tenant's schedules.
func (c *Client) Schedules(ctx context.Context, read Read) ([]api.ScheduleDetails, Meta, error) {
	var out []api.ScheduleDetails
	m, err := c.get(ctx, "/v1/schedules", read, nil, &out)
	return out, m, err
}

// Schedule returns a schedule.
func (c *Client) Schedule(ctx context.Context, name string, read Read) (api.ScheduleDetails, Meta, error) {
	var out api.ScheduleDetails
	m, err := c.get(ctx, "/v1/schedules/"+seg(name), read, nil, &out)
	return out, m, err
}

// PutSchedule creates or changes a schedule.
func (c *Client) PutSchedule(ctx context.Context, name string, s profile.Schedule) (api.ScheduleDetails, Meta, error) {
	var out api.ScheduleDetails
	m, err := c.send(ctx, http.MethodPut, "/v1/schedules/"+seg(name), nil, s, &out)
	return out, m, err
}

// DeleteSchedule deletes a schedule.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	_, err := c.send(ctx, http.MethodDelete, "/v1/schedules/"+seg(name), nil, nil, nil)
	return err
}

// EnableSchedule enables or disables a schedule.
func (c *Client) EnableSchedule(ctx context.Context, name string, enable bool) error {
	_, err := c.send(ctx, http.MethodPost, "/v1/schedules/"+seg(name)+"/"+enabling(enable), nil, nil, nil)
	return err
}
