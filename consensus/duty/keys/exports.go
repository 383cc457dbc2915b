package keys

import (
	"bytes"
	"context"
	"fmt"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	pb "github.com/coopr/coopr/rpc/proto"
)

// NoteExports asks the members of the Raft group whether their keyrings were exported, and puts it on record.
func (c *Controller) NoteExports(ctx context.Context) error {
	return c.noteExports(ctx, c.ask(ctx, c.cfg.Members()))
}

// noteExports puts on record that the key which is in use was exported, by this agent or by a member that has said so.
func (c *Controller) noteExports(ctx context.Context, answers map[string]Status) error {
	v := c.cfg.Machine.View()
	active, ok := v.ActiveMeshKey()
	if !ok || !v.Understands(logformat.HoldLevel) {
		return nil
	}
	latest, err := c.cfg.Ring.Exported()
	if err != nil {
		c.cfg.Logger.Warn("it is not known whether this keyring was exported", "error", err)
		latest = keyring.Exported{}
	}
	want := v.MeshKeys()[active]
	current := func(e keyring.Exported) bool { return e.Number == active && bytes.Equal(e.Print, want) }
	for _, st := range answers {
		if e := st.Exported; current(e) && (!current(latest) || e.At.After(latest.At)) {
			latest = e
		}
	}
	if !current(latest) || latest.At.UnixMilli() <= v.KeyringExported() {
		return nil
	}
	if err := c.commit(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_NoteExport{NoteExport: &pb.NoteExport{
		Number: latest.Number, Print: latest.Print, TimeMs: latest.At.UnixMilli()}}}); err != nil {
		return fmt.Errorf("note that the keyring was exported: %w", err)
	}
	return nil
}
