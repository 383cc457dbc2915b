package solver

import (
	"math/big"
	"slices"
	"sort"
)

// machine is a hardware type as the provider offers it.
type machine struct {
	name string
	cost *big.Rat // nil: not stated
	room [dimensions]*big.Rat
}

// pair is a hardware type with an image type, as indexes of world.hardware and world.images.
type pair struct{ hw, img int }

// capacities are the keys of a provider map's entry that limit the services on a node.
var capacities = [dimensions]string{"vcpu", "ram", "disk"}

// findTypes collects the hardware and image types that the provider offers.
func (w *world) findTypes() {
	in := &w.in
	hw := map[string]map[string]any{}
	for _, t := range in.HardwareTypes {
		if e, ok := t.ProviderMap[w.provider]; ok && e["flavor"] != nil {
			hw[t.Name] = e
		}
	}
	img := map[string]bool{}
	for _, t := range in.ImageTypes {
		if e, ok := t.ProviderMap[w.provider]; ok && e["image"] != nil {
			img[t.Name] = true
		}
	}
	for _, name := range sortedKeys(hw) {
		m := machine{name: name}
		if c, ok := decimal(hw[name]["cost"]); ok && c.Sign() >= 0 {
			m.cost = c
		}
		for d, key := range capacities {
			if c, ok := decimal(hw[name][key]); ok {
				m.room[d] = c
			}
		}
		w.hardware = append(w.hardware, m)
	}
	w.images = sortedKeys(img)
}

// checkTypes records a fault if no type is left for new nodes.
func (w *world) checkTypes() {
	in := &w.in
	knownHW := make([]string, 0, len(in.HardwareTypes))
	for _, t := range in.HardwareTypes {
		knownHW = append(knownHW, t.Name)
	}
	knownImg := make([]string, 0, len(in.ImageTypes))
	for _, t := range in.ImageTypes {
		knownImg = append(knownImg, t.Name)
	}
	var offeredHW []string
	for _, m := range w.hardware {
		offeredHW = append(offeredHW, m.name)
	}
	w.wantedHW = w.checkType(
		"hardware",
		"hardwaretype",
		in.HardwareType,
		in.Template.Defaults.HardwareType,
		in.Template.Compatibility.HardwareTypes,
		offeredHW,
		knownHW,
	)
	w.wantedImg = w.checkType(
		"image",
		"imagetype",
		in.ImageType,
		in.Template.Defaults.ImageType,
		in.Template.Compatibility.ImageTypes,
		w.images,
		knownImg,
	)
}

// checkType returns the requested or default type, or "" if there is neither. It records a fault if
// that type cannot be used or if no type is left.
func (w *world) checkType(word, path, asked, standard string, compatible, offered, known []string) string {
	t := w.in.Template.Name
	if asked == "" {
		asked = standard
		if asked != "" {
			path = "template.defaults." + path
		}
	}
	if asked != "" {
		switch {
		case !slices.Contains(known, asked):
			w.fault(path, "%s type %s does not exist", word, asked)
		case !slices.Contains(offered, asked):
			w.fault(path, "%s type %s has no entry for provider %s: add one to its providermap, or choose another type", word, asked, w.provider)
		case len(compatible) > 0 && !slices.Contains(compatible, asked):
			w.fault(
				path,
				"%s type %s is not compatible with template %s: add it to compatibility.%stypes, or choose another type",
				word,
				asked,
				t,
				word,
			)
		}
		return asked
	}
	for _, o := range offered {
		if len(compatible) == 0 || slices.Contains(compatible, o) {
			return ""
		}
	}
	w.fault(path, "no %s types are available to use with template %s and provider %s", word, t, w.provider)
	return ""
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
