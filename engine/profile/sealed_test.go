package profile

import (
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestRefusedRefs expects that no property may look like the name of an encrypted value.
func TestRefusedRefs(t *testing.T) {
	ref := model.SealedRef{ID: "abc", Version: 1}.String()
	name := PropField + "comment"
	p := Profile{Name: "p", Provisioner: Provisioner{Name: Native, Properties: []Property{{Name: name, Value: ref}}}}
	spec := NativeSpec()
	for what, fs := range map[string]model.Faults{
		"settings": CheckSettings(map[string]string{PropertyPrefix + name: ref}, OfTenant),
		"a schedule": (&Schedule{Name: "s", Program: "p", Cron: "@daily", Concurrency: Skip, CatchUp: CatchNone,
			Properties: map[string]string{PropertyPrefix + name: ref}}).Check(),
		"a profile": p.Check(&spec, []string{Native}),
		"a run":     spec.Validate(map[string]string{name: ref}),
	} {
		if len(fs) != 1 || fs[0].Message != model.RefusedRef(ref) {
			t.Errorf("%s: %v", what, fs)
		}
	}
}
