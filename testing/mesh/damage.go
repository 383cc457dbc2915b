package mesh

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/state"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Damage changes one byte of the agent's copy of the state: it inverts a bit of the names of all clusters.
func (a *Agent) Damage(bit byte) {
	a.m.T.Helper()
	machine := a.agent.Replica().Machine
	var in, out bytes.Buffer
	if err := machine.View().Write(&in); err != nil {
		a.m.T.Fatal(err)
	}
	write := func(message []byte) {
		_, _ = out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(message))))
		_, _ = out.Write(message)
	}
	changed := false
	for first := true; ; first = false {
		message := in.Next(int(binary.BigEndian.Uint32(in.Next(4))))
		if len(message) == 0 {
			break // the checksum follows
		}
		var rec pb.SnapshotRecord
		if !first && proto.Unmarshal(message, &rec) == nil && rec.GetCluster() != nil {
			name := []byte(rec.GetCluster().Name)
			name[len(name)-1] ^= bit
			rec.GetCluster().Name = string(name)
			message, _ = proto.Marshal(&rec)
			changed = true
		}
		write(message)
	}
	if !changed {
		a.m.T.Fatal("the state has no cluster")
	}
	write(nil)
	sum := sha256.Sum256(out.Bytes())
	_, _ = out.Write(sum[:])
	a.m.Tracef("%s: a byte of its state is changed", a.Name)
	if err := machine.Restore(io.NopCloser(&out)); err != nil {
		a.m.T.Fatal(err)
	}
}

// HandTo has the agent, which leads, hand over to another one.
func (a *Agent) HandTo(b *Agent) error {
	return a.agent.Replica().Group.Transfer(a.m.T.Context(), b.ID)
}

// Term returns the term of Raft that the agent, which runs, knows of.
func (a *Agent) Term() uint64 { return a.agent.Replica().Group.Stats().Term }

// View returns the agent's copy of the state, or nil while it has none.
func (a *Agent) View() *state.View {
	if a.Running() {
		if r := a.agent.Replica(); r != nil {
			return r.Machine.View()
		}
	}
	return nil
}
