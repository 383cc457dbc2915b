package keys

import (
	"context"
	"errors"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Sealer encrypts the values of documents before they are proposed. It knows from which feature level on the members of the mesh can read
// them, and has the keys made of a mesh that has none yet. It is safe for concurrent use.
type Sealer struct {
	machine  *state.Machine
	box      *sealed.Box
	makeKeys func(ctx context.Context) error
}

// Seal encrypts a version of a value; see sealed.Box. It makes the keys of a mesh that has none yet.
func (s *Sealer) Seal(ctx context.Context, tenant, id string, version uint32, value []byte) (*pb.SealedValue, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	out, err := s.box.Seal(ctx, tenant, id, version, value)
	return out, coded(err)
}

// SealFields encrypts the sensitive fields of a provider; see sealed.Box. Fields without sensitive values need no keys. As
// long as the mesh has members of an older build, the fields stay as they are.
func (s *Sealer) SealFields(ctx context.Context, tenant string, p *model.Provider, also ...string) error {
	v := s.machine.View()
	if v.FeatureLevel() < logformat.SealedLevel {
		return refuseHidden(p.Provisioner)
	}
	if offered, defined := v.ProviderTypes(tenant, p.ProviderType); !sealed.Sensitive(offered, defined, p.Provisioner, also...) {
		return nil
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	fields, err := s.box.SealFields(ctx, tenant, p.ProviderType, p.Provisioner, also...)
	if err != nil {
		return coded(err)
	}
	p.Provisioner = fields
	return nil
}

// SealAction encrypts the sensitive fields of an action of a service; see sealed.Box. As long as the mesh has members that cannot read
// them, sensitive fields stay as they are, and values that come from secrets are refused.
func (s *Sealer) SealAction(ctx context.Context, tenant string, a *model.ServiceAction) error {
	v := s.machine.View()
	if !v.Understands(logformat.RotationLevel) {
		return refuseHidden(a.Fields)
	}
	if offered, defined := v.TypesOf(tenant, "automator/"+a.Type); !sealed.SensitiveAction(offered, defined, a.Fields) {
		return nil
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	fields, err := s.box.SealAction(ctx, tenant, a.Type, a.Fields)
	if err != nil {
		return coded(err)
	}
	a.Fields = fields
	return nil
}

// SealHidden encrypts the values of a document that come from secrets; see sealed.Box. They are refused as long as the mesh has members
// that cannot read them.
func (s *Sealer) SealHidden(ctx context.Context, tenant string, values map[string]any) (map[string]any, error) {
	if !model.HasHidden(values) {
		return values, nil
	}
	if !s.machine.View().Understands(logformat.RotationLevel) {
		return nil, refuseHidden(values)
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	out, err := s.box.SealHidden(ctx, tenant, values)
	return out, coded(err)
}

// SealObjects encrypts the secrets in a site's document; see sealed.Box. As long as the mesh has members that cannot read them, sensitive
// fields stay as they are, and values that come from secrets are refused.
func (s *Sealer) SealObjects(ctx context.Context, tenant string, doc *site.Document) (*site.Document, error) {
	v := s.machine.View()
	if !v.Understands(logformat.RotationLevel) {
		return doc.MapFields(func(_ *site.Object, _ string, fields map[string]any) (map[string]any, error) {
			return fields, refuseHidden(fields)
		})
	}
	if !sealed.SensitiveObjects(v.SealedView, tenant, doc) {
		return doc, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	out, err := s.box.SealObjects(ctx, tenant, doc)
	return out, coded(err)
}

// refuseHidden returns an error if values come from secrets.
func refuseHidden(values map[string]any) error {
	if !model.HasHidden(values) {
		return nil
	}
	return problem.New(problem.Conflict, "secrets cannot be used here yet, as the mesh has members of an older build: upgrade them first "+
		"(`coopr members -o wide` shows their versions)")
}

// SealResults encrypts the sensitive ones among the results or saved values of a plugin's task; see sealed.Box. plugin is the key of
// its type. As long as the mesh has members that cannot read them, the values stay as they are.
func (s *Sealer) SealResults(ctx context.Context, tenant, plugin string, values map[string]any) (map[string]any, error) {
	v := s.machine.View()
	marked := sealed.Marked(v.SealedView, tenant, plugin)
	if !v.Understands(logformat.RotationLevel) || !sealed.SensitiveResults(marked, values) {
		return values, nil
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.box.SealResults(ctx, tenant, marked, values)
}

// ready makes the keys of a mesh that has none yet.
func (s *Sealer) ready(ctx context.Context) error {
	if _, ok := s.machine.View().DataKey(""); ok {
		return nil
	}
	if err := s.makeKeys(ctx); err != nil {
		return problem.New(problem.NoMajority, "no value can be encrypted yet: %w", err)
	}
	return nil
}

// coded returns an error for the user whose value cannot be encrypted.
func coded(err error) error {
	if errors.Is(err, keyring.ErrNoKey) {
		return problem.New(problem.Conflict, "%w", err)
	}
	return err
}
