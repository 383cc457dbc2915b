package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/coopr/coopr/rpc/api"
)

// RunFilter selects runs. Zero fields select all.
type RunFilter struct {
	Program, Profile, Schedule, Status string
	Orphaned                           bool
}

// Runs returns runs, the newest first.
func (c *Client) Runs(ctx context.Context, f RunFilter, page Page, read Read) ([]api.RunDetails, Meta, error) {
	var out []api.RunDetails
	pairs := append(page.pairs(), "program", f.Program, "profile", f.Profile, "schedule", f.Schedule, "status", f.Status)
	if f.Orphaned {
		pairs = append(pairs, "orphaned", strconv.FormatBool(true))
	}
	m, err := c.get(ctx, "/v1/runs", read, values(pairs...), &out)
	return out, m, err
}

// Run returns a run.
func (c *Client) Run(ctx context.Context, id string, read Read) (api.RunDetails, Meta, error) {
	var out api.RunDetails
	m, err := c.get(ctx, "/v1/runs/"+seg(id), read, nil, &out)
	return out, m, err
}

// StartRun starts a run.
func (c *Client) StartRun(ctx context.Context, req api.StartRun) (api.RunDetails, Meta, error) {
	var out api.RunDetails
	m, err := c.send(ctx, http.MethodPost, "/v1/runs", nil, req, &out)
	return out, m, err
}

// OrderRun carries out an order about a run: "stop" with an api.StopBody, "extend" with an
// api.ExtendBody, "force" with an api.ForceBody, "deprovision", "retry" and "purge" with an
// api.OrderBody.
func (c *Client) OrderRun(ctx context.Context, id, order string, body any) (api.RunDetails, Meta, error) {
	var out api.RunDetails
	m, err := c.send(ctx, http.MethodPost, "/v1/runs/"+seg(id)+"/"+seg(order), nil, body, &out)
	return out, m, err
}

// RunLog calls fn with each line that a run's program wrote. With follow it continues until the
// program ends, even if the leader changes. Each line of an attempt comes once.
func (c *Client) RunLog(ctx context.Context, id string, follow bool, fn func(api.RunLine) error) error {
	type attempt struct {
		task   string
		number int
		kept   bool // of the lines that the state keeps
	}
	last := map[attempt]int{}
	once := func() (bool, error) {
		q := values()
		if follow {
			q.Set("follow", "true")
		}
		resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/runs/" + seg(id) + "/logs", query: q})
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for {
			text, err := in.ReadBytes('\n')
			if err != nil {
				return false, nil // the answer was cut; the next leader continues
			}
			var l api.RunLine
			if json.Unmarshal(text, &l) != nil {
				continue
			}
			if l.End {
				return true, nil
			}
			k, n := attempt{l.Task, l.Attempt, l.Number < 0}, max(l.Number, -l.Number)
			if n > last[k] {
				last[k] = n
				if err := fn(l); err != nil {
					return false, err
				}
			}
		}
	}
	for {
		end, err := once()
		switch {
		case err != nil || end:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !follow:
			return errors.New("the log is incomplete, because the agent that sent it stopped; repeat the request")
		}
		timer := time.NewTimer(200 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}
