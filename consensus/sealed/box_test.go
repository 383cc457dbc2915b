package sealed_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/memkeys"
)

// voter is a state without a Raft group, with a keyring.
type voter struct {
	*state.Machine
	ring  *keyring.Ring
	box   *sealed.Box
	index uint64
}

func newVoter(t testing.TB) *voter {
	t.Helper()
	m, err := state.New(state.Config{})
	if err != nil {
		t.Fatal(err)
	}
	v := &voter{Machine: m}
	if v.ring, err = keyring.Open(&memkeys.Store{}); err != nil {
		t.Fatal(err)
	}
	v.box = sealed.NewBox(m, v.propose, v.ring)
	for _, name := range []string{"t", "u"} {
		v.do(t, &pb.Command{Change: &pb.Command_PutTenant{PutTenant: &pb.PutTenant{Tenant: &record.Tenant{Name: name}}}})
	}
	return v
}

func (v *voter) propose(_ context.Context, commands ...*pb.Command) ([]state.Answer, error) {
	b, err := proto.Marshal(&pb.Entry{Format: state.Format, FeatureLevel: state.FeatureLevel, MustUnderstand: true, Commands: commands})
	if err != nil {
		return nil, err
	}
	v.index++
	var out []state.Answer
	for _, a := range v.Apply(&raft.Log{Type: raft.LogCommand, Index: v.index, Data: b}).([][]state.Answer) {
		out = append(out, a...)
	}
	return out, nil
}

func (v *voter) do(t testing.TB, c *pb.Command) {
	t.Helper()
	if a, err := v.propose(t.Context(), c); err != nil || a[0].Err != nil {
		t.Fatal(err, a)
	}
}

func TestBox(t *testing.T) {
	v := newVoter(t)
	if _, err := v.box.Seal(t.Context(), "t", "a", 1, []byte("canary")); !errors.Is(err, problem.NoMajority) {
		t.Error("without keys of the mesh:", err)
	}
	if err := v.box.MakeMeshKey(t.Context()); !errors.Is(err, keyring.ErrNoKey) {
		t.Error("with an empty keyring:", err)
	}
	if err := v.ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(v.box.MakeMeshKey(t.Context()), v.box.MakeMeshKey(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"t", "u"} {
		value, err := v.box.Seal(t.Context(), tenant, "a", 1, []byte("canary"))
		if err != nil {
			t.Fatal(err)
		}
		v.do(t, &pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{Tenant: tenant, Values: []*pb.SealedValue{value}}}})
		row, _ := v.View().LatestSealed(tenant, "a")
		if got, err := v.box.Open(v.View().SealedView, row); string(got) != "canary" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		row.Version++
		if _, err := v.box.Open(v.View().SealedView, row); !errors.Is(err, keyring.ErrNotSealed) {
			t.Error("as another version:", err)
		}
	}
	mixed, _ := v.View().LatestSealed("t", "a")
	mixed.Tenant = "u"
	if _, err := v.box.Open(v.View().SealedView, mixed); !errors.Is(err, keyring.ErrNotSealed) {
		t.Error("as another tenant's:", err)
	}
	var dump bytes.Buffer
	if err := v.View().Write(&dump); err != nil {
		t.Fatal(err)
	}
	if key, _ := v.ring.Key(1); bytes.Contains(dump.Bytes(), []byte("canary")) || bytes.Contains(dump.Bytes(), key.Secret[:]) {
		t.Error("the snapshot has a plaintext")
	}
}

// TestSealGivesUp has a data key's commit take for ever: whoever waits for the key gives up at its own deadline, and tenants that
// have a key do not wait.
func TestSealGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVoter(t)
		if err := v.ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}); err != nil {
			t.Fatal(err)
		}
		stuck := false
		box := sealed.NewBox(v.Machine, func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error) {
			if stuck {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return v.propose(ctx, commands...)
		}, v.ring)
		if err := box.MakeMeshKey(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := box.Seal(t.Context(), "t", "a", 1, []byte("canary")); err != nil {
			t.Fatal(err)
		}
		stuck = true
		seal := func(tenant string, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := box.Seal(ctx, tenant, "a", 1, []byte("canary"))
			return err
		}
		first := make(chan error, 1)
		go func() { first <- seal("u", time.Hour) }()
		synctest.Wait()
		begun := time.Now()
		if err := seal("u", time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("after %s: %v", time.Since(begun), err)
		}
		if err := seal("t", time.Minute); err != nil {
			t.Error("a tenant with a key:", err)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestBoxOfAnotherMember opens values with the keyring of another voter: with the same keys, without, and with foreign ones.
func TestBoxOfAnotherMember(t *testing.T) {
	v := newVoter(t)
	keys := keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}
	if err := errors.Join(v.ring.Put(keys), v.box.MakeMeshKey(t.Context())); err != nil {
		t.Fatal(err)
	}
	value, err := v.box.Seal(t.Context(), "t", "a", 1, []byte("canary"))
	if err != nil {
		t.Fatal(err)
	}
	v.do(t, &pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{Tenant: "t", Values: []*pb.SealedValue{value}}}})
	row, _ := v.View().LatestSealed("t", "a")
	for name, other := range map[string]struct {
		keys keyring.Set
		want error
	}{
		"the same keys": {keys, nil},
		"none":          {keyring.Set{}, keyring.ErrNoKey},
		"foreign keys":  {keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}, keyring.ErrNoKey},
	} {
		ring, err := keyring.Open(&memkeys.Store{})
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Put(other.keys); err != nil {
			t.Fatal(err)
		}
		if _, err := sealed.NewBox(v.Machine, v.propose, ring).Open(v.View().SealedView, row); !errors.Is(err, other.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	v := newVoter(b)
	if err := errors.Join(v.ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}), v.box.MakeMeshKey(b.Context())); err != nil {
		b.Fatal(err)
	}
	value, err := v.box.Seal(b.Context(), "t", "a", 1, []byte("canary"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := v.propose(b.Context(), &pb.Command{Change: &pb.Command_PutSealed{PutSealed: &pb.PutSealed{Tenant: "t",
		Values: []*pb.SealedValue{value}}}}); err != nil {
		b.Fatal(err)
	}
	row, _ := v.View().LatestSealed("t", "a")
	for b.Loop() {
		if _, err := v.box.Open(v.View().SealedView, row); err != nil {
			b.Fatal(err)
		}
	}
}
