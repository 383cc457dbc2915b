package model_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

func TestHiddenNeverPrints(t *testing.T) {
	v := map[string]any{"list": []any{model.Hidden{Value: "canary"}}}
	text, err := json.Marshal(v)
	if err != nil || string(text) != `{"list":["[redacted]"]}` {
		t.Errorf("%s, %v", text, err)
	}
	h := model.Hidden{Value: "canary"}
	if got := fmt.Sprintf("%v %v %+v %#v %s", v, h, h, h, h); got != "map[list:[[redacted]]] [redacted] [redacted] [redacted] [redacted]" {
		t.Error(got)
	}
	if !model.HasHidden(v) || model.HasHidden(map[string]any{"list": []any{"plain"}}) {
		t.Error("HasHidden is wrong")
	}
}

func TestHideSealedRefs(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"coopr-sealed:abc2@17","b":["coopr-sealed:x@1"]}`: `{"a":"[redacted]","b":["[redacted]"]}`,
		`{"a":"plain"}`: `{"a":"plain"}`,
	} {
		if got := string(model.HideSealedRefs([]byte(text))); got != want {
			t.Errorf("%s becomes %s", text, got)
		}
	}
}

// TestSealedRefsOfAClusterAreComplete puts a reference into each part of a cluster that may have one.
func TestSealedRefsOfAClusterAreComplete(t *testing.T) {
	n := uint32(0)
	ref := func() map[string]any {
		n++
		return map[string]any{"deep": []any{map[string]any{"x": model.SealedRef{ID: "a", Version: n}.String()}}}
	}
	services := func() map[string]model.Service {
		actions := map[string]model.ServiceAction{"start": {Fields: ref()}}
		return map[string]model.Service{"s": {Provisioner: model.ServiceProvisioner{Actions: actions}}}
	}
	cl := model.Cluster{Provider: model.Provider{Provisioner: ref()}, Config: ref(), Definitions: services(),
		Template: model.ClusterTemplate{Defaults: model.Defaults{Config: ref(), Services: []model.DefaultService{{Config: ref()}}}},
		Earlier:  []model.Target{{Definitions: services(), Config: ref()}}}
	body, err := json.Marshal(cl)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[model.SealedRef]bool{}
	for _, r := range cl.SealedRefs() {
		seen[r] = true
	}
	if all := model.SealedRefs(body); len(all) != int(n) || len(seen) != int(n) {
		t.Errorf("%d of %d references are found, and %d in its text", len(seen), n, len(all))
	}
}
