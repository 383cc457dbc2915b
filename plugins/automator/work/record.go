package work

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/coopr/coopr/plugins/automator/transport"
	"github.com/coopr/coopr/plugins/sdk"
)

const (
	// Record is the name of the node's own record of finished tasks.
	Record = ".coopr/done.log"
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

// Remember adds a finished task to the node's record.
func Remember(ctx context.Context, node transport.Node, t *sdk.Task, out *sdk.Output) error {
	b, err := json.Marshal(Done{t.ID, t.Fence, t.Attempt, out})
	if err != nil {
		return err
	}
	size, err := node.Append(ctx, Record, append(b, '\n'))
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

// Recall says whether a task is in the node's record, with its output.
func Recall(ctx context.Context, node transport.Node, task string) (*Done, error) {
	for _, name := range []string{Record, Record + ".1"} {
		b, err := node.Read(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the node's record of finished tasks: %w", err)
		}
		for line := range bytes.Lines(b) {
			var d Done
			// A line that a crash cut short is no record.
			if json.Unmarshal(line, &d) == nil && d.Task == task {
				return &d, nil
			}
		}
	}
	return nil, nil
}
