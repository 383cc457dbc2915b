package model_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
)

func TestChoose(t *testing.T) {
	d, err := decode.Definition(model.KindClusterTemplate, []byte(`
name: t
defaults:
  services: [base, {name: web, config: {port: 80}}]
  provider: p
  hardwaretype: small
  imagetype: linux
  dnsSuffix: example.com
  config: {web: {host: here, port: 1}, log: {level: info}}
compatibility: {hardwaretypes: [small, large], imagetypes: [bsd], services: [base, web, db]}
constraints: {size: {min: 2, max: 4}}
administration: {leaseduration: {initial: 1h}}
`))
	if err != nil {
		t.Fatal(err)
	}
	tpl := *d.Value.(*model.ClusterTemplate)
	r := model.CreateCluster{Name: "c", NumMachines: 3, ImageType: "bsd",
		Config: map[string]any{"log": map[string]any{"file": "x"}, "web": nil}}
	got, err := r.Choose(tpl)
	want := model.Choice{Provider: "p", HardwareType: "small", ImageType: "bsd", Services: []string{"base", "web"}, DNSSuffix: "example.com",
		Config: map[string]any{"log": map[string]any{"level": "info", "file": "x"}}, Lease: 3_600_000}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	r.ConfigMode = model.ConfigReplace
	if got, _ = r.Choose(tpl); !reflect.DeepEqual(got.Config, r.Config) {
		t.Errorf("replace: %v", got.Config)
	}
	r.Config = nil
	if got, _ = r.Choose(tpl); !reflect.DeepEqual(got.Config["web"], map[string]any{"host": "here", "port": 80.0}) {
		t.Errorf("silent: %v", got.Config)
	}
	long := model.Millis(7_200_000)
	_, err = model.CreateCluster{NumMachines: 5, HardwareType: "smal", Services: []string{"base", "dbb"},
		InitialLeaseDuration: &long}.Choose(tpl)
	wantLines(t, err,
		`numMachines: 5 is more than the 4 nodes that template t allows`,
		`hardwaretype: hardware type smal is not compatible with template t: did you mean "small"?`,
		`imagetype: the default image type linux of template t is not among its compatible ones: choose another (bsd are)`,
		`services[1]: service dbb is not compatible with template t: did you mean "db"?`,
		`initialLeaseDuration: 2h is longer than the 1h that the template allows`)
	_, err = model.CreateCluster{NumMachines: 1}.Choose(model.ClusterTemplate{Base: model.Base{Name: "u"},
		Constraints: model.Constraints{Size: tpl.Constraints.Size}})
	wantLines(t, err,
		`provider: is missing, and template u names no default: name one`,
		`numMachines: 1 is less than the 2 nodes that template u needs at least`)
}

// TestChooseLease refuses leases that would end after the last time that can be written: such a cluster would count as expired.
func TestChooseLease(t *testing.T) {
	tpl := model.ClusterTemplate{Base: model.Base{Name: "t"}}
	for _, lease := range []model.Millis{0, 7_200_000, 1_000_000 * 86_400_000} {
		got, err := model.CreateCluster{NumMachines: 1, Provider: "p", InitialLeaseDuration: &lease}.Choose(tpl)
		if err != nil || got.Lease != lease {
			t.Errorf("%s: %s, %v", lease, got.Lease, err)
		}
	}
	for _, lease := range []model.Millis{1_000_000*86_400_000 + 1, math.MaxInt64} {
		const want = "initialLeaseDuration: a lease can have at most 1000000d: ask for a shorter one, or for 0, which has no end"
		_, err := model.CreateCluster{NumMachines: 1, Provider: "p", InitialLeaseDuration: &lease}.Choose(tpl)
		wantLines(t, err, want)
		tpl.Administration.LeaseDuration.Initial = lease // so is the template's lease
		_, err = model.CreateCluster{NumMachines: 1, Provider: "p"}.Choose(tpl)
		wantLines(t, err, want)
		tpl.Administration.LeaseDuration.Initial = 0
	}
}
