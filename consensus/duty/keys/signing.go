package keys

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/consensus/logformat"
	pb "github.com/coopr/coopr/rpc/proto"
)

// signing makes the first key with which the mesh signs, once all voters understand it.
func (c *Controller) signing(ctx context.Context) error {
	v := c.cfg.Machine.View()
	if _, made := v.SigningKeys().Latest(); made || !v.Understands(logformat.RotationLevel) {
		return nil
	}
	key, err := c.cfg.Box.NextSigningKey(ctx)
	if err != nil {
		return fmt.Errorf("make the signing key of the mesh: %w", err)
	}
	done, err := c.cfg.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_PutSigningKey{PutSigningKey: key}})
	if err == nil {
		err = done[0].Err
	}
	if err != nil {
		return fmt.Errorf("make the signing key of the mesh: %w", err)
	}
	return nil
}
