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

// EventFilter selects events. Its zero value selects all events from now on.
type EventFilter struct {
	// After is the index after which events are wanted; 0 means from now on.
	After uint64
	// Types such as "task.changed" or "task.*".
	Types     []string
	Cluster   string
	Operation string
	// Tenant "*" selects the events of every tenant, for superadmins.
	Tenant string
	// Connected is called each time that the stream is established. No later event is missed. It
	// may be nil.
	Connected func()
}

// Events calls fn with every event, in order, until ctx ends or fn fails. If the stream breaks, it
// continues where it was: no event is left out, but one may come twice. ErrConflict means that
// events after the index are no longer kept: read the state, and continue from its index.
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

// stopError wraps an error of the caller's function.
type stopError struct{ err error }

func (s *stopError) Error() string { return s.err.Error() }

func (c *Client) eventsOnce(
	ctx context.Context,
	f EventFilter,
	after uint64,
	fn func(model.Event) error,
) (place uint64, got bool, err error) {
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
			if errors.Is(err, io.EOF) {
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
