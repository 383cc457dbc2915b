package state

import (
	"bytes"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// noteExport records that the keyring was exported. An export of a key that is not one of this mesh, or not any more, is refused.
func (a sealed) noteExport(p *pb.NoteExport) Answer {
	if want, ok := a.view().MeshKeys()[p.Number]; !ok || !bytes.Equal(want, p.Print) {
		return refuse(problem.Stale, "key %d, which was exported, is not a key of this mesh", p.Number)
	}
	m := table.Mesh(a.txn)
	m.ID, m.Export = table.TheMeta, &roster.KeyringExport{Number: p.Number, Print: p.Print, At: p.TimeMs}
	a.put(table.Meta, &m)
	return Answer{}
}
