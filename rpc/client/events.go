package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// EventFilter says which events are wanted; its zero value is all, from now on.
type EventFilter struct {
	// After is the index to go on from; 0 means from now on.
	After uint64
	// Types such as "task.changed" or "task.*".
	Types     []string
	Cluster   string
	Operation string
	// Tenant "*" is every tenant's, for superadmins.
	Tenant string
	// Connected is called whenever the stream stands: what happens from then
	// on is not missed. May be nil.
	Connected func()
}

// Events gives every event to fn, in order, until ctx ends or fn fails. A
// stream that breaks is taken up again where it was; an event may come twice
// then, but none is left out. ErrConflict means that the place to go on from is
// too long ago: read the state and start from its index.
func (c *Client) Events(ctx context.Context, f EventFilter, fn func(model.Event) error) error {
	after := f.After
	pause := 50 * time.Millisecond
	for {
		place, got, err := c.eventsOnce(ctx, f, after, fn)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var stop *stopError
		var problem *Error
		switch {
		case errors.As(err, &stop):
			return stop.err
		case errors.As(err, &problem) && !problem.passing():
			return err
		case errors.Is(err, ErrUnreachable):
			return err
		}
		after = place
		if got {
			pause = 50 * time.Millisecond
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// stopError carries the error of the caller's function.
type stopError struct{ err error }

func (s *stopError) Error() string { return s.err.Error() }

func (c *Client) eventsOnce(ctx context.Context, f EventFilter, after uint64, fn func(model.Event) error) (place uint64, got bool, err error) {
	place = after
	q := values("type", strings.Join(f.Types, ","), "cluster", f.Cluster, "operation", f.Operation, "tenant", f.Tenant)
	if after > 0 {
		q.Set("index", strconv.FormatUint(after, 10))
	}
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/events", query: q})
	if err != nil {
		return place, false, err
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	var data []byte
	var id, name string
	told := false
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			if err == io.EOF {
				err = errors.New("the event stream ended")
			}
			return place, got, err
		}
		got = true
		if !told && f.Connected != nil {
			told = true
			f.Connected()
		}
		field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			id = string(value)
		case "event":
			name = string(value)
		case "data":
			data = append(data, value...)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			continue
		}
		if name == "problem" {
			var p api.Problem
			if err := json.Unmarshal(data, &p); err != nil {
				return place, got, err
			}
			return place, got, &Error{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Faults: p.Errors}
		}
		if len(data) > 0 {
			var e model.Event
			if err := json.Unmarshal(data, &e); err != nil {
				return place, got, fmt.Errorf("an event cannot be read: %w", err)
			}
			if err := fn(e); err != nil {
				return place, got, &stopError{err}
			}
		}
		if n, err := strconv.ParseUint(id, 10, 64); err == nil {
			place = max(place, n)
		}
		data, id, name = nil, "", ""
	}
}
