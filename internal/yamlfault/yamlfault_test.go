package yamlfault

import (
	"errors"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestSplit reads errors of the library itself, so that a new version with other texts is noticed.
func TestSplit(t *testing.T) {
	for text, want := range map[string]struct {
		line    int
		message string
	}{
		"a: 1\nb: [":         {2, "did not find expected node content"},
		"name: a\n  b: c":    {2, "mapping values are not allowed in this context"},
		"*x":                 {0, "unknown anchor 'x' referenced"},
		"a: 1\nb: 2\na: 3\n": {0, `line 3: mapping key "a" already defined at line 1`},
		"a: 1\na: 2\na: 3\n": {0, `line 2: mapping key "a" already defined at line 1; line 3: mapping key "a" already defined at line 1; ` + `line 3: mapping key "a" already defined at line 2`},
		"a: \x01":            {0, "control characters are not allowed"},
	} {
		var v map[string]any
		err := yaml.Unmarshal([]byte(text), &v)
		if err == nil {
			t.Errorf("%q is read", text)
			continue
		}
		if line, message := Split(err); line != want.line || message != want.message {
			t.Errorf("%q: line %d, %q", text, line, message)
		}
	}
	if line, message := Split(errors.New("line 3: something else")); line != 0 || message != "line 3: something else" {
		t.Errorf("an error of another origin: line %d, %q", line, message)
	}
}
