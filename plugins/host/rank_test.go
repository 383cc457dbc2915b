package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/solver"
)

// TestComparator solves with the ranking of the chaos plugin, which prefers its lucky type and
// lucky services.
func TestComparator(t *testing.T) {
	h := newHost(t, nil)
	entry := func(luck bool) map[string]map[string]any {
		e := map[string]any{"flavor": "f"}
		if luck {
			e["luck"] = true
		}
		return map[string]map[string]any{"p": e}
	}
	known := model.NewSet(
		model.Define(model.KindProvider, &model.Provider{Base: model.Base{Name: "p"}}),
		model.Define(model.KindHardwareType, &model.HardwareType{Base: model.Base{Name: "a"}, ProviderMap: entry(false)}),
		model.Define(model.KindHardwareType, &model.HardwareType{Base: model.Base{Name: "b"}, ProviderMap: entry(true)}),
		model.Define(model.KindImageType, &model.ImageType{Base: model.Base{Name: "i"},
			ProviderMap: map[string]map[string]any{"p": {"image": "i"}}}),
		model.Define(model.KindService, &model.Service{Base: model.Base{Name: "one"}}),
		model.Define(model.KindService, &model.Service{Base: model.Base{Name: "two"}}),
		model.Define(model.KindService, &model.Service{Base: model.Base{Name: "lucky"}}),
	)
	in := solver.Input{Provider: "p", Nodes: 4, Wanted: []string{"one", "two", "lucky"}, Comparator: "lucky"}
	in.Template.Name = "t"
	in.Template.Constraints.Layout.CantCoexist = [][]string{{"one", "lucky"}, {"two", "lucky"}}
	solve := func() (*solver.Answer, error) {
		in := in
		if err := in.Define(t.Context(), model.WithRanker(known, h.Rank)); err != nil {
			return nil, err
		}
		return solver.Solve(t.Context(), in)
	}
	a, err := solve()
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Layout) != 2 || a.Comparator != "lucky" || a.Layout[0].Count != 3 || a.Layout[0].HardwareType != "b" ||
		!slices.Equal(a.Layout[0].Services, []string{"lucky"}) || a.Layout[1].HardwareType != "b" {
		t.Errorf("%+v", a.Layout)
	}
	in.Comparator = "original" // two services on one node
	if a, err = solve(); err != nil || a.Layout[0].Count != 3 || a.Layout[0].HardwareType != "a" || len(a.Layout[0].Services) != 2 {
		t.Errorf("%+v %v", a, err)
	}
	in.Comparator, in.Template.Comparator = "", "lucky"
	if a, err = solve(); err != nil || a.Comparator != "lucky" || a.Layout[0].HardwareType != "b" {
		t.Errorf("chosen by the template: %+v %v", a, err)
	}
	var faults model.Faults
	in.Comparator = "luckiest"
	if _, err = solve(); !errors.As(err, &faults) || faults[0].Path != "comparator" {
		t.Errorf("nobody's comparator: %v", err)
	}
	in.Comparator, in.Template.Name = "lucky", "unlucky"
	if _, err = solve(); err == nil || !strings.Contains(err.Error(), "bad luck") {
		t.Errorf("a plugin that fails: %v", err)
	}
}

// TestExecComparator ranks with a script, with one that prints nonsense, and with one that hangs.
func TestExecComparator(t *testing.T) {
	for _, c := range []struct{ script, says string }{
		{`in=$(cat)
case $in in
*'"verb":"rank"'*'"question":{"comparator":"mine-first"'*) ;;
*) echo "$in" >&2; exit 1;;
esac
echo '{"ranking":{"kinds":[{"hardwaretype":"b","imagetype":"i","cost":"0.5"}],"worth":{"s":3}}}'`, ""},
		{"echo '{}'", "without a \"ranking\""},
		{"echo '{\"ranking\":[1]}'", "did not answer with JSON"},
		{"echo hello", "did not answer with JSON"},
		{"echo lost >&2; exit 4", "exit status 4"},
		{"sleep 60", "deadline"},
	} {
		h := newHost(t, func(cfg *Config) {
			writeExec(t, cfg.Dirs[0], "mine", "automator", "#!/bin/sh\n"+c.script+"\n", "comparators: [mine-first]\n")
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if strings.HasPrefix(c.script, "sleep") {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		r, err := h.Rank(ctx, model.RankingQuestion{Comparator: "mine-first"})
		cancel()
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, %v", c.script, r, err)
			}
			continue
		}
		if err != nil || len(r.Kinds) != 1 || r.Kinds[0].Cost != "0.5" || r.Worth["s"] != 3 {
			t.Errorf("%+v %v", r, err)
		}
	}
}

// TestComparatorNames checks the names that a descriptor may give to comparators.
func TestComparatorNames(t *testing.T) {
	d := model.PluginType{Base: model.Base{Name: "x"}, Plugin: "1", Comparators: []string{"cost", "Big", "fine", "fine"}}
	faults := CheckDescriptor(model.KindProviderType, &d)
	var paths []string
	for _, f := range faults {
		paths = append(paths, f.Path)
	}
	if !slices.Equal(paths, []string{"comparators[0]", "comparators[1]", "comparators[3]"}) {
		t.Error(faults)
	}
}
