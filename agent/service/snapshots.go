package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Save writes an archive of the whole state to w.
func (r *Raft) Save(ctx context.Context, w io.Writer) error {
	m, l, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	_ = l.Keys.NoteExports(ctx) // if this fails, whoever saves may be warned about the keyring in vain
	if err := m.Fresh(ctx, false); err != nil {
		return err
	}
	v := m.Machine.View()
	return withState(v, func(size int64, in io.Reader) error {
		meta := archive.Meta{
			Index: v.Index(), Term: m.Group.Term(), Size: size, SnapshotVersion: 1, FeatureLevel: int(v.FeatureLevel()),
			Mesh: v.Mesh(), Agent: r.Name(), Build: r.Build, TakenAt: time.Now().UTC(),
		}
		signer, err := m.Box.Signer(v.SealedView)
		if errors.Is(err, problem.NotFound) || errors.Is(err, keyring.ErrNoKey) {
			// The mesh has voters of an older build, has just begun, or has lost its keys. A copy without signature is better than none.
			return archive.Write(w, meta, in)
		}
		if err != nil {
			return err
		}
		return archive.WriteSigned(w, meta, in, func(sums []byte) (*archive.Signature, error) { return sign(m.Box, v, signer, sums) })
	})
}

// sign returns the signature of an archive with checksums.
func sign(box *sealed.Box, v *state.View, signer sealed.Signer, sums []byte) (*archive.Signature, error) {
	sig := &archive.Signature{Keys: v.SigningKeys(), Key: signer.Number}
	prints := v.MeshKeys()
	for _, n := range slices.Sorted(maps.Keys(prints)) {
		sig.MeshKeys = append(sig.MeshKeys, archive.MeshKey{Number: n, Print: prints[n]})
	}
	content, err := sig.Content(sums)
	if err != nil {
		return nil, err
	}
	if sig.Signature, err = signing.Sign(signing.Snapshot, signer.Seed, content); err != nil {
		return nil, err
	}
	sig.Proof, err = box.Prove(signing.Snapshot, content)
	return sig, err
}

// trusted returns an error unless an archive may replace the state of a mesh. The signature must be good. Its key must be the one with
// which this mesh signs now, or this mesh has the keyring of the one that signed: that proves the archive, as nobody else can make such
// a code. A former key of this mesh is not enough, as it may have been replaced because somebody else has it. With unsigned, the
// operator answers for an archive that nothing proves.
func trusted(box *sealed.Box, own *state.View, sig *archive.Signature, mesh string, unsigned bool) error {
	if sig == nil {
		if unsigned {
			return nil
		}
		return errors.New("it is not signed: restore it with --unsigned if an older build wrote it and nobody could change it since")
	}
	content, err := sig.Verify()
	if err != nil {
		return fmt.Errorf("it was altered after it was signed: %w", err)
	}
	if latest, ok := own.SigningKeys().Latest(); ok && (signing.Chain{latest}).Has(sig.Signer()) {
		return nil
	}
	err = box.Proven(signing.Snapshot, content, sig.Proof)
	switch {
	case err == nil, unsigned:
		return nil
	case own.SigningKeys().Has(sig.Signer()):
		return fmt.Errorf("it is signed with a key that this mesh has retired since, and so its keyring has to prove it: put %s back into the "+
			"keyring of the leader from a backup, and restore again (docs/operations.md): %w", needed(sig.MeshKeys), err)
	}
	return fmt.Errorf("it is of mesh %q, whose keyring this mesh does not have: begin a new mesh on a host that has the keyring with %s, "+
		"and restore it there: %w", mesh, needed(sig.MeshKeys), err)
}

// needed names keys of a keyring for people.
func needed(keys []archive.MeshKey) string {
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("key %d (fingerprint %x)", k.Number, k.Print))
	}
	return strings.Join(out, " and ")
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
// not in the present state have left since the archive was written. Everything is checked before anything is replaced. The mesh is
// held then, unless it is to resume at once.
func (r *Raft) Restore(ctx context.Context, who model.Caller, in io.Reader, o api.RestoreOptions) error {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return err
	}
	own := m.Machine.View()
	if rotation, ok := own.Rotation(roster.KindKeyring); ok && rotation.Phase != roster.RotationDone {
		return problem.New(problem.Conflict, "the mesh key is being rotated: restore once coopr operator rotations shows that it is done")
	}
	switch {
	case !o.Resume && !own.Understands(logformat.HoldLevel):
		return problem.New(problem.Conflict, "some members of the Raft group run an older build, and would begin work after the restore: "+
			"upgrade them before, or restore with --resume")
	case strings.ContainsFunc(o.File, func(r rune) bool { return !unicode.IsPrint(r) }):
		return model.Faults{{Path: "file", Message: "has a character that cannot be printed"}}
	}
	var hold *roster.Hold
	if !o.Resume {
		hold = &roster.Hold{File: o.File, Since: time.Now().UnixMilli(), Actor: who.Actor}
	}
	v, meta, sig, err := stateOf(in, own, hold)
	if err == nil {
		err = trusted(m.Box, own, sig, meta.Mesh, o.Unsigned)
	}
	if err != nil {
		return model.Faults{{Path: "snapshot", Message: err.Error()}}
	}
	identity := own.MeshIdentity()
	if identity != nil {
		for number, print := range own.MeshKeys() {
			if other, ok := v.MeshKeys()[number]; ok && !bytes.Equal(other, print) {
				return model.Faults{{Path: "snapshot", Message: fmt.Sprintf("it is encrypted with another key %d than this mesh has: begin a new "+
					"mesh on a host that has the keyring of the old one, and restore it there", number)}}
			}
		}
	}
	if number, lacks := m.Box.Lacks(v); lacks && identity != nil {
		why := "this mesh does not have"
		if own.Rotated(number) {
			why = "this mesh has retired since"
		}
		return model.Faults{{Path: "snapshot", Message: fmt.Sprintf("it is encrypted with key %d, which %s: put that "+
			"key back into the keyring of the leader from a backup, and restore again (docs/operations.md)", number, why)}}
	}
	// The archive may have taken long to arrive, and keys that were replaced meanwhile may exist no more.
	if now := m.Machine.View(); !reflect.DeepEqual(now.MeshIdentity(), identity) || !reflect.DeepEqual(now.Rotations(), own.Rotations()) {
		return problem.New(problem.Conflict, "a key of the mesh was rotated while the archive arrived: restore it again")
	}
	return withState(v, func(size int64, in io.Reader) error { return m.Restore(ctx, v.Index(), size, in) })
}

// Resume ends the hold of a mesh that was restored. It fails with state.ErrNotHeld for others. Nothing is proposed then: members of the
// Raft group that run an older build, of which a mesh that is held has none, would stop at the command.
func (r *Raft) Resume(ctx context.Context, who model.Caller) (api.Written, error) {
	m, _, err := leader(r.Supervisor)
	if err != nil {
		return api.Written{}, err
	}
	if m.Machine.View().Hold() == nil {
		return api.Written{}, state.ErrNotHeld
	}
	return write(ctx, r.Supervisor, who, &pb.Command{Change: &pb.Command_ResumeMesh{ResumeMesh: &pb.ResumeMesh{}}})
}

// stateOf returns the state that is restored from an archive over a mesh's present state, and the archive's signature, which is not
// verified. It reads and checks the whole archive. hold is that of the restored state, or nil.
func stateOf(in io.Reader, own *state.View, hold *roster.Hold) (*state.View, archive.Meta, *archive.Signature, error) {
	out, to := io.Pipe()
	read := make(chan error, 1)
	var meta archive.Meta
	var sig *archive.Signature
	go func() {
		var err error
		meta, sig, err = archive.ReadSigned(in, to, maxSnapshot)
		_ = to.CloseWithError(err) // nil: the end
		read <- err
	}()
	v, err := state.Restored(out, func(agent string) bool { _, ok := own.Agent(agent); return ok }, time.Now(), own, hold)
	if err == nil {
		_, err = io.Copy(io.Discard, out) // the archive's checksums follow the state
	}
	_ = out.CloseWithError(err)
	if fault := <-read; fault != nil {
		err = fault
	}
	return v, meta, sig, err
}
