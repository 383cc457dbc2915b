package cli

import (
	"fmt"
	"testing"
)

func TestContextKnowsItsAgents(t *testing.T) {
	c := Context{Addresses: []string{"https://a.example:55054", "https://10.0.0.2:8443"}}
	for addresses, want := range map[[2]string]string{
		{"https://a.example:55054", "10.0.0.2:8443"}: "[https://a.example:55054 https://10.0.0.2:8443] true",
		{"a.example", "a.example:55054"}:             "[https://a.example:55054 https://a.example:55054] true",
		{"a.example", "http://10.0.0.2:8443"}:        "[] false", // not encrypted
		{"a.example:8443", "a.example"}:              "[] false",
		{"evil.example", "a.example"}:                "[] false",
	} {
		if urls, ok := c.Own(addresses[:]); fmt.Sprint(urls, ok) != want {
			t.Errorf("%v: %v, %v", addresses, urls, ok)
		}
	}
}
