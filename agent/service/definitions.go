package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/duty/keys"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/lint"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Plugins are the plugins of this agent; *host.Host implements it.
type Plugins interface {
	Types() []host.Type
	// Validate lets a plugin check a user's values for its fields.
	Validate(ctx context.Context, kind model.Kind, name, scope string, fields map[string]any) (model.Faults, error)
	// Rank lets a plugin rank hardware and image types.
	Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error)
}

// Definitions checks and writes definitions.
type Definitions struct {
	Supervisor Supervisor
	// Plugins is nil on an agent without plugins.
	Plugins Plugins
	Agent   string // this agent's name
	// HostExec decides which users may write definitions whose work runs on control hosts.
	HostExec hostexec.Rules
	Logger   *slog.Logger
}

// Put checks definitions and writes all of them, or none if one has faults. A definition that is the
// same as its latest version gets no new one. With opts.DryRun it applies the write to a copy of the
// state that is dropped, so that the answer and the error are those of the write.
func (d *Definitions) Put(ctx context.Context, who model.Caller, defs []model.StoredDefinition, opts rest.PutOptions) (api.Written, error) {
	m, l, err := leader(d.Supervisor)
	if err != nil {
		return api.Written{}, err
	}
	if w, ok := (view{View: m.Machine.View()}).Answered(who); ok && !opts.DryRun {
		return w, nil // the definitions that the check compares may have changed since
	}
	v := m.Machine.View()
	list, hiding := make([]model.Definition, len(defs)), make([]model.Definition, len(defs))
	var secrets model.Faults // literals where references to secrets belong
	var hidden []string      // the values of references
	admin := who.Role == model.RoleAdmin || who.Role == model.RoleSuperadmin
	put := &pb.PutDefinitions{CreateOnly: opts.CreateOnly, UnlessSame: !opts.CreateOnly, NumbersContinue: true}
	for i, def := range defs {
		given, err := model.Restore(def.Kind, def.Body)
		if err != nil {
			return api.Written{}, err
		}
		if err := d.HostExec.Among(v.Agents).Ask(who, hostexec.Definition(given)); err != nil {
			return api.Written{}, fmt.Errorf("%s: %w", given.ID(), err)
		}
		secrets = append(secrets, lint.Literals(given, func(plugin string) (offered, defined model.PluginType) {
			return v.TypesOf(who.Tenant, plugin)
		})...)
		if hiding[i], err = withSecrets(v, m.Box, who, given); err != nil {
			return api.Written{}, fmt.Errorf("%s: %w", given.ID(), err)
		}
		// A write of another value replaces the one that it was compared with. A dry run could be repeated, so that only administrators,
		// whose exports have the values, learn what is the same.
		hiding[i] = kept(v, m.Box, who.Tenant, hiding[i], admin || !opts.DryRun)
		// Plugins check the values themselves.
		var texts []string
		if list[i], texts, err = revealed(v, m.Box, who.Tenant, hiding[i]); err != nil {
			return api.Written{}, fmt.Errorf("%s: %w", given.ID(), err)
		}
		hidden = append(hidden, texts...)
		put.Definitions = append(put.Definitions, &pb.Definition{
			Kind: string(def.Kind), Name: def.Name, Body: def.Body, HostExec: def.Kind == model.KindService && hostexec.May(who),
		})
	}
	faults, warnings := lint.Lint(list, orchestrate.Lookup(m.Machine.View(), who.Tenant), macro.Check)
	warnings = append(warnings, secrets...)
	if d.Plugins != nil {
		found, unchecked := validate(ctx, d.Plugins, list, faults)
		faults, warnings = append(faults, found...), append(warnings, unchecked...)
	}
	hide := mask.New(hidden...)
	for _, f := range slices.Concat(faults, warnings) {
		f.Message = hide.Text(f.Message)
	}
	if len(faults) > 0 {
		return api.Written{Warnings: warnings}, faults
	}
	c := &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: put}}
	var w api.Written
	if opts.DryRun {
		err = encode(hiding, put)
	} else {
		err = seal(ctx, l.Keys.Sealer, who.Tenant, hiding, put)
	}
	if err != nil {
		return api.Written{}, err
	}
	if opts.DryRun {
		c.Tenant, c.Actor = who.Tenant, who.Actor
		a := m.Machine.Try(c, time.Now().UnixMilli())
		w, err = written(a), a.Err
	} else {
		w, err = write(ctx, d.Supervisor, who, c)
	}
	w.Warnings = warnings
	return w, err
}

// withSecrets returns a definition with the secrets that its author refers to, as model.Hidden.
func withSecrets(v *state.View, o state.Opener, who model.Caller, d model.Definition) (model.Definition, error) {
	if p, ok := d.Value.(*model.Provider); ok {
		var faults model.Faults
		for _, name := range slices.Sorted(maps.Keys(p.Provisioner)) {
			// Rules about control hosts read these fields.
			if !model.SoundsSecret(name) && model.SoundsLikeReceiver(name) && profile.Refers(p.Provisioner[name]) {
				faults.Add("provisioner."+name, "refers to a secret, but may decide which machine is reached: write the value itself")
			}
		}
		if len(faults) > 0 {
			return d, faults.About(d.ID())
		}
	}
	return d.MapParts(func(p model.Part) (map[string]any, error) { return v.Resolve(o, who, p.Fields) })
}

// kept returns a definition in which the references of its latest version stand in place of the same values; see sealed.Box.Keep. What is
// written out in a configuration is not encrypted, and so stays.
func kept(v *state.View, box *sealed.Box, tenant string, d model.Definition, literals bool) model.Definition {
	latest, ok := v.Definition(tenant, d.Kind, d.Name, 0)
	if !ok {
		return d
	}
	old, err := model.Restore(latest.Kind, latest.Body)
	if err != nil {
		return d // it is replaced
	}
	was := old.KeyedParts()
	d, _ = d.MapParts(func(p model.Part) (map[string]any, error) { // it does not fail
		return box.Keep(v.SealedView, tenant, p.Fields, was[p.Key].Fields, literals && p.Plugin != ""), nil
	})
	return d
}

// encode replaces the bodies of definitions that have references, as seal does, for a write that is only tried.
func encode(defs []model.Definition, put *pb.PutDefinitions) (err error) {
	for i, d := range defs {
		for _, p := range d.Parts() {
			if err == nil && model.HasSealedRef(p.Fields) {
				put.Definitions[i].Body, err = model.Encode(d)
			}
		}
	}
	return err
}

// revealed returns a definition with the values that are model.Hidden, or to which it has references, and the texts in them.
func revealed(v *state.View, o state.Opener, tenant string, d model.Definition) (_ model.Definition, texts []string, err error) {
	d, err = d.MapParts(func(p model.Part) (map[string]any, error) {
		fields, err := o.OpenFields(v.SealedView, tenant, p.Fields)
		if err != nil {
			return nil, err
		}
		texts = append(texts, sealed.RevealedBy(p.Fields, fields)...)
		return model.MapFields(fields, func(v any) (any, error) {
			h, ok := v.(model.Hidden)
			if !ok {
				return v, nil
			}
			texts = append(texts, fmt.Sprint(h.Value))
			return h.Value, nil
		})
	})
	return d, texts, err
}

// seal encrypts the sensitive fields of definitions. It replaces the bodies of those to which this happened.
func seal(ctx context.Context, s *keys.Sealer, tenant string, defs []model.Definition, put *pb.PutDefinitions) error {
	for i, d := range defs {
		changed := false
		with, err := d.MapParts(func(p model.Part) (fields map[string]any, err error) {
			switch kind, name, _ := strings.Cut(p.Plugin, "/"); kind {
			case "provider":
				x := model.Provider{ProviderType: name, Provisioner: p.Fields}
				err, fields = s.SealFields(ctx, tenant, &x), x.Provisioner
			case "automator":
				x := model.ServiceAction{Type: name, Fields: p.Fields}
				err, fields = s.SealAction(ctx, tenant, &x), x.Fields
			default:
				fields, err = s.SealHidden(ctx, tenant, p.Fields)
			}
			changed = changed || model.HasSealedRef(fields)
			return fields, err
		})
		if err == nil && changed {
			put.Definitions[i].Body, err = model.Encode(with)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.ID(), err)
		}
	}
	return nil
}

// Reveal returns a definition with the values of its encrypted fields. It works on agents with the state and the keys of the mesh.
func (d *Definitions) Reveal(tenant string, def model.Definition) (model.Definition, error) {
	m, err := voter(d.Supervisor)
	if err != nil {
		return def, err
	}
	out, _, err := revealed(m.Machine.View(), m.Box, tenant, def)
	if err != nil {
		return def, fmt.Errorf("%s: %w", def.ID(), err)
	}
	return out, nil
}

// Delete deletes one version of a definition; version 0 means all. Without force it refuses to
// delete a definition that is in use.
func (d *Definitions) Delete(
	ctx context.Context, who model.Caller, kind model.Kind, name string, version int, force bool,
) (api.Written, error) {
	return write(ctx, d.Supervisor, who, &pb.Command{Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
		Delete:     []*pb.DefinitionVersion{{Kind: string(kind), Name: name, Version: int32(version)}},
		UnlessUsed: !force, NumbersContinue: true,
	}}})
}

// rankTimeout is how long a plugin may take to rank.
const rankTimeout = 10 * time.Second

// Rank asks a plugin of this agent for the comparator that it offers. All failures are
// faults of the input: the caller chose the comparator and can choose another.
func (d *Definitions) Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error) {
	var faults model.Faults
	if d.Plugins == nil {
		faults.Add("comparator", fmt.Sprintf("agent %s runs no plugins, so none offers the comparator %q: use \"original\" or \"cost\"", d.Agent,
			q.Comparator))
		return nil, faults
	}
	ctx, cancel := context.WithTimeout(ctx, rankTimeout)
	defer cancel()
	r, err := d.Plugins.Rank(ctx, q)
	if err != nil && !errors.As(err, &faults) {
		d.Logger.Warn("a plugin did not rank", "comparator", q.Comparator, "error", err)
		faults.Add("comparator", err.Error())
	}
	if err != nil {
		return nil, faults
	}
	return r, nil
}
