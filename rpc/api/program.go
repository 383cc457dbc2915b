package api

import (
	"github.com/coopr/coopr/engine/profile"
)

// ProgramDetails is a program and what its runs used.
type ProgramDetails struct {
	profile.Program
	Usage profile.Usage `json:"usage"`
}

// ScheduleDetails is a schedule and when it is due next.
type ScheduleDetails struct {
	profile.Schedule
	Next int64 `json:"next,omitempty" doc:"When it is due next, Unix milliseconds; absent: never"`
}
