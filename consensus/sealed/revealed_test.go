package sealed_test

import (
	"slices"
	"testing"

	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/engine/model"
)

func TestRevealedBy(t *testing.T) {
	ref := model.SealedRef{ID: "abc2", Version: 1}.String()
	fields := map[string]any{"region": "r", "password": ref, "list": []any{"x", map[string]any{"key": ref}}, "all": ref}
	opened := map[string]any{"region": "r", "password": "p1", "list": []any{"x", map[string]any{"key": "p2"}},
		"all": map[string]any{"a": []any{"p3", 7.0, nil, true}}}
	if got := sealed.RevealedBy(fields, opened); !slices.Equal(got, []string{"7", "p1", "p2", "p3"}) {
		t.Error(got)
	}
}
