package mask

import (
	"encoding/json"
	"slices"
	"testing"
)

// Numbers are hidden as they are in JSON, from which a program has them, with all their digits.
func TestTexts(t *testing.T) {
	for in, want := range map[string][]string{
		`null`: nil, `true`: nil, `""`: nil, `"a"`: {"a"}, `7`: {"7"}, `12345678`: {"12345678"}, `1234567890123`: {"1234567890123"}, `0.25`: {"0.25"},
		`[1, {"a": "b", "c": [2, false, 123456789]}]`: {"1", "123456789", "2", "b"},
	} {
		var v any
		if err := json.Unmarshal([]byte(in), &v); err != nil {
			t.Fatal(err)
		}
		got := Texts(v)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s has %q", in, got)
		}
	}
}
