package sealed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coopr/coopr/consensus/state/view"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// SealFields returns a copy of a provider's fields in which the sensitive ones, and also those with the given names, are references to
// encrypted values of the tenant. It commits these values, each with a new id. References stay as they are. Leader only.
func (b *Box) SealFields(ctx context.Context, tenant, providerType string, fields map[string]any, also ...string) (map[string]any,
	error) {
	offered, defined := b.machine.View().ProviderTypes(tenant, providerType)
	return b.sealAll(ctx, tenant, fields, func(seal func(any) (any, error)) (map[string]any, error) {
		return replaced(offered, defined, fields, also, seal)
	})
}

// sealAll has replace make a copy of fields, in which it replaces values by their references. It commits these values. Without such
// values it returns the fields.
func (b *Box) sealAll(ctx context.Context, tenant string, fields map[string]any,
	replace func(seal func(any) (any, error)) (map[string]any, error)) (map[string]any, error) {
	put := &pb.PutSealed{Tenant: tenant}
	out, err := replace(func(v any) (any, error) {
		ref, value, err := b.sealValue(ctx, tenant, v)
		put.Values = append(put.Values, value)
		return ref, err
	})
	if err != nil || len(put.Values) == 0 {
		return fields, err
	}
	answers, err := b.propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_PutSealed{PutSealed: put}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return nil, fmt.Errorf("store encrypted values: %w", err)
	}
	return out, nil
}

// Sensitive reports whether SealFields would encrypt some of a provider's fields. offered and defined are the descriptions of the
// provider's type; see view.SealedView.
func Sensitive(offered, defined model.PluginType, fields map[string]any, also ...string) (found bool) {
	_, _ = replaced(offered, defined, fields, also, func(any) (any, error) { found = true; return nil, nil }) // it does not fail
	return found
}

// replaced returns a copy of a provider's fields in which seal replaces sensitive values. A tenant's definition of a provider type, or
// a run, cannot have fields encrypted that decide which machine is reached: rules about control hosts read them (engine/hostexec).
func replaced(offered, defined model.PluginType, fields map[string]any, also []string, seal func(any) (any, error)) (map[string]any,
	error) {
	sensitive := model.Sensitive(offered, fields)
	for _, name := range slices.Concat(also, model.Sensitive(defined, fields)) {
		if model.SoundsSecret(name) || !model.SoundsLikeReceiver(name) {
			sensitive = append(sensitive, name)
		}
	}
	return sealing{seal}.fields(sensitive, fields)
}

// SensitiveAction reports whether SealAction would encrypt some of an action's fields. offered and defined are the descriptions of the
// automator type; see view.SealedView.
func SensitiveAction(offered, defined model.PluginType, fields map[string]any) (found bool) {
	_, _ = replacedAction(offered, defined, fields, func(any) (any, error) { found = true; return nil, nil }) // it does not fail
	return found
}

// SealAction is SealFields for the fields of an action of a service, which an automator gets.
func (b *Box) SealAction(ctx context.Context, tenant, automatorType string, fields map[string]any) (map[string]any, error) {
	offered, defined := b.machine.View().TypesOf(tenant, "automator/"+automatorType)
	return b.sealAll(ctx, tenant, fields, func(seal func(any) (any, error)) (map[string]any, error) {
		return replacedAction(offered, defined, fields, seal)
	})
}

func replacedAction(offered, defined model.PluginType, fields map[string]any, seal func(any) (any, error)) (map[string]any, error) {
	return sealing{seal}.fields(slices.Concat(model.Sensitive(offered, fields), model.Sensitive(defined, fields)), fields)
}

// SealHidden returns a copy of values of a document in which those that are model.Hidden are references to encrypted values of the tenant;
// see SealFields. Leader only.
func (b *Box) SealHidden(ctx context.Context, tenant string, values map[string]any) (map[string]any, error) {
	return b.sealAll(ctx, tenant, values, func(seal func(any) (any, error)) (map[string]any, error) {
		return model.MapFields(values, func(v any) (any, error) {
			if h, ok := v.(model.Hidden); ok {
				return seal(h.Value)
			}
			return v, nil
		})
	})
}

// sealing replaces sensitive values.
type sealing struct{ seal func(v any) (any, error) }

// fields returns a copy of fields in which the sensitive ones are replaced, and those within the others that sound like secrets.
func (s sealing) fields(sensitive []string, fields map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(fields))
	for name, v := range fields {
		var err error
		if out[name], err = s.value(v, slices.Contains(sensitive, name)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s sealing) value(v any, sensitive bool) (any, error) {
	if h, ok := v.(model.Hidden); ok {
		return s.seal(h.Value)
	}
	if _, ok := model.ParseSealedRef(v); ok || v == nil || v == "" {
		return v, nil
	}
	if sensitive && !model.HasSealedRef(v) {
		return s.seal(v)
	}
	switch v := v.(type) {
	case map[string]any:
		if sensitive { // as a whole it would have a reference within an encrypted value, which nothing follows
			return s.fields(slices.Collect(maps.Keys(v)), v)
		}
		return s.fields(model.Sensitive(model.PluginType{}, v), v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = s.value(v[i], sensitive); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// sealValue encrypts the JSON of a value, so that it is of the same type again.
func (b *Box) sealValue(ctx context.Context, tenant string, v any) (string, *pb.SealedValue, error) {
	data, err := plain(v)
	if err != nil {
		return "", nil, err
	}
	ref := model.SealedRef{ID: NewID(), Version: 1}
	value, err := b.Seal(ctx, tenant, ref.ID, ref.Version, data)
	return ref.String(), value, err
}

// plain returns the JSON of a value, with what is hidden in it.
func plain(v any) ([]byte, error) {
	v, _ = model.MapValues(v, func(v any) (any, error) { // it does not fail
		switch x := v.(type) {
		case model.Hidden:
			return x.Value, nil
		case model.Secret:
			return x.Reveal(), nil
		}
		return v, nil
	})
	return json.Marshal(v)
}

// Keep returns a copy of values of a document in which the references of an earlier document stand in place of the same values at the
// same places, so that a document that is written again does not change. It compares what is model.Hidden and, with literals, all that
// stands where the earlier document has a reference. Whoever learns the result can try values, so that literals are for those who may
// read them. A reference whose value cannot be decrypted is not kept.
func (b *Box) Keep(v view.SealedView, tenant string, fields, stored map[string]any, literals bool) map[string]any {
	if len(fields) == 0 || !model.HasSealedRef(stored) {
		return fields
	}
	return b.kept(v, tenant, fields, stored, literals).(map[string]any)
}

func (b *Box) kept(v view.SealedView, tenant string, value, stored any, literals bool) any {
	switch old := stored.(type) {
	case map[string]any:
		if now, ok := value.(map[string]any); ok {
			out := make(map[string]any, len(now))
			for name, item := range now {
				out[name] = b.kept(v, tenant, item, old[name], literals)
			}
			return out
		}
	case []any:
		if now, ok := value.([]any); ok && len(now) == len(old) {
			out := make([]any, len(now))
			for i, item := range now {
				out[i] = b.kept(v, tenant, item, old[i], literals)
			}
			return out
		}
	}
	if _, ok := model.ParseSealedRef(stored); !ok || !literals && !model.HasHidden(value) {
		return value
	}
	was, err := b.opened(v, tenant, stored)
	if err != nil {
		return value
	}
	x, err1 := plain(was)
	y, err2 := plain(value)
	if errors.Join(err1, err2) == nil && bytes.Equal(x, y) {
		return stored
	}
	return value
}

// OpenFields returns a copy of a provider's fields with the values that references stand for. Fields without references are
// returned as they are.
func (b *Box) OpenFields(v view.SealedView, tenant string, fields map[string]any) (map[string]any, error) {
	if !model.HasSealedRef(fields) {
		return fields, nil
	}
	out, err := b.opened(v, tenant, fields)
	if err != nil {
		return nil, err
	}
	return out.(map[string]any), nil
}

func (b *Box) opened(v view.SealedView, tenant string, value any) (any, error) {
	var err error
	switch x := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for name, item := range x {
			if out[name], err = b.opened(v, tenant, item); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for i, item := range x {
			if out[i], err = b.opened(v, tenant, item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	ref, ok := model.ParseSealedRef(value)
	if !ok {
		return value, nil
	}
	row, ok := v.Sealed(tenant, ref.ID, ref.Version)
	if !ok {
		return nil, errors.New("the encrypted value is gone: write the value again")
	}
	data, err := b.Open(v, row)
	if err != nil {
		return nil, err
	}
	var out any
	err = json.Unmarshal(data, &out)
	return out, err
}
