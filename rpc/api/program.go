package api

import (
	"github.com/coopr/coopr/engine/profile"
)

// ProgramDetails is a program and what its runs have used.
type ProgramDetails struct {
	profile.Program
	Usage profile.Usage `json:"usage"`
}

// ScheduleDetails is a schedule and the time of its next run.
type ScheduleDetails struct {
	profile.Schedule
	Next int64 `json:"next,omitempty" doc:"The time of the next run, Unix milliseconds; absent: never"`
}
