package model

import "testing"

func TestSealedRefs(t *testing.T) {
	ref := SealedRef{ID: "abc2", Version: 7}
	if got, ok := ParseSealedRef(ref.String()); !ok || got != ref {
		t.Error(got, ok)
	}
	for _, v := range []any{"", "x", 7, nil, "coopr-sealed:", "coopr-sealed:abc", "coopr-sealed:abc@", "x " + ref.String(), ref.String() + "x",
		ref.String() + ref.String(), "coopr-sealed:a@99999999999", "coopr-sealed:a@07", []any{ref.String()}} {
		if got, ok := ParseSealedRef(v); ok {
			t.Errorf("%v is %v", v, got)
		}
	}
	if faults := CheckSealedRefs("fields", map[string]any{"a": 1, "b": map[string]any{"c": []any{"x coopr-sealed:y"}}}); len(faults) != 1 ||
		faults[0].Path != "fields.b" {
		t.Error(faults)
	}
}
