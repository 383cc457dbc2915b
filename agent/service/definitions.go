package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/coopr/coopr/consensus/duty/keys"
	"github.com/coopr/coopr/consensus/duty/orchestrate"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/lint"
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
	list := make([]model.Definition, len(defs))
	var hidden []string // passwords that providers had already
	put := &pb.PutDefinitions{CreateOnly: opts.CreateOnly, UnlessSame: !opts.CreateOnly, NumbersContinue: true}
	for i, def := range defs {
		if list[i], err = model.Restore(def.Kind, def.Body); err != nil {
			return api.Written{}, err
		}
		if err := d.HostExec.Ask(who, hostexec.Definition(list[i])); err != nil {
			return api.Written{}, fmt.Errorf("%s: %w", list[i].ID(), err)
		}
		if p, ok := list[i].Value.(*model.Provider); ok {
			// Plugins check the values themselves.
			fields, err := m.Box.OpenFields(v.SealedView, who.Tenant, p.Provisioner)
			if err != nil {
				return api.Written{}, fmt.Errorf("%s: %w", list[i].ID(), err)
			}
			hidden = append(hidden, sealed.RevealedBy(p.Provisioner, fields)...)
			p.Provisioner = fields
		}
		put.Definitions = append(put.Definitions, &pb.Definition{
			Kind: string(def.Kind), Name: def.Name, Body: def.Body, HostExec: def.Kind == model.KindService && hostexec.May(who),
		})
	}
	faults, warnings := lint.Lint(list, orchestrate.Lookup(m.Machine.View(), who.Tenant), macro.Check)
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
	if !opts.DryRun {
		if err := seal(ctx, l.Keys, who.Tenant, put); err != nil {
			return api.Written{}, err
		}
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

// seal encrypts the sensitive fields of providers.
func seal(ctx context.Context, k *keys.Controller, tenant string, put *pb.PutDefinitions) error {
	for _, d := range put.Definitions {
		if d.Kind != string(model.KindProvider) {
			continue
		}
		def, err := model.Restore(model.KindProvider, d.Body)
		if err != nil {
			return err
		}
		if err := k.SealFields(ctx, tenant, def.Value.(*model.Provider)); err != nil {
			return fmt.Errorf("%s: %w", def.ID(), err)
		}
		if d.Body, err = model.Encode(def); err != nil {
			return fmt.Errorf("%s: %w", def.ID(), err)
		}
	}
	return nil
}

// Reveal returns a provider with the values of its encrypted fields. It works on agents with the state and the keys of the mesh.
func (d *Definitions) Reveal(tenant string, p model.Provider) (model.Provider, error) {
	m, err := voter(d.Supervisor)
	if err != nil {
		return p, err
	}
	fields, err := m.Box.OpenFields(m.Machine.View().SealedView, tenant, p.Provisioner)
	if err != nil {
		return p, fmt.Errorf("provider %s: %w", p.Name, err)
	}
	p.Provisioner = fields
	return p, nil
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
