package sites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/builtin"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
)

// secrets encrypts and decrypts the values in documents. Without box and seal it leaves them as they are.
type secrets struct {
	box  *sealed.Box
	seal func(ctx context.Context, tenant string, doc *site.Document) (*site.Document, error)
}

// given returns a document that a caller writes with the secrets that it refers to, as model.Hidden, and with stored references where it
// has model.Redacted. A stored value stays only in an object whose host, type, content and actions are the same in all other respects:
// each of them may decide what becomes of the value.
func (x secrets) given(v *state.View, who model.Caller, doc *site.Document) (*site.Document, error) {
	var faults model.Faults
	stored := latest(v, who.Tenant, doc.Name)
	with := *doc
	with.Objects = slices.Clone(doc.Objects)
	for i := range with.Objects {
		o, at := &with.Objects[i], fmt.Sprintf("objects[%d]", i)
		_, _ = o.MapFields(func(_ *site.Object, part string, fields map[string]any) (map[string]any, error) { // it does not fail
			faults = append(faults, model.CheckSealedRefs(at+"."+part, fields)...)
			if o.Type == builtin.TypeFileTree && profile.Refers(fields) {
				faults.Add(at+"."+part, "refers to a secret, which a file tree must not have: agents keep its history. Use a script or an automator")
			}
			return fields, nil
		})
		if !redacted(o) {
			continue
		}
		was := stored[o.Name]
		switch {
		case was == nil || len(was.Refs()) == 0:
			faults.Add(at, fmt.Sprintf("contains %s, but no value is stored: write the value itself", model.Redacted))
		case !bytes.Equal(acts(o), model.HideSealedRefs(acts(was))):
			faults.Add(at, fmt.Sprintf("contains %s, but the rest of its host, type, content and actions has changed: write the values themselves",
				model.Redacted))
		default:
			o.Content, o.Actions = was.Content, was.Actions
		}
	}
	if len(faults) > 0 || x.box == nil {
		return &with, faults.Err()
	}
	t, _ := v.Tenant(who.Tenant)
	size, most := int64(0), model.LimitDocumentBytes.Of(&t)
	return with.MapFields(func(_ *site.Object, _ string, fields map[string]any) (map[string]any, error) {
		out, err := v.Resolve(x.box, who, fields)
		if err != nil {
			return nil, err
		}
		_, _ = model.MapFields(out, func(v any) (any, error) { // it does not fail
			if h, ok := v.(model.Hidden); ok {
				text, _ := h.Value.(string)
				size += int64(len(text))
			}
			return v, nil
		})
		if size > most {
			return nil, problem.New(problem.TooLarge, "the texts with secrets have more than %d bytes, as many as a document of tenant %s may "+
				"have: split the site, or %s", most, who.Tenant, model.LimitDocumentBytes.Raise(who.Tenant))
		}
		return out, nil
	})
}

// acts returns the JSON of what decides what is done with the values in an object.
func acts(o *site.Object) []byte {
	out, _ := json.Marshal(site.Object{Host: o.Host, Type: o.Type, Content: o.Content, Actions: o.Actions}) // it came from JSON
	return out
}

// redacted reports whether an object has model.Redacted in the place of values.
func redacted(o *site.Object) (found bool) {
	_, _ = o.MapFields(func(_ *site.Object, _ string, fields map[string]any) (map[string]any, error) { // it does not fail
		return model.MapFields(fields, func(v any) (any, error) {
			found = found || v == model.Redacted
			return v, nil
		})
	})
	return found
}

// latest returns the objects of the latest generation of a site by name, if that has encrypted values; otherwise nil.
func latest(v *state.View, tenant, name string) map[string]*site.Object {
	r, ok := v.Site(tenant, name)
	if !ok {
		return nil
	}
	g, ok := v.Generation(tenant, name, r.Last)
	doc := &site.Document{}
	if !ok || !model.HasSealedRef(string(g.Document)) || json.Unmarshal(g.Document, doc) != nil {
		return nil
	}
	out := make(map[string]*site.Object, len(doc.Objects))
	for i := range doc.Objects {
		out[doc.Objects[i].Name] = &doc.Objects[i]
	}
	return out
}

// kept returns a document in which the references of the latest generation stand in place of the same values; see sealed.Box.Keep.
func (x secrets) kept(v *state.View, tenant string, doc *site.Document, literals bool) *site.Document {
	stored := latest(v, tenant, doc.Name)
	if len(stored) == 0 || x.box == nil {
		return doc
	}
	out, _ := doc.MapFields(func(o *site.Object, part string, fields map[string]any) (map[string]any, error) { // it does not fail
		old := stored[o.Name]
		if old == nil || old.Type != o.Type {
			return fields, nil
		}
		return x.box.Keep(v.SealedView, tenant, fields, old.Part(part), literals), nil
	})
	return out
}

// clear reports whether a document has secrets that are not encrypted, and can be.
func (x secrets) clear(v *state.View, tenant string, doc *site.Document) bool {
	return x.seal != nil && sealed.SensitiveObjects(v.SealedView, tenant, doc)
}

// withValues adds to a part the values of the references in it, and of those that the kept generations have for the same hosts. It fails
// if one of the part cannot be decrypted.
func (x secrets) withValues(v *state.View, r *site.Record, s *known, p *site.Part, hosts map[string]bool) error {
	if x.box == nil {
		return nil
	}
	p.Values = map[string]json.RawMessage{}
	value := func(host, ref string) error {
		at := site.ValueKey(host, ref)
		if _, ok := p.Values[at]; ok {
			return nil
		}
		opened, err := x.box.OpenFields(v.SealedView, r.Tenant, map[string]any{"value": ref})
		if err == nil {
			p.Values[at], err = json.Marshal(opened["value"])
		}
		return err
	}
	for i := range p.Document.Objects {
		o := &p.Document.Objects[i]
		for _, ref := range o.Refs() {
			if err := value(o.Host, ref); err != nil {
				return fmt.Errorf("object %s: %w", o.Name, err)
			}
		}
	}
	now := len(p.Values)
	for host, refs := range s.named(v, r, hosts) {
		for _, ref := range refs {
			_ = value(host, ref) // without it, what is in place is stopped with the present content
		}
	}
	if now == 0 {
		return nil
	}
	p.Sealed = p.Document
	var err error
	p.Document, err = p.Sealed.MapFields(func(o *site.Object, _ string, fields map[string]any) (map[string]any, error) {
		return site.OpenFields(fields, p.ValuesOf(o.Host), func(any) {})
	})
	return err
}

// named returns the names of the encrypted values that the kept generations of the site have for objects of some hosts, by host.
func (s *known) named(v *state.View, r *site.Record, hosts map[string]bool) map[string][]string {
	out := map[string][]string{}
	refs := map[uint64]map[string][]string{}
	for _, g := range v.Generations(r.Tenant, r.Name) {
		byHost, ok := s.refs[g.Number]
		if !ok {
			byHost = map[string][]string{}
			doc := &site.Document{}
			if model.HasSealedRef(string(g.Document)) && json.Unmarshal(g.Document, doc) == nil {
				for i := range doc.Objects {
					o := &doc.Objects[i]
					byHost[o.Host] = append(byHost[o.Host], o.Refs()...)
				}
			}
		}
		refs[g.Number] = byHost
		for host, names := range byHost {
			if hosts[host] {
				out[host] = append(out[host], names...)
			}
		}
	}
	s.refs = refs
	return out
}
