package profile

import (
	"fmt"
	"strconv"
)

// Unlimited is the limit that allows everything.
const Unlimited = -1

// bound parses a limit from a setting.
func bound(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < Unlimited {
		return 0, fmt.Errorf("must be -1 (no bound), 0 or more, but is %q", s)
	}
	return n, nil
}

// Load counts runs.
type Load struct {
	// Up counts runs whose nodes may exist: waiting, active, and kept after their end.
	Up int
	// Launching counts those of them that are still being provisioned.
	Launching int
}

// Count adds a run to the load.
func (l *Load) Count(r *Run) {
	if !r.Up() {
		return
	}
	l.Up++
	if r.Cluster.Status == Provisioning {
		l.Launching++
	}
}

// Exceeds returns which limit another run would exceed, or "". The load includes that run.
func (l Load) Exceeds(of string, runs, launching int) string {
	switch {
	case runs != Unlimited && l.Up+1 > runs:
		return fmt.Sprintf("%s may have %s at a time, those counted whose nodes are still up, and has %d", of, counted(runs), l.Up)
	case launching != Unlimited && l.Launching+1 > launching:
		return fmt.Sprintf("%s may launch %s at a time, and launches %d", of, counted(launching), l.Launching)
	}
	return ""
}

func counted(n int) string {
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}

// Bounds returns a profile's limits as numbers.
func (l Limits) Bounds() (runs, launching int) {
	runs, launching = Unlimited, Unlimited
	if l.Runs != nil {
		runs = *l.Runs
	}
	if l.Launching != nil {
		launching = *l.Launching
	}
	return runs, launching
}

// Bounds returns the limits that settings have for a tenant: those of the tenant, or of the system.
func (l Levels) Bounds() (runs, launching int) { return bounds(l[OfSystem], l[OfTenant]) }

// ProgramBounds returns the limits that settings have for a program.
func (l Levels) ProgramBounds() (runs, launching int) { return bounds(l[OfProgram]) }

// bounds returns the limits of levels. Later ones take precedence.
func bounds(levels ...map[string]string) (runs, launching int) {
	runs, launching = Unlimited, Unlimited
	for _, level := range levels {
		if n, err := bound(level[RunsKey]); err == nil {
			runs = n
		}
		if n, err := bound(level[LaunchingKey]); err == nil {
			launching = n
		}
	}
	return runs, launching
}
