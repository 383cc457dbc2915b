package solver

import (
	"context"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Define fills in what the input takes from a tenant's definitions, where it is
// not there yet: services, hardware and image types, the zones and hosts of the
// provider, which its "provisioner" lists under these names, and the order that a plugin
// gives where the comparator is no built-in one. Template, Provider, Comparator
// and what the change names must be set. Its errors are those of model.Ranker.
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

// comparator is the one that is asked for, or "".
func (in *Input) comparator() string {
	if in.Comparator == "" {
		return in.Template.Comparator
	}
	return in.Comparator
}

// question is what a plugin is asked for its comparator.
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
