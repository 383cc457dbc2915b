package solver

import (
	"context"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Define fills in the missing parts of the input from a tenant's definitions: services, hardware
// and image types, the zones and hosts that the provider lists in its "provisioner", and the order
// that a plugin computes if the comparator is not built in. Template, Provider, Comparator and
// Change must be set. Its errors are those of model.Ranker.
func (in *Input) Define(ctx context.Context, known model.Lookup) error {
	if in.Services == nil {
		in.Services = map[string]model.Service{}
		all(known, model.KindService, func(s *model.Service) { in.Services[s.Name] = *s })
	}
	if in.HardwareTypes == nil {
		all(known, model.KindHardwareType, func(t *model.HardwareType) { in.HardwareTypes = append(in.HardwareTypes, *t) })
	}
	if in.ImageTypes == nil {
		all(known, model.KindImageType, func(t *model.ImageType) { in.ImageTypes = append(in.ImageTypes, *t) })
	}
	if d, ok := known.Definition(model.KindProvider, in.provider()); ok {
		if p, ok := d.Value.(*model.Provider); ok {
			in.Zones, in.Hosts = p.Places()
		}
	}
	ranker, ok := known.(model.Ranker)
	if c := in.comparator(); !ok || c == "" || c == ComparatorOriginal || c == ComparatorCost || !in.Change.chooses() {
		return nil
	}
	var err error
	in.Ranking, err = ranker.Rank(ctx, in.question())
	return err
}

func (in *Input) provider() string {
	if in.Provider == "" {
		return in.Template.Defaults.Provider
	}
	return in.Provider
}

// comparator returns the requested comparator, or "".
func (in *Input) comparator() string {
	if in.Comparator == "" {
		return in.Template.Comparator
	}
	return in.Comparator
}

// question returns the question to the plugin of a comparator.
func (in *Input) question() model.RankingQuestion {
	q := model.RankingQuestion{Comparator: in.comparator(), Template: in.Template.Name, Provider: in.provider()}
	add := func(list *[]model.RankedType, name, key string, entries map[string]map[string]any) {
		if e := entries[q.Provider]; e[key] != nil {
			*list = append(*list, model.RankedType{Name: name, Entry: e})
		}
	}
	for _, t := range in.HardwareTypes {
		add(&q.HardwareTypes, t.Name, "flavor", t.ProviderMap)
	}
	for _, t := range in.ImageTypes {
		add(&q.ImageTypes, t.Name, "image", t.ProviderMap)
	}
	byName := func(a, b model.RankedType) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(q.HardwareTypes, byName)
	slices.SortFunc(q.ImageTypes, byName)
	services := slices.Concat(in.Wanted, in.Change.Services)
	for _, n := range in.Existing {
		services = append(services, n.Services...)
	}
	if len(services) == 0 {
		for _, s := range in.Template.Defaults.Services {
			services = append(services, s.Name)
		}
	}
	q.Services = sortedUnique(services)
	return q
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
