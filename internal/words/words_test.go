package words

import (
	"strings"
	"testing"
)

func TestLists(t *testing.T) {
	for _, c := range []struct {
		names   []string
		and, or string
	}{
		{nil, "", ""},
		{[]string{"a"}, "a", "a"},
		{[]string{"a", "b"}, "a and b", "a or b"},
		{[]string{"a", "b", "c"}, "a, b and c", "a, b or c"},
	} {
		if And(c.names) != c.and || Or(c.names) != c.or {
			t.Errorf("%q: %q and %q", c.names, And(c.names), Or(c.names))
		}
	}
}

func TestCount(t *testing.T) {
	if Count(0, "fault") != "0 faults" || Count(1, "fault") != "1 fault" || Count(2, "fault") != "2 faults" {
		t.Error(Count(0, "fault"), Count(1, "fault"), Count(2, "fault"))
	}
}

func TestNearest(t *testing.T) {
	known := []string{"hadoop-hdfs-namenode", "hadoop-hdfs-datanode", "mysql-server", "base"}
	for name, want := range map[string]string{"mysql-serve": "mysql-server", "mysql-sevrer": "mysql-server", "Base": "base", "bas": "base",
		"nginx": "", "hadoop-hdfs-namnode": "hadoop-hdfs-namenode", "x": ""} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

func TestNear(t *testing.T) {
	for _, c := range []struct {
		a, b string
		n    int
		want bool
	}{
		{"", "", 0, true}, {"a", "", 0, false}, {"a", "", 1, true}, {"ab", "ba", 1, true}, {"ab", "cd", 1, false}, {"ab", "cd", 2, true},
		{"kitten", "sitting", 2, false}, {"kitten", "sitting", 3, true},
	} {
		if got := Near(c.a, c.b, c.n); got != c.want {
			t.Errorf("Near(%q, %q, %d) = %t", c.a, c.b, c.n, got)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"web", "mysql"}
	many := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, c := range []struct {
		name       string
		known      []string
		near, some string
	}{
		{"mysqll", known, `: did you mean "mysql"?`, `: did you mean "mysql"?`},
		{"haproxy", known, "", " (web, mysql are)"},
		{"haproxy", nil, "", ""},
		{"haproxy", many, "", " (a, b, c, d, e, f, … are)"},
	} {
		if got := DidYouMean(c.name, c.known); got != c.near {
			t.Errorf("DidYouMean(%q, %q): %q", c.name, c.known, got)
		}
		if got := DidYouMeanOrOneOf(c.name, c.known); got != c.some {
			t.Errorf("DidYouMeanOrOneOf(%q, %q): %q", c.name, c.known, got)
		}
	}
}

func TestShorten(t *testing.T) {
	forty := strings.Repeat("a", 40)
	for _, c := range []struct{ text, want string }{
		{forty, forty},
		{forty + "b", forty[:37] + "…"},
		{forty[:36] + "ä" + forty, forty[:36] + "…"},
	} {
		if got := Shorten(c.text); got != c.want {
			t.Errorf("Shorten(%q): %q", c.text, got)
		}
	}
}
