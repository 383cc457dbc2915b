package sets

import (
	"slices"
	"testing"
)

func TestUnique(t *testing.T) {
	t.Parallel()
	if got := Unique([]string{"b", "a", "b", "c", "a"}); !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("Unique: %q", got)
	}
	if got := Unique(nil); got != nil {
		t.Errorf("Unique of nothing: %q", got)
	}
}

func TestContains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list, names []string
		want        bool
	}{
		{nil, nil, true},
		{[]string{"a"}, nil, true},
		{[]string{"a", "b"}, []string{"b", "b"}, true},
		{[]string{"a", "b"}, []string{"b", "c"}, false},
		{nil, []string{"a"}, false},
	} {
		if got := Contains(c.list, c.names); got != c.want {
			t.Errorf("Contains(%q, %q): %v", c.list, c.names, got)
		}
	}
}

func TestEqual(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b []string
		want bool
	}{
		{nil, []string{}, true},
		{[]string{"a", "b"}, []string{"b", "a", "b"}, true},
		{[]string{"a", "b"}, []string{"a"}, false},
		{[]string{"a"}, []string{"b"}, false},
	} {
		if got := Equal(c.a, c.b); got != c.want {
			t.Errorf("Equal(%q, %q): %v", c.a, c.b, got)
		}
	}
}
