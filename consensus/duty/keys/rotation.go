package keys

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	pb "github.com/coopr/coopr/rpc/proto"
)

// rotateEvery is the time between two rounds while a rotation is under way.
const rotateEvery = 5 * time.Second

// nextRound returns when the members are asked again.
func nextRound(v *state.View) time.Time {
	if slices.ContainsFunc(v.Rotations(), func(r roster.Rotation) bool { return r.Phase != roster.RotationDone }) {
		return time.Now().Add(rotateEvery)
	}
	return time.Now().Add(every)
}

// rotation returns the rotation of the mesh key that is under way. One that has begun waits for a rotation of the CA without a bridge:
// until that is done, whoever has the key of the CA can pass as a voter, and would get the new key.
func (c *Controller) rotation() (roster.Rotation, bool) {
	v := c.cfg.Machine.View()
	r, ok := v.Rotation(roster.KindKeyring)
	if ca, rotates := v.Rotation(roster.KindCA); rotates && ca.NoBridge && ca.Phase != roster.RotationDone && r.Phase == roster.RotationBegun {
		return r, false
	}
	return r, ok && r.Phase != roster.RotationDone
}

// fresh is the new key of a rotation before it is on record.
type fresh struct {
	rotation uint32
	key      keyring.Key
}

// newKey writes the new key of a rotation that has begun into this keyring. The key of an earlier term is replaced, as it is not on record.
func (c *Controller) newKey(r roster.Rotation) error {
	if c.fresh.rotation != r.Number {
		c.fresh = fresh{r.Number, keyring.NewKey(r.MeshKey)}
	}
	return c.cfg.Ring.Put(keyring.Set{Active: c.cfg.Ring.Set().Active, Keys: []keyring.Key{c.fresh.key}})
}

// live returns the keys of this keyring that members need: those that the state names, and a new one that is about to be on record.
// A mesh that has no key yet needs all.
func (c *Controller) live() keyring.Set {
	v := c.cfg.Machine.View()
	set := c.cfg.Ring.Set()
	if _, ok := v.DataKey(""); !ok {
		return set
	}
	needed := needed(v)
	if r, ok := c.rotation(); ok && r.Phase == roster.RotationBegun {
		needed[r.MeshKey] = true
	}
	set.Keys = slices.DeleteFunc(set.Keys, func(k keyring.Key) bool { return !needed[k.Number] })
	return set
}

// needed returns the numbers of the mesh keys that the state names, or with which it is encrypted.
func needed(v *state.View) map[uint32]bool {
	out := map[uint32]bool{}
	for n := range v.MeshKeys() {
		out[n] = true
	}
	if m := v.MeshIdentity(); m != nil {
		out[table.KeyNumber(m.SealedCA)], out[table.KeyNumber(m.SealedGossip)] = true, true
	}
	return out
}

// Needs reports whether a state needs the mesh key with a number.
func Needs(v *state.View, number uint32) bool { return needed(v)[number] }

// rotate carries on with a rotation of the mesh key, as far as it can. holders are the members that have all live keys. A full rotation
// goes on without the values that cannot be decrypted; the error names them.
func (c *Controller) rotate(ctx context.Context, members []Member, answers map[string]Status, holders map[string]bool) (err error) {
	var lost error
	defer func() { err = errors.Join(err, lost) }()
	for {
		r, ok := c.rotation()
		if !ok {
			return nil
		}
		var behind []string
		p := &pb.Rotate{}
		switch r.Phase {
		case roster.RotationBegun:
			if c.fresh.rotation != r.Number {
				return nil // it began after this round did, which the next one knows
			}
			// The key must survive this leader before it is on record, as no other key can take its place then.
			if had, voters := voting(members, holders), count(members); had <= voters/2 {
				return fmt.Errorf("%d of %d voters have the new key of the mesh, and a majority is needed", had, voters)
			}
			p.Print = c.fresh.key.Print()
		case roster.RotationSpread:
			for _, m := range members {
				if !holders[m.ID] {
					behind = append(behind, m.ID)
				}
			}
		case roster.RotationActive:
			err := c.activate(c.cfg.Machine.View())
			if err == nil {
				lost, err = c.encryptAgain(ctx, r)
			}
			if err != nil {
				return fmt.Errorf("encrypt with the new key of the mesh: %w", err)
			}
		case roster.RotationRetire:
			var err error
			if behind, err = c.retire(ctx, r, members, answers); err != nil {
				return err
			}
		}
		if err := c.move(ctx, r, p, behind); err != nil || len(behind) > 0 {
			return err
		}
	}
}

// move moves a rotation to its next phase, or notes the members that have not followed.
func (c *Controller) move(ctx context.Context, r roster.Rotation, p *pb.Rotate, behind []string) error {
	slices.Sort(behind)
	if len(behind) > 0 && slices.Equal(behind, r.Behind) {
		return nil
	}
	p.Kind, p.Number, p.Behind = logformat.RotationKinds.Number(r.Kind), r.Number, behind
	p.Phase = logformat.RotationPhases.Number(r.Phase)
	if p.Next = p.Phase; len(behind) == 0 {
		p.Next++
	}
	if err := c.commit(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_Rotate{Rotate: p}}); err != nil {
		return fmt.Errorf("rotation %d of the %s, after phase %q: %w", r.Number, r.Kind, r.Phase, err)
	}
	if len(behind) == 0 {
		c.cfg.Logger.Info("the rotation of a key goes on", "kind", r.Kind, "number", r.Number, "phase", logformat.RotationPhases.Word(p.Next))
	}
	return nil
}

// commit proposes a command and waits until it is applied.
func (c *Controller) commit(ctx context.Context, command *pb.Command) error {
	answers, err := c.cfg.Propose(ctx, command)
	if err != nil {
		return err
	}
	return answers[0].Err
}

// retire erases the keys that nothing needs from the members' keyrings. It returns the members that have them still.
func (c *Controller) retire(ctx context.Context, r roster.Rotation, members []Member, answers map[string]Status) (
	behind []string, err error) {
	need := needed(c.cfg.Machine.View())
	for _, m := range members {
		st, ok := answers[m.ID]
		if m.ID == c.cfg.ID {
			st, ok = Status{Prints: prints(c.cfg.Ring.Set())}, true
		}
		if !ok {
			behind = append(behind, m.ID)
			continue
		}
		old := slices.DeleteFunc(slices.Sorted(maps.Keys(st.Prints)), func(n uint32) bool { return need[n] })
		if len(old) == 0 {
			continue
		}
		done, e := c.cfg.Retire(ctx, m.ID, r.MeshKey, old, r.Index)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("erase old keys from the keyring of agent %s: %w", m.ID, e))
		}
		if !done {
			behind = append(behind, m.ID)
		}
	}
	return behind, err
}

// encryptAgain encrypts with the new mesh key what others have encrypted. In a full rotation there are new data keys too, with which all
// values are encrypted again, and a new signing key: who had the old keys could read the one before. The error lost names values that
// cannot be decrypted: they stay as they are, and so do their data keys.
func (c *Controller) encryptAgain(ctx context.Context, r roster.Rotation) (lost, err error) {
	mesh, err := c.cfg.Box.RewrapMesh(c.cfg.Machine.View(), r.MeshKey)
	if err == nil && mesh != nil {
		err = c.reencrypt(ctx, &pb.Reseal{Mesh: mesh})
	}
	if err != nil {
		return nil, err
	}
	if !r.Full {
		return nil, c.rewrap(ctx, r.MeshKey)
	}
	for _, tenant := range owners(c.cfg.Machine.View()) {
		if k, ok := c.cfg.Machine.View().DataKey(tenant); !ok || k.MeshKey == r.MeshKey {
			continue
		}
		if err := c.cfg.Box.NewDataKey(ctx, tenant); err != nil && !errors.Is(err, problem.NotFound) { // a tenant may be deleted
			return nil, err
		}
	}
	if err := errors.Join(c.renewSigning(ctx), c.renewTaskKey(ctx)); err != nil {
		return nil, err
	}
	if lost, err = c.resealValues(ctx); err != nil {
		return lost, err
	}
	if err = c.dropDataKeys(ctx); err == nil && lost != nil {
		err = c.rewrap(ctx, r.MeshKey) // else the old mesh key could never retire
	}
	return lost, err
}

// owners returns the tenants that have data keys; "" is the mesh.
func owners(v *state.View) (out []string) {
	for _, k := range v.DataKeys() {
		out = append(out, k.Tenant)
	}
	return slices.Compact(out)
}

// reencrypt commits what was encrypted again.
func (c *Controller) reencrypt(ctx context.Context, p *pb.Reseal) error {
	return c.commit(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: p}})
}

// rewrap encrypts all data keys with a mesh key.
func (c *Controller) rewrap(ctx context.Context, meshKey uint32) error {
	for {
		v := c.cfg.Machine.View()
		p := &pb.Reseal{}
		for _, k := range v.DataKeys() {
			if k.MeshKey == meshKey {
				continue
			}
			again, err := c.cfg.Box.Rewrap(v, k, meshKey)
			if err != nil {
				return fmt.Errorf("data key of tenant %q: %w", k.Tenant, err)
			}
			if p.Keys = append(p.Keys, again); len(p.Keys) >= batchSecrets {
				break
			}
		}
		if len(p.Keys) == 0 {
			return nil
		}
		if err := c.reencrypt(ctx, p); err != nil {
			return err
		}
	}
}

// lostNamed is how many of the values that cannot be decrypted an error names.
const lostNamed = 20

// resealValues encrypts values with the latest data keys of their tenants. The error lost names those that cannot be decrypted.
func (c *Controller) resealValues(ctx context.Context) (lost, err error) {
	skip := map[view.SealedKey]bool{}
	var names []string
	for {
		v := c.cfg.Machine.View()
		latest := map[string]uint32{}
		for _, k := range v.DataKeys() {
			latest[k.Tenant] = k.Number // the last one has the greatest number
		}
		p, size := &pb.Reseal{}, 0
		v.EachSealed(func(row table.SealedRow) bool {
			key := view.SealedKey{Tenant: row.Tenant, SealedRef: model.SealedRef{ID: row.ID, Version: row.Version}}
			if row.DataKeyNumber() >= latest[row.Tenant] || skip[key] {
				return true
			}
			var again *pb.ResealedValue
			switch again, err = c.cfg.Box.Again(v, row); {
			case errors.Is(err, sealed.ErrUnreadable):
				if skip[key], err = true, nil; len(skip) <= lostNamed {
					names = append(names, row.ID)
				}
				return true
			case err != nil:
				err = fmt.Errorf("version %d of a value of tenant %q: %w", row.Version, row.Tenant, err)
				return false
			}
			p.Values = append(p.Values, again)
			size += len(again.Value.Sealed)
			return size < batchBytes && len(p.Values) < batchSecrets
		})
		if err == nil && len(p.Values) > 0 {
			if err = c.reencrypt(ctx, p); err == nil {
				continue
			}
		}
		if len(skip) > 0 {
			lost = fmt.Errorf("%d values cannot be decrypted and stay as they are, among them %v: write them again", len(skip), names)
		}
		return lost, err
	}
}

// dropDataKeys removes data keys that newer ones have replaced.
func (c *Controller) dropDataKeys(ctx context.Context) error {
	p := &pb.Reseal{}
	keys := c.cfg.Machine.View().DataKeys()
	for i, k := range keys {
		if i+1 < len(keys) && keys[i+1].Tenant == k.Tenant {
			p.Drop = append(p.Drop, &pb.DataKeyName{Tenant: k.Tenant, Number: k.Number})
		}
	}
	if len(p.Drop) == 0 {
		return nil
	}
	return c.reencrypt(ctx, p)
}
