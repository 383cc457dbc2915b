package keys

import (
	"context"
	"fmt"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
)

// taskKeyTime is how long a key for tokens of tasks signs.
const taskKeyTime = 90 * 24 * time.Hour

// taskKeys makes a key for tokens of tasks in a mesh that issues them, and its successor in time for that to be published before it signs.
// The first key signs at once, as nobody has asked for keys before.
func (c *Controller) taskKeys(ctx context.Context) error {
	v := c.cfg.Machine.View()
	if !c.cfg.Issues || !v.Understands(logformat.TaskKeyLevel) {
		return nil
	}
	latest, now := v.TaskKeys().Latest(), time.Now()
	if latest.Number == 0 {
		return c.newTaskKey(ctx, now, false)
	}
	if end := time.UnixMilli(latest.Signs).Add(taskKeyTime); !now.Before(end.Add(-signing.TaskKeyNotice)) {
		return c.newTaskKey(ctx, now.Add(signing.TaskKeyNotice), false)
	}
	return nil
}

// renewTaskKey replaces the keys for tokens of tasks if the latest one is encrypted with a former data key of the mesh. Whoever had that
// could sign, so tokens of the former keys end.
func (c *Controller) renewTaskKey(ctx context.Context) error {
	v := c.cfg.Machine.View()
	private, made := v.Sealed("", table.TaskPrivateID(v.TaskKeys().Latest().Number), 1)
	if key, ok := v.DataKey(""); !made || !ok || private.DataKeyNumber() == key.Number {
		return nil
	}
	return c.newTaskKey(ctx, time.Now(), true)
}

// newTaskKey makes the next key for tokens of tasks, which signs from a time on.
func (c *Controller) newTaskKey(ctx context.Context, signs time.Time, alone bool) error {
	key, err := c.cfg.Box.NextTaskKey(ctx, signs.UnixMilli(), alone)
	if err == nil {
		err = c.commit(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_PutTaskKey{PutTaskKey: key}})
	}
	if err != nil {
		return fmt.Errorf("make a key for tokens of tasks: %w", err)
	}
	return nil
}
