package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// ContentPart is the name of the part of an object that is its content. Its other parts are "actions.NAME".
const ContentPart = "content"

const actionsPart = "actions."

// MapFields returns a copy of a document in which fn replaces the parts of objects that have fields of their types: the content and the
// extra fields of each action. Errors of fn name the object and the part.
func (d *Document) MapFields(fn func(o *Object, part string, fields map[string]any) (map[string]any, error)) (*Document, error) {
	out := *d
	out.Objects = make([]Object, len(d.Objects))
	for i := range d.Objects {
		o, err := d.Objects[i].MapFields(fn)
		if err != nil {
			return nil, err
		}
		out.Objects[i] = *o
	}
	if d.Objects == nil {
		out.Objects = nil
	}
	return &out, nil
}

// MapFields is Document.MapFields for one object.
func (o *Object) MapFields(fn func(o *Object, part string, fields map[string]any) (map[string]any, error)) (*Object, error) {
	out := *o
	var err error
	if o.Content != nil {
		if out.Content, err = fn(o, ContentPart, o.Content); err != nil {
			return nil, fmt.Errorf("object %s: %s: %w", o.Name, ContentPart, err)
		}
	}
	if o.Actions != nil {
		out.Actions = make(map[string]map[string]any, len(o.Actions))
	}
	for name, fields := range o.Actions {
		if fields != nil {
			part := actionsPart + name
			if fields, err = fn(o, part, fields); err != nil {
				return nil, fmt.Errorf("object %s: %s: %w", o.Name, part, err)
			}
		}
		out.Actions[name] = fields
	}
	return &out, nil
}

// Part returns the fields of a part of an object; see Document.MapFields.
func (o *Object) Part(name string) map[string]any {
	if name == ContentPart {
		return o.Content
	}
	return o.Actions[strings.TrimPrefix(name, actionsPart)]
}

// ErrNoValue means that the value of a reference is not at hand.
var ErrNoValue = errors.New("an encrypted value of it is not here: no leader with the keys of the mesh has sent it")

// ValueKey returns the key in Part.Values of a reference that an object on a host has. Hosts have values of their own: what is in place
// on a host is noted there, and a host that others control must not get values of another one by its name.
func ValueKey(host, ref string) string { return host + " " + ref }

// ValuesOf returns the values for objects on a host, by reference.
func (p *Part) ValuesOf(host string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for key, v := range p.Values {
		if ref, ok := strings.CutPrefix(key, ValueKey(host, "")); ok {
			out[ref] = v
		}
	}
	return out
}

// OpenFields returns a copy of fields with the values of references, which are JSON by reference, in place of these. It calls found for
// each of them. It fails with ErrNoValue.
func OpenFields(fields map[string]any, values map[string]json.RawMessage, found func(v any)) (map[string]any, error) {
	if !model.HasSealedRef(fields) {
		return fields, nil
	}
	return model.MapFields(fields, func(v any) (any, error) {
		ref, ok := model.ParseSealedRef(v)
		if !ok {
			return v, nil
		}
		text, ok := values[ref.String()]
		if !ok {
			return nil, ErrNoValue
		}
		var out any
		if err := json.Unmarshal(text, &out); err != nil {
			return nil, ErrNoValue // the error would quote the value
		}
		found(out)
		return out, nil
	})
}

// Open returns an object with the values of references in place of these; see OpenFields.
func (o *Object) Open(values map[string]json.RawMessage, found func(v any)) (*Object, error) {
	return o.MapFields(func(_ *Object, _ string, fields map[string]any) (map[string]any, error) {
		return OpenFields(fields, values, found)
	})
}

// Refs returns the names of the encrypted values in an object.
func (o *Object) Refs() (out []string) {
	_, _ = o.MapFields(func(_ *Object, _ string, fields map[string]any) (map[string]any, error) { // it does not fail
		return model.MapFields(fields, func(v any) (any, error) {
			if ref, ok := model.ParseSealedRef(v); ok {
				out = append(out, ref.String())
			}
			return v, nil
		})
	})
	return out
}
