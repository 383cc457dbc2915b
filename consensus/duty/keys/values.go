package keys

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// A batch of secrets that are encrypted by one entry has at most so many, with so many bytes.
const (
	batchSecrets = 500
	batchBytes   = 512 << 10
)

// providerTypes returns the sum of the descriptions of all provider types, which say what is sensitive.
func providerTypes(v *state.View) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, t := range v.PluginTypes() {
		err = errors.Join(err, e.Encode(t))
	}
	for _, t := range v.Tenants() {
		for _, d := range v.Definitions(t.Name, model.KindProviderType) {
			err = errors.Join(err, e.Encode([]any{t.Name, d.Name, d.Version, d.Body}))
		}
	}
	h.Sum(sum[:0])
	return sum, err
}

// reseal encrypts the secrets that are still in the clear, because an earlier build wrote them.
func (c *Controller) reseal(ctx context.Context) error {
	for {
		inClear := c.cfg.Machine.View().ClearSecrets(batchSecrets)
		if len(inClear) == 0 {
			return nil
		}
		p, bytes := &pb.Reseal{}, 0
		for _, s := range inClear {
			value, err := c.cfg.Box.Seal(ctx, s.Tenant, sealed.NewID(), 1, []byte(s.Value))
			if err != nil {
				return err
			}
			p.Secrets = append(p.Secrets, &pb.ResealedSecret{Tenant: s.Tenant, Name: s.Name, Value: value})
			if bytes += len(value.Sealed); bytes >= batchBytes {
				break
			}
		}
		answers, err := c.cfg.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: p}})
		if err == nil {
			err = answers[0].Err
		}
		if err != nil {
			return fmt.Errorf("encrypt secrets that are in the clear: %w", err)
		}
		c.cfg.Logger.Info("secrets that were in the clear are encrypted", "secrets", len(p.Secrets))
	}
}

// resealProviders encrypts the sensitive fields of providers that are still in the clear: of definitions, clusters and their history. It
// does so once in a term, after a restore and when descriptions of provider types have changed, as everything that is written later is
// encrypted.
func (c *Controller) resealProviders(ctx context.Context) error {
	if c.restored.Swap(false) {
		c.whole = false
	}
	types, err := providerTypes(c.cfg.Machine.View())
	if err != nil {
		return err
	}
	if types != c.types {
		c.whole, c.types = false, types
	}
	full := map[string]error{} // tenants that may not store any more
	for !c.whole {
		v := c.cfg.Machine.View()
		types := map[[2]string][2]model.PluginType{} // of tenants, by name: there are many more clusters
		list := v.ClearProviders(func(tenant string, p *model.Provider) bool {
			key := [2]string{tenant, p.ProviderType}
			t, ok := types[key]
			if !ok {
				t[0], t[1] = v.ProviderTypes(tenant, p.ProviderType)
				types[key] = t
			}
			return full[tenant] == nil && sealed.Sensitive(t[0], t[1], p.Provisioner)
		}, batchSecrets)
		if len(list) == 0 {
			c.whole = len(full) == 0
			return errors.Join(slices.Collect(maps.Values(full))...)
		}
		p := &pb.Reseal{}
		same := map[string]map[string]any{} // many clusters have the same provider
		for _, x := range list {
			if full[x.Tenant] != nil {
				continue
			}
			text, err := json.Marshal(x.Provider.Provisioner)
			if err != nil {
				return err
			}
			key := x.Tenant + "\x00" + x.Provider.ProviderType + "\x00" + string(text)
			if same[key] == nil {
				same[key], err = c.cfg.Box.SealFields(ctx, x.Tenant, x.Provider.ProviderType, x.Provider.Provisioner)
				if errors.Is(err, problem.Quota) {
					full[x.Tenant] = err
					continue
				}
				if err != nil {
					return err
				}
			}
			r := &pb.ResealedProvider{Tenant: x.Tenant}
			switch x.Provider.Provisioner = same[key]; {
			case x.Definition != nil:
				r.Definition, r.Version = x.Definition.Name, int32(x.Definition.Version)
				r.Body, err = model.Encode(model.Define(model.KindProvider, &x.Provider))
			case x.Cluster != nil:
				r.Cluster, r.ClusterVersion = x.Cluster.ID, x.Cluster.Version
				r.Fields, err = json.Marshal(x.Provider.Provisioner)
			default:
				r.Cluster, r.History = x.Snapshot.Cluster, int32(x.Snapshot.Number)
				r.Fields, err = json.Marshal(x.Provider.Provisioner)
			}
			if err != nil {
				return err
			}
			p.Providers = append(p.Providers, r)
		}
		answers, err := c.cfg.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_Reseal{Reseal: p}})
		if err == nil {
			err = answers[0].Err
		}
		if err != nil {
			return fmt.Errorf("encrypt fields of providers that are in the clear: %w", err)
		}
		c.cfg.Logger.Info("fields of providers that were in the clear are encrypted", "providers", len(list))
	}
	return nil
}

const (
	// unusedAge is the age at which a value that nothing names is removed. Younger ones may belong to a document that is about
	// to be written.
	unusedAge = time.Hour
	// sweepEvery is the time between two searches for such values.
	sweepEvery = 10 * time.Minute
	// sweepMost is how many one entry removes.
	sweepMost = 1000
)

// sweep removes values that nothing names any more.
func (c *Controller) sweep(ctx context.Context) error {
	now := time.Now()
	if now.Sub(c.swept) < sweepEvery {
		return nil
	}
	c.swept = now
	unused := c.cfg.Machine.View().UnusedSealed(now.Add(-unusedAge).UnixMilli(), sweepMost)
	if len(unused) == 0 {
		return nil
	}
	p := &pb.DropSealed{}
	for _, r := range unused {
		p.Values = append(p.Values, &pb.SealedName{Tenant: r.Tenant, Id: r.ID, Version: r.Version})
	}
	_, err := c.cfg.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_DropSealed{DropSealed: p}})
	return err
}
