// Package keys has the leader's controller of the mesh's keys. It makes the first key, has all members of the Raft group keep the
// keys in their keyrings, and hands over to a member that has the keys if the leader has not.
package keys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Member is a member of the Raft group.
type Member struct {
	ID    string
	Voter bool
}

// Status is what a member answers about itself.
type Status struct {
	FeatureLevel uint32
	Prints       map[uint32][]byte // fingerprints of the keys in its keyring, by number
	Exported     keyring.Exported  // the latest export of its keyring
}

// Authorities makes CAs. Certificates are in DER.
type Authorities interface {
	// New returns the certificate and the key of a new CA.
	New() (cert, key []byte, err error)
	// Bridge returns the certificate of a CA as an older one signs it.
	Bridge(oldCert, oldKey, cert, key []byte, until time.Time) ([]byte, error)
}

// Config configures a Controller. All fields but Issues are required.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Box     *sealed.Box
	Ring    *keyring.Ring
	// ID is this agent's id.
	ID string
	// Members returns the members of the Raft group, this agent among them.
	Members func() []Member
	// Ask asks another member for its status. Put writes keys into its keyring.
	Ask func(ctx context.Context, member string) (Status, error)
	Put func(ctx context.Context, member string, keys keyring.Set) error
	// Retire has a member erase keys, this one too, and use another. index is that of the entry from which on nothing needs them. done
	// is false as long as older entries are in the member's log and snapshots.
	Retire func(ctx context.Context, member string, active uint32, keys []uint32, index uint64) (done bool, err error)
	// CA makes CAs.
	CA Authorities
	// Issues is set if the mesh issues tokens of tasks.
	Issues bool
	// HandOver transfers the leadership to a voter.
	HandOver func(ctx context.Context, member string) error
	Logger   *slog.Logger
}

const (
	// every is the time between two looks at the members' keyrings. A member gets the keys before it is one, so
	// that only a keyring that was lost is found later.
	every = time.Minute
	// askTimeout bounds one round of questions.
	askTimeout = 2 * time.Second
)

// Controller keeps the mesh's keys on its voters. It is made for one term.
type Controller struct {
	cfg   Config
	queue *loop.Queue[struct{}]
	turn  *semaphore.Weighted // of one round
	fresh fresh               // the new key of a rotation that has begun
	swept time.Time           // when unused values were last removed in this term
	whole bool                // no provider is in the clear any more, as the types of providers were described then
	types [sha256.Size]byte
	// Followers are the agents that follow rotations.
	Followers Followers
	// Sealer encrypts values for documents.
	Sealer *Sealer
	// restored is set when a snapshot has replaced the state.
	restored atomic.Bool
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg, turn: semaphore.NewWeighted(1)}
	c.Sealer = &Sealer{machine: cfg.Machine, box: cfg.Box, makeKeys: c.round}
	c.queue = loop.New(loop.Config[struct{}]{
		Reconcile: func(ctx context.Context, _ struct{}) (time.Time, error) {
			err := c.round(ctx)
			return nextRound(c.cfg.Machine.View()), err
		},
		MaxBackoff: every,
		Failed: func(_ struct{}, err error, pause time.Duration) {
			cfg.Logger.Warn("the keys of the mesh are not where they should be", "error", err, "again_in", pause)
		},
	})
	return c
}

// Name returns the name of the duty.
func (c *Controller) Name() string { return "keys" }

// Restore does nothing, because a term must not wait for answers of other members.
func (c *Controller) Restore(context.Context) error { return nil }

// Run looks at the keyrings at regular intervals until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.cfg.Machine.Watch(func(b state.Batch) {
		if b.Restored {
			c.restored.Store(true)
		}
		if b.Restored || b.Rotations {
			c.queue.Add(struct{}{})
		}
	})()
	c.queue.Add(struct{}{})
	return c.queue.Run(ctx)
}

// Admit writes the keys into the keyring of an agent that is about to become a member. st is the agent's status. As long as
// the state names no key, members get them later.
func (c *Controller) Admit(ctx context.Context, agent string, st Status) error {
	if _, ok := c.cfg.Machine.View().DataKey(""); !ok {
		return nil
	}
	return c.put(ctx, agent, st, c.live())
}

// put writes keys into the keyring of an agent that does not have them.
func (c *Controller) put(ctx context.Context, agent string, st Status, set keyring.Set) error {
	if !slices.ContainsFunc(set.Keys, func(k keyring.Key) bool { return !bytes.Equal(st.Prints[k.Number], k.Print()) }) {
		return nil
	}
	if err := c.cfg.Put(ctx, agent, set); err != nil {
		return fmt.Errorf("write the keys of the mesh into the keyring of agent %s: %w", agent, err)
	}
	c.cfg.Logger.Info("an agent has got the keys of the mesh", "member", agent)
	return nil
}

// round has everybody have the keys, once. While a member of an older build keeps the feature level down, members get and make the keys of
// that level, and nothing more.
func (c *Controller) round(ctx context.Context) error {
	if err := c.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.turn.Release(1)
	v := c.cfg.Machine.View()
	members := c.cfg.Members()
	answers := c.ask(ctx, members)
	if lacks := lacking(v.MeshKeys(), prints(c.cfg.Ring.Set())); len(lacks) > 0 {
		return c.handOver(ctx, v, answers, lacks)
	}
	var older error // the level cannot rise
	if v.FeatureLevel() < state.FeatureLevel {
		if older = c.raise(ctx, members, answers); older != nil && v.FeatureLevel() < logformat.SealedLevel {
			return older
		}
	}
	if err := c.activate(v); err != nil {
		return errors.Join(older, err)
	}
	if r, ok := c.rotation(); ok && r.Phase == roster.RotationBegun {
		if err := c.newKey(r); err != nil {
			return err
		}
	}
	holders, err := c.distribute(ctx, members, answers)
	err = errors.Join(older, err)
	if _, ok := v.DataKey(""); ok {
		if older != nil {
			return err
		}
		return errors.Join(err, c.reseal(ctx), c.resealProviders(ctx), c.signing(ctx), c.taskKeys(ctx), c.sweep(ctx),
			c.noteExports(ctx, answers), c.rotate(ctx, members, answers, holders), c.rotateGossip(ctx), c.rotateCA(ctx))
	}
	had := voting(members, holders)
	// Values must not depend on keys that the next leader may not have.
	if voters := count(members); had <= voters/2 {
		return errors.Join(err, fmt.Errorf("%d of %d voters have the keys, and a majority is needed to begin", had, voters))
	}
	if e := c.cfg.Box.MakeMeshKey(ctx); e != nil || older != nil {
		return errors.Join(err, e)
	}
	return errors.Join(err, c.reseal(ctx), c.resealProviders(ctx), c.signing(ctx), c.taskKeys(ctx))
}

// activate makes the key active that the state names. A mesh whose state names none gets its first key.
func (c *Controller) activate(v *state.View) error {
	set := c.cfg.Ring.Set()
	if active, ok := v.ActiveMeshKey(); ok {
		return c.cfg.Ring.Put(keyring.Set{Active: active, Keys: set.Keys})
	}
	if set.Active != 0 {
		return nil
	}
	c.cfg.Logger.Info("this agent makes the first key of the mesh")
	return c.cfg.Ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}})
}

// ask asks the other members at once. Members that do not answer are left out.
func (c *Controller) ask(ctx context.Context, members []Member) map[string]Status {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out := map[string]Status{}
	var mu sync.Mutex
	var all errgroup.Group
	for _, m := range members {
		if m.ID == c.cfg.ID {
			continue
		}
		all.Go(func() error {
			st, err := c.cfg.Ask(ctx, m.ID)
			if err != nil {
				c.cfg.Logger.Debug("a member does not answer about its keyring", "member", m.ID, "error", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			out[m.ID] = st
			return nil
		})
	}
	_ = all.Wait() // no function returns an error
	return out
}

// distribute writes the live keys into the keyrings of members that lack one. It returns the members that have all of them then,
// this one included.
func (c *Controller) distribute(ctx context.Context, members []Member, answers map[string]Status) (holders map[string]bool, err error) {
	set := c.live()
	holders = map[string]bool{c.cfg.ID: true}
	for _, m := range members {
		st, answered := answers[m.ID]
		if !answered || m.ID == c.cfg.ID {
			continue // it is asked again, and cannot lead without being asked for its state
		}
		if e := c.put(ctx, m.ID, st, set); e != nil {
			err = errors.Join(err, e)
			continue
		}
		holders[m.ID] = true
	}
	return holders, err
}

// raise raises the feature level of the mesh once all members understand the new one.
func (c *Controller) raise(ctx context.Context, members []Member, answers map[string]Status) error {
	for _, m := range members {
		if st, ok := answers[m.ID]; m.ID != c.cfg.ID && (!ok || st.FeatureLevel < state.FeatureLevel) {
			return fmt.Errorf("the feature level of the mesh stays at %d: member %s does not run a build of level %d, or does not answer",
				c.cfg.Machine.View().FeatureLevel(), m.ID, state.FeatureLevel)
		}
	}
	done, err := c.cfg.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{
		RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: state.FeatureLevel}}})
	if err != nil {
		return fmt.Errorf("raise the feature level of the mesh: %w", err)
	}
	return done[0].Err
}

// handOver transfers the leadership to a voter that has the keys which this one lacks. Without such a voter, this one
// goes on, and what needs the keys fails.
func (c *Controller) handOver(ctx context.Context, v *state.View, answers map[string]Status, lacks []uint32) error {
	for _, m := range c.cfg.Members() {
		st, ok := answers[m.ID]
		if !m.Voter || !ok || len(lacking(v.MeshKeys(), st.Prints)) > 0 {
			continue
		}
		c.cfg.Logger.Warn("this leader does not have the keys of the mesh, handing over", "lacks", lacks, "member", m.ID)
		if err := c.cfg.HandOver(ctx, m.ID); err != nil {
			return fmt.Errorf("hand over to member %s, which has the keys: %w", m.ID, err)
		}
		return nil
	}
	return fmt.Errorf("%w %v, and no voter that answers has them: restore the keyring from a backup (docs/operations.md)",
		keyring.ErrNoKey, lacks)
}

// lacking returns the numbers of keys that are missing among those with the given fingerprints.
func lacking(want, have map[uint32][]byte) (out []uint32) {
	for _, n := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(want[n], have[n]) {
			out = append(out, n)
		}
	}
	return out
}

// prints returns the fingerprints of keys by number.
func prints(s keyring.Set) map[uint32][]byte {
	out := map[uint32][]byte{}
	for _, k := range s.Keys {
		out[k.Number] = k.Print()
	}
	return out
}

// voting counts the voters among the members with some ids.
func voting(members []Member, ids map[string]bool) (voters int) {
	for _, m := range members {
		if m.Voter && ids[m.ID] {
			voters++
		}
	}
	return voters
}

func count(members []Member) (voters int) {
	for _, m := range members {
		if m.Voter {
			voters++
		}
	}
	return voters
}
