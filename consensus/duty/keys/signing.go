package keys

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state/table"
	pb "github.com/coopr/coopr/rpc/proto"
)

// signing makes the first key with which the mesh signs, once all voters understand it.
func (c *Controller) signing(ctx context.Context) error {
	v := c.cfg.Machine.View()
	if _, made := v.SigningKeys().Latest(); made || !v.Understands(logformat.RotationLevel) {
		return nil
	}
	return c.newSigningKey(ctx)
}

// renewSigning makes the next signing key if the latest one is encrypted with a former data key of the mesh.
func (c *Controller) renewSigning(ctx context.Context) error {
	v := c.cfg.Machine.View()
	latest, _ := v.SigningKeys().Latest()
	private, made := v.Sealed("", table.PrivateID(latest.Number), 1)
	if key, ok := v.DataKey(""); !made || !ok || private.DataKeyNumber() == key.Number {
		return nil
	}
	return c.newSigningKey(ctx)
}

// newSigningKey makes the next key with which the mesh signs.
func (c *Controller) newSigningKey(ctx context.Context) error {
	key, err := c.cfg.Box.NextSigningKey(ctx)
	if err != nil {
		return fmt.Errorf("make the signing key of the mesh: %w", err)
	}
	if err := c.commit(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_PutSigningKey{PutSigningKey: key}}); err != nil {
		return fmt.Errorf("make the signing key of the mesh: %w", err)
	}
	return nil
}
