package objects

import (
	"context"
	"errors"
)

// Nowhere is the Performer of an agent without a data directory. It refuses everything.
type Nowhere struct{}

var errNowhere = errors.New("this agent has no data directory, so it cannot act for change objects; set data_dir")

// Check fails.
func (Nowhere) Check(context.Context, *Job) (state, note string, err error) {
	return "", "", errNowhere
}

// Run fails.
func (Nowhere) Run(context.Context, *Job, string) error { return errNowhere }
