package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/sdk"
)

const (
	// Record is the name of the node's own record of finished tasks.
	Record = remote.Record
	// maxDone bounds the file; one older file is kept beside it. A question
	// comes minutes after the answer was written, not thousands of tasks later.
	maxDone = 256 << 10
)

// Done is a line of the node's record of finished tasks: written after the
// script succeeded, read when an attempt's end never reached the leader.
type Done struct {
	Task    string      `json:"task"`
	Fence   uint64      `json:"fence"`
	Attempt int         `json:"attempt"`
	Output  *sdk.Output `json:"output,omitempty"`
}

// Line gives what the record says of a finished task, without the line's end.
func Line(t *sdk.Task, out *sdk.Output) (string, error) {
	b, err := json.Marshal(Done{t.ID, t.Fence, t.Attempt, out})
	return string(b), err
}

// Remember adds a finished task to the node's record. With "" it only sees that the
// record does not grow for ever.
func Remember(ctx context.Context, node remote.Node, line string) error {
	if line != "" {
		line += "\n"
	}
	size, err := node.Append(ctx, Record, []byte(line))
	if err == nil && size > maxDone {
		err = node.Rename(ctx, Record, Record+".1")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another task did it
		}
	}
	if err != nil {
		return fmt.Errorf("remember on the node that the task is done: %w", err)
	}
	return nil
}

// Recall says whether a task is in the node's record, with its output: the last line
// about it counts.
func Recall(ctx context.Context, node remote.Node, task string) (*Done, error) {
	for _, name := range []string{Record, Record + ".1"} {
		b, err := node.Read(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the node's record of finished tasks: %w", err)
		}
		var found *Done
		for line := range bytes.Lines(b) {
			var d Done
			// A line that a crash cut short is no record.
			if json.Unmarshal(line, &d) == nil && d.Task == task {
				found = &d
			}
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, nil
}
