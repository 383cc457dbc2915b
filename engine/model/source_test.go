package model_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

func TestParseSource(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "10.1.2.3": "10.1.2.3/32", "0.0.0.0/0": "0.0.0.0/0", "10.1.2.3/32": "10.1.2.3/32",
		"2001:DB8:0::/32": "2001:db8::/32", "2001:db8::1": "2001:db8::1/128", "::/0": "::/0",
		"::ffff:10.1.2.3": "10.1.2.3/32", "::ffff:10.0.0.0/104": "10.0.0.0/8", "::ffff:0:0/96": "0.0.0.0/0",
	} {
		if got, err := model.ParseSource(text); err != nil || got.String() != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "must be a network", "10.0.0.0/33": "must be a network", "10.0.0/8": "must be a network", "example.org": "must be a network",
		"10.0.0.0/-1": "must be a network", "fe80::1%eth0": "must be a network", "fe80::%eth0/64": "must be a network", "10.0.0.1:80": "must be a network",
		"10.1.2.3/8": "write 10.0.0.0/8 or 10.1.2.3", "2001:db8::1/32": "write 2001:db8::/32 or 2001:db8::1", "::ffff:10.0.0.0/90": "networks of IPv4",
	} {
		if got, err := model.ParseSource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestParseSources(t *testing.T) {
	many := make([]string, model.MaxSources+1)
	for _, c := range []struct {
		texts, within, want []string
		fault               string
	}{
		{},
		{texts: []string{"10.1.2.3", "10.1.2.3/32", "::1"}, want: []string{"10.1.2.3/32", "::1/128"}},
		{within: []string{"10.0.0.0/8"}, want: []string{"10.0.0.0/8"}},
		{texts: []string{"10.1.0.0/16", "10.0.0.0/8"}, within: []string{"::1/128", "10.0.0.0/8"}, want: []string{"10.1.0.0/16", "10.0.0.0/8"}},
		{texts: []string{"10.1.0.0/16", "0.0.0.0/0"}, within: []string{"10.0.0.0/8"}, fault: "sources[1]"},
		{texts: []string{"::/0"}, within: []string{"10.0.0.0/8"}, fault: "sources[0]"},
		{texts: []string{"::1", "here"}, fault: "sources[1]"},
		{texts: many, fault: "sources"},
	} {
		var faults model.Faults
		got := model.ParseSources(&faults, c.texts, c.within)
		switch {
		case c.fault != "" && (len(faults) != 1 || faults[0].Path != c.fault):
			t.Errorf("%v within %v: %v", c.texts, c.within, faults)
		case c.fault == "" && (len(faults) > 0 || !slices.Equal(got, c.want)):
			t.Errorf("%v within %v: %v, %v", c.texts, c.within, got, faults)
		}
	}
}

func TestAdmittedFrom(t *testing.T) {
	bound := []string{"10.0.0.0/8", "2001:db8::/32", "fe80::/10"}
	for from, want := range map[string]bool{
		"10.255.0.1": true, "::ffff:10.0.0.1": true, "11.0.0.1": false, "2001:db8:1::1": true, "2001:db9::1": false, "fe80::1%eth0": true,
		"::a00:1": false,
	} {
		if addr := netip.MustParseAddr(from); model.AdmittedFrom(addr, bound) != want {
			t.Errorf("%s: %v", from, !want)
		}
	}
	if model.AdmittedFrom(netip.Addr{}, bound) || !model.AdmittedFrom(netip.Addr{}, nil) {
		t.Error("an address that is not known")
	}
	if model.AdmittedFrom(netip.MustParseAddr("10.0.0.1"), []string{"damaged"}) {
		t.Error("a damaged range admits an address")
	}
}
