package service

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
)

// Save writes an archive of the whole state to w.
func (r *Raft) Save(ctx context.Context, w io.Writer) error {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	if err := m.Fresh(ctx, false); err != nil {
		return err
	}
	v := m.Machine.View()
	return withState(v, func(size int64, in io.Reader) error {
		meta := archive.Meta{
			Index: v.Index(), Term: m.Group.Term(), Size: size, SnapshotVersion: 1, FeatureLevel: state.FeatureLevel,
			Agent: r.Name(), Build: r.Build, TakenAt: time.Now().UTC(),
		}
		return archive.Write(w, meta, in)
	})
}

// withState calls fn with the snapshot of a state and its size. The snapshot is written twice, first
// for its size, so that it need not fit into memory.
func withState(v *state.View, fn func(size int64, in io.Reader) error) error {
	var size counter
	if err := v.Write(&size); err != nil {
		return err
	}
	in, out := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = out.CloseWithError(v.Write(out)) // nil: the end
	}()
	err := fn(int64(size), in)
	_ = in.Close()
	<-written
	return err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// maxSnapshot bounds the size in bytes of the state in an archive that is restored.
const maxSnapshot = 4 << 30

// Restore replaces the whole state by that of an archive, as state.Restored makes it. Agents that are
// not in the present state have left since the archive was written.
func (r *Raft) Restore(ctx context.Context, in io.Reader) error {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	own := m.Machine.View()
	v, err := stateOf(in, own)
	if err != nil {
		return model.Faults{{Path: "snapshot", Message: err.Error()}}
	}
	if own.MeshIdentity() != nil {
		for number, print := range own.MeshKeys() {
			if other, ok := v.MeshKeys()[number]; ok && !bytes.Equal(other, print) {
				return model.Faults{{Path: "snapshot", Message: fmt.Sprintf("it is encrypted with another key %d than this mesh has: begin a new "+
					"mesh on a host that has the keyring of the old one, and restore it there", number)}}
			}
		}
	}
	if number, lacks := m.Box.Lacks(v); lacks && own.Rotated(number) {
		return model.Faults{{Path: "snapshot", Message: fmt.Sprintf("it is encrypted with key %d, which this mesh has retired since: put that "+
			"key back into the keyring of the leader from a backup, and restore again (docs/operations.md)", number)}}
	}
	return withState(v, func(size int64, in io.Reader) error { return m.Restore(ctx, v.Index(), size, in) })
}

// stateOf returns the state that is restored from an archive over a mesh's present state. It reads and checks the whole archive.
func stateOf(in io.Reader, own *state.View) (*state.View, error) {
	out, to := io.Pipe()
	read := make(chan error, 1)
	go func() {
		_, err := archive.Read(in, to, maxSnapshot)
		_ = to.CloseWithError(err) // nil: the end
		read <- err
	}()
	v, err := state.Restored(out, func(agent string) bool { _, ok := own.Agent(agent); return ok }, time.Now(), own)
	if err == nil {
		_, err = io.Copy(io.Discard, out) // the archive's checksums follow the state
	}
	_ = out.CloseWithError(err)
	if fault := <-read; fault != nil {
		err = fault
	}
	return v, err
}
