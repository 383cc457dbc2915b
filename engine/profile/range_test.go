package profile

import (
	"strings"
	"testing"
)

// TestRanges parses ranges, judges values by them, and finds the faults of a profile's.
func TestRanges(t *testing.T) {
	for text, x := range map[string]struct{ in, out string }{
		"2..10": {"2 10 2.5 1e1", "1 11 x NaN 1.99 ${secure(n)}"}, "2..": {"2 1000", "1 -3"}, "..10": {"-5 10", "10.5 Inf"}, "-1..-1": {"-1", "0"},
		"0.5..1": {"0.75", "2"},
	} {
		r, err := ParseRange(text)
		if err != nil || r.String() != text {
			t.Errorf("%s: %v, %v", text, r, err)
			continue
		}
		for _, v := range strings.Fields(x.in) {
			if fs := OutOfRange([]Property{{Name: "n", Value: v, Range: r}, {Name: "other", Value: "x"}}); len(fs) > 0 {
				t.Errorf("%s: %s: %v", text, v, fs)
			}
		}
		for _, v := range append(strings.Fields(x.out), "") {
			if fs := OutOfRange([]Property{{Name: "n", Value: v, Range: r}}); len(fs) != 1 || fs[0].Path != "properties.n" {
				t.Errorf("%s: %s: %v", text, v, fs)
			}
		}
	}
	for _, text := range []string{"", "..", "5", "3..2", "a..2", "2..NaN", "1...2", "1..2..3"} {
		if r, err := ParseRange(text); err == nil {
			t.Errorf("%q is read as %v", text, r)
		}
	}
	one, three := 1.0, 3.0
	spec := NativeSpec()
	for path, q := range map[string]Property{
		"": {Name: PropNodes, Value: "2", Range: &Range{&one, &three}}, "value": {Name: PropNodes, Value: "4", Range: &Range{&one, &three}},
		"range": {Name: PropNodes, Value: "2", Range: &Range{&three, &one}}, "range ": {Name: PropNodes, Value: "2", Range: &Range{}},
		"value ": {Name: PropNodes, Range: &Range{Min: &one}},
	} {
		p := Profile{Name: "p", Provisioner: Provisioner{Name: Native, Properties: []Property{q}}}
		fs := p.Check(&spec, nil)
		if want := "provisioner.properties[0]." + strings.TrimSpace(path); path == "" != (len(fs) == 0) || path != "" && fs[0].Path != want {
			t.Errorf("%s: %v", path, fs)
		}
	}
}
