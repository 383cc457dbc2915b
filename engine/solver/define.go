package solver

import (
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Define fills in what the input takes from a tenant's definitions: services,
// hardware and image types, and the zones and hosts of the provider, which its
// "provisioner" lists under these names. Template and Provider must be set.
func (in *Input) Define(known model.Lookup) {
	in.Services = map[string]model.Service{}
	all(known, model.KindService, func(s *model.Service) { in.Services[s.Name] = *s })
	all(known, model.KindHardwareType, func(t *model.HardwareType) { in.HardwareTypes = append(in.HardwareTypes, *t) })
	all(known, model.KindImageType, func(t *model.ImageType) { in.ImageTypes = append(in.ImageTypes, *t) })
	provider := in.Provider
	if provider == "" {
		provider = in.Template.Defaults.Provider
	}
	if d, ok := known.Definition(model.KindProvider, provider); ok {
		if p, ok := d.Value.(*model.Provider); ok {
			in.Zones, in.Hosts = texts(p.Provisioner["zones"]), texts(p.Provisioner["hosts"])
		}
	}
}

func all[T any](known model.Lookup, kind model.Kind, take func(*T)) {
	for _, name := range known.Names(kind) {
		if d, ok := known.Definition(kind, name); ok {
			if v, ok := d.Value.(*T); ok {
				take(v)
			}
		}
	}
}

// texts reads a list of names, which may be written as "a, b".
func texts(v any) []string {
	var out []string
	add := func(s string) {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	switch v := v.(type) {
	case string:
		for part := range strings.SplitSeq(v, ",") {
			add(part)
		}
	case []any:
		for _, one := range v {
			add(fmt.Sprint(one))
		}
	}
	return out
}
