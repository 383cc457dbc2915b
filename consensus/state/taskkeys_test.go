package state_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// taskKeyText is a public key for tokens of tasks.
const taskKeyText = "" +
	"MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAsv5tHRcXUjr5MaIMIONTuZkEdNdXAp7ixYN+lH+dcZqrV8BYZppHN4progTxr5Be6+YevuXF3NxB" +
	"t4HJxEQ5nBdC8pJ2NMTjlJSmxF5ZnY1pqMBy8z2p3MtKgAo+z7AEKR+unL7vupJw9O70bJHVrLUvrvY4ITAur1IjRTFtKiiRaRRsMAjAU41l5cX06guhIPaj" +
	"ROSYcEsv0vlEiBh1PqHjJUF3y/O3a4APq53EroboZikwXKA7jiISQ2PFvu/qk131ipOUYPvCuNpUifaKMXIxPoCklnpsIdvpyjdbjupuUL9+1rLc9wsS32xE" +
	"emZodPEKNDHxqZ/4+8K4z5JsfQIDAQAB"

// putTaskKey returns the command that adds a key for tokens of tasks.
func putTaskKey(number uint32, signs int64, change ...func(*pb.PutTaskKey)) *pb.Command {
	public, err := base64.StdEncoding.DecodeString(taskKeyText)
	if err != nil {
		panic(err)
	}
	p := &pb.PutTaskKey{Number: number, Public: public, SignsMs: signs, Private: &pb.SealedValue{
		Id: table.TaskPrivateID(number), Version: 1, Sealed: []byte{0, 0, 0, 1, 'x'}}}
	for _, f := range change {
		f(p)
	}
	return &pb.Command{Actor: "coopr", Change: &pb.Command_PutTaskKey{PutTaskKey: p}}
}

// A rotation of the keys brings the next key with it.
func TestTaskKeyRotation(t *testing.T) {
	c := newClinic(t)
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.TaskKeyLevel}}})
	c.do(putDataKey("", 1))
	rotate := func(number uint32, want error, key *pb.Command) {
		t.Helper()
		r := &pb.Rotate{Kind: record.RotationKind_ROTATION_KIND_JWKS, Number: number, Next: record.RotationPhase_ROTATION_PHASE_DONE,
			TaskKey: key.GetPutTaskKey()}
		if err := c.do(&pb.Command{Actor: "ann", Change: &pb.Command_Rotate{Rotate: r}}).Err; !errors.Is(err, want) {
			t.Errorf("rotation %d: %v, not %v", number, err, want)
		}
	}
	alone := func(p *pb.PutTaskKey) { p.Alone = true }
	rotate(1, problem.Conflict, putTaskKey(1, c.now)) // the mesh issues no tokens
	c.do(putTaskKey(1, c.now))
	rotate(1, problem.Invalid, &pb.Command{})
	rotate(1, problem.Stale, putTaskKey(3, c.now))
	rotate(1, nil, putTaskKey(2, c.now+1000))
	rotate(1, problem.Stale, putTaskKey(3, c.now+2000))
	if r, ok := c.m.View().Rotation(roster.KindJWKS); !ok || r.Number != 1 || r.Phase != roster.RotationDone || r.Full || r.Actor != "ann" {
		t.Errorf("the first one: %+v", r)
	}
	if keys := c.m.View().TaskKeys(); len(keys) != 2 {
		t.Errorf("%d keys", len(keys))
	}
	rotate(2, nil, putTaskKey(3, c.now, alone))
	if r, _ := c.m.View().Rotation(roster.KindJWKS); r.Number != 2 || !r.Full {
		t.Errorf("the second one: %+v", r)
	}
	if keys := c.m.View().TaskKeys(); len(keys) != 1 || keys[0].Number != 3 {
		t.Errorf("after a key alone: %v", keys)
	}
}

// A key is published until the tokens that it has signed have ended. Then the next key removes it, and its private half.
func TestTaskKeys(t *testing.T) {
	c := newClinic(t)
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.TaskKeyLevel}}})
	c.do(putDataKey("", 1))
	hour := time.Hour.Milliseconds()
	begin := c.now
	has := func(when string, want ...uint32) {
		t.Helper()
		var have, private, published []uint32
		for _, k := range c.m.View().TaskKeys() {
			have = append(have, k.Number)
		}
		for n := range uint32(9) {
			if _, ok := c.m.View().Sealed("", table.TaskPrivateID(n), 1); ok {
				private = append(private, n)
			}
		}
		for _, k := range c.m.View().TaskKeys().Published(c.now) {
			published = append(published, k.Number)
		}
		if !slices.Equal(have, want) || !slices.Equal(private, want) {
			t.Errorf("%s: keys %v, private halves %v, not %v", when, have, private, want)
		}
		if len(published) == 0 || !slices.Equal(published, want[len(want)-len(published):]) {
			t.Errorf("%s: %v are published", when, published)
		}
	}
	put := func(cmd *pb.Command) {
		t.Helper()
		if err := c.do(cmd).Err; err != nil {
			t.Fatal(err)
		}
	}
	refused := func(why string, want error, cmd *pb.Command) {
		t.Helper()
		if err := c.do(cmd).Err; !errors.Is(err, want) {
			t.Errorf("%s: %v", why, err)
		}
	}
	put(putTaskKey(1, begin))
	refused("the same number", problem.Stale, putTaskKey(1, begin))
	refused("a number too far", problem.Stale, putTaskKey(3, begin))
	refused("a key that signs too early", problem.Invalid, putTaskKey(2, begin-1))
	refused("no public key", problem.Invalid, putTaskKey(2, begin, func(p *pb.PutTaskKey) { p.Public = []byte("key") }))
	refused("no private key", problem.Invalid, putTaskKey(2, begin, func(p *pb.PutTaskKey) { p.Private = nil }))
	refused("another value", problem.Invalid, putTaskKey(2, begin, func(p *pb.PutTaskKey) { p.Private.Id = "signing-key-2" }))
	refused("an unknown data key", problem.Stale, putTaskKey(2, begin, func(p *pb.PutTaskKey) { p.Private.Sealed = []byte{0, 0, 0, 9, 'x'} }))

	put(putTaskKey(2, begin+24*hour))
	has("with a successor", 1, 2)
	c.now = begin + 24*hour
	put(putTaskKey(3, begin+30*hour))
	has("while tokens are valid", 1, 2, 3)
	c.now = begin + 25*hour
	if keys := c.m.View().TaskKeys().Published(c.now); len(keys) != 2 || keys[0].Number != 2 {
		t.Errorf("after the last token: %v are published", keys)
	}
	put(putTaskKey(4, begin+40*hour))
	has("after the last token", 2, 3, 4)
	put(putTaskKey(5, c.now, func(p *pb.PutTaskKey) { p.Alone = true }))
	has("alone", 5)

	again := fresh(t)
	if err := again.Restore(io.NopCloser(bytes.NewReader(dump(t, c.m)))); err != nil || len(again.View().TaskKeys()) != 1 {
		t.Errorf("in a snapshot: %v %v", again.View().TaskKeys(), err)
	}
	v, err := state.Restored(bytes.NewReader(dump(t, c.m)), func(string) bool { return true }, time.UnixMilli(c.now), nil, nil)
	if err != nil || len(v.TaskKeys()) != 0 {
		t.Errorf("another mesh has the keys %v: %v", v.TaskKeys(), err)
	}
	if _, ok := v.Sealed("", table.TaskPrivateID(5), 1); ok {
		t.Error("another mesh has a private half")
	}
	if keys := (signing.TaskKeys{}).Published(0); len(keys) != 0 {
		t.Error("published before there is a key:", keys)
	}
}
