package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// KindTaskSample is a recorded task, such as the original's provisioner-spec/task.json. It is
// recognized, but not imported.
const KindTaskSample Kind = "task sample"

// Definition is one definition of any kind, as files and requests contain it.
type Definition struct {
	Kind Kind
	Name string
	// Value is a *Provider, *HardwareType, *ImageType, *Service, *ClusterTemplate,
	// *PartialTemplate, *PluginType or *Policies, and nil for a sample.
	Value any
	// Source is the file that it was read from, and Line its first line there.
	Source string
	Line   int
}

// Define wraps a definition that was made in Go. The value must be one of the pointers that
// Definition.Value may hold.
func Define(kind Kind, value any) Definition {
	d := Definition{Kind: kind, Value: value}
	d.Name = d.base().Name
	return d
}

// ID returns the name of the definition within its tenant: "clustertemplates/lamp".
func (d Definition) ID() string { return string(d.Kind) + "/" + d.Name }

// Imports reports whether the definition can be imported, and if not, why.
func (d Definition) Imports() (bool, string) {
	if d.Kind == KindTaskSample {
		return false, "a recorded task, not a definition: there is nothing to import"
	}
	return true, ""
}

// base returns the common fields of a definition, or empty ones for a sample.
func (d Definition) base() *Base {
	switch v := d.Value.(type) {
	case *Provider:
		return &v.Base
	case *HardwareType:
		return &v.Base
	case *ImageType:
		return &v.Base
	case *Service:
		return &v.Base
	case *ClusterTemplate:
		return &v.Base
	case *PartialTemplate:
		return &v.Base
	case *PluginType:
		return &v.Base
	case *Policies:
		return &v.Base
	}
	return &Base{Name: d.Name}
}

// Base returns the name, label, description, icon and version.
func (d Definition) Base() Base { return *d.base() }

// NewValue returns an empty value of a kind, or nil for an unknown kind.
func NewValue(kind Kind) any {
	switch kind {
	case KindProvider:
		return new(Provider)
	case KindHardwareType:
		return new(HardwareType)
	case KindImageType:
		return new(ImageType)
	case KindService:
		return new(Service)
	case KindClusterTemplate:
		return new(ClusterTemplate)
	case KindPartialTemplate:
		return new(PartialTemplate)
	case KindProviderType, KindAutomatorType:
		return new(PluginType)
	case KindPolicies:
		return new(Policies)
	}
	return nil
}

// Encode encodes a definition's value as canonical JSON: fixed order of keys, no empty values,
// and neither version nor author nor the author's right, which the state sets. Decoding the result returns the same definition, and
// encoding that returns the same bytes.
func Encode(d Definition) ([]byte, error) {
	if d.Value == nil {
		return nil, fmt.Errorf("%s holds no definition", d.ID())
	}
	// Readers may share the value, so a copy is tidied.
	c, err := d.clone()
	if err != nil {
		return nil, err
	}
	c.base().Version, c.base().Author, c.base().HostExec = 0, "", false
	tidy(reflect.ValueOf(c.Value))
	return marshal(c.Value)
}

// tidy removes empty lists and maps from structs, as package decode does.
func tidy(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			tidy(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if !f.CanSet() {
				continue
			}
			if (f.Kind() == reflect.Slice || f.Kind() == reflect.Map) && f.Len() == 0 {
				f.SetZero()
			}
			tidy(f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			tidy(v.Index(i))
		}
	case reflect.Map:
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		for _, k := range v.MapKeys() {
			c := reflect.New(v.Type().Elem()).Elem()
			c.Set(v.MapIndex(k))
			tidy(c)
			v.SetMapIndex(k, c)
		}
	}
}

func (d Definition) clone() (Definition, error) {
	data, err := marshal(d.Value)
	if err != nil {
		return d, err
	}
	d.Value = NewValue(d.Kind)
	if d.Value == nil {
		return d, fmt.Errorf("there is no kind of definition called %q", d.Kind)
	}
	return d, json.Unmarshal(data, d.Value)
}

// Restore decodes the result of Encode or json.Marshal, version included, without checking it
// again. It is for stored definitions.
func Restore(kind Kind, data []byte) (Definition, error) {
	d := Definition{Kind: kind, Value: NewValue(kind)}
	if d.Value == nil {
		return d, fmt.Errorf("there is no kind of definition called %q", kind)
	}
	if err := json.Unmarshal(data, d.Value); err != nil {
		return d, fmt.Errorf("stored definition of %s: %w", kind, err)
	}
	d.Name = d.base().Name
	return d, nil
}

// marshal is json.Marshal without the escapes that only HTML needs.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

var errNoKind = errors.New("no such kind")

// ParseKind parses a kind as people write it: "services", "service", "HardwareType",
// "hardware-type", "cluster template".
func ParseKind(s string) (Kind, error) {
	plain := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(s))
	for _, k := range Kinds {
		if plain == string(k) || plain+"s" == string(k) {
			return k, nil
		}
	}
	if plain == "template" || plain == "templates" {
		return KindClusterTemplate, nil
	}
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = string(k)
	}
	return "", fmt.Errorf("%w %q%s (it must be one of %s)", errNoKind, words.Shorten(s), words.DidYouMean(plain, names), KindNames())
}

// KindNames returns the names of all kinds, for a message.
func KindNames() string {
	names := make([]string, len(Kinds))
	for i, k := range Kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}
