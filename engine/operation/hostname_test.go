package operation

import (
	"regexp"
	"strings"
	"testing"
)

var label = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)

func TestHostname(t *testing.T) {
	a55 := strings.Repeat("a", 55)
	for _, c := range []struct {
		name, id string
		number   int
		suffix   string
		want     string
	}{
		{"123i.am-a_clusTer", "00000001", 1002, "", "i-am-a-cluster1-1002.local"},
		{a55 + "bcde", "00000123", 1002, "dev.company.com", a55 + "123-1002.dev.company.com"},
		{"My_Cluster", "00000053", 1000, "", "my-cluster53-1000.local"},
		{"42", "00000007", 1000, ".Example.COM", "7-1000.example.com"},
		{"...", "00000007", 1000, "", "7-1000.local"},
		{"web", "c-9f3a", 1000, "", "webc-9f3a-1000.local"},
		{"web", strings.Repeat("f", 80), 1000, "", strings.Repeat("f", 58) + "-1000.local"},
	} {
		if got := hostname(c.name, c.id, c.number, c.suffix); got != c.want {
			t.Errorf("%s, %s: got %s, want %s", c.name, c.id, got, c.want)
		}
		first, _, _ := strings.Cut(hostname(c.name, c.id, c.number, c.suffix), ".")
		if len(first) > 63 || !label.MatchString(first) {
			t.Errorf("%s: %s is not a label", c.name, first)
		}
	}
}
