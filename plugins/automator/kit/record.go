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
	// maxDone bounds the file, in bytes; one older file is kept too. That is enough, because a
	// record is read within minutes, not after thousands of tasks.
	maxDone = 256 << 10
)

// Done is one line of the node's record of finished tasks. It is written after the script has
// succeeded, and read when the end of an attempt never reached the leader.
type Done struct {
	Task    string      `json:"task"`
	Fence   uint64      `json:"fence"`
	Attempt int         `json:"attempt"`
	Output  *sdk.Output `json:"output,omitempty"`
}

// Line returns the record of a finished task, without a newline.
func Line(t *sdk.Task, out *sdk.Output) (string, error) {
	b, err := json.Marshal(Done{t.ID, t.Fence, t.Attempt, out})
	return string(b), err
}

// Remember appends a line to the node's record and bounds the record's size. An empty line appends
// nothing.
func Remember(ctx context.Context, node remote.Node, line string) error {
	if line != "" {
		line += "\n"
	}
	size, err := node.Append(ctx, Record, []byte(line))
	if err == nil && size > maxDone {
		err = node.Rename(ctx, Record, Record+".1")
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another task has renamed it
		}
	}
	if err != nil {
		return fmt.Errorf("write the task's record on the node: %w", err)
	}
	return nil
}

// Recall returns a task's last record on the node, or nil if there is none.
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
			// A line that was cut short by a crash is ignored.
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
