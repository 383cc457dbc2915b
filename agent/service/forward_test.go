package service

import (
	"errors"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// TestPortOf checks which address a connection to a node gets, and which nodes have none.
func TestPortOf(t *testing.T) {
	type values = map[string]any
	published := values{"ssh_address": "198.51.100.1", "ssh_port": float64(32768)}
	for _, c := range []struct {
		access, bind string
		results      values
		port         int
		want         string // "" if it is refused
	}{
		{access: "198.51.100.7", bind: "10.0.0.7", port: 80, want: "198.51.100.7:80"},
		{bind: "10.0.0.7", port: 80, want: "10.0.0.7:80"},
		{access: "2001:db8::7", port: 80, want: "[2001:db8::7]:80"},
		{access: "198.51.100.1", bind: "172.17.0.2", results: published, port: 32768, want: "198.51.100.1:32768"},
		{access: "198.51.100.1", bind: "172.17.0.2", results: published, port: 2375, want: "172.17.0.2:2375"},
		{access: "198.51.100.1", results: published, port: 2375},
		{access: "10.0.0.7", results: values{"ssh_jump": []any{values{"address": "198.51.100.1"}}}, port: 22},
		{access: "web.example.com", port: 80},
		{port: 80},
	} {
		n := &model.Node{ID: "00000001-1000", IPAddresses: map[string]string{"access_v4": c.access, "bind_v4": c.bind}, Results: c.results}
		to, err := portOf(n, c.port)
		switch {
		case c.want == "" && !errors.Is(err, problem.Conflict):
			t.Errorf("%+v: %v, %v", c, to, err)
		case c.want != "" && (err != nil || to.String() != c.want):
			t.Errorf("%+v: %v, %v", c, to, err)
		}
	}
}

// TestForwardsEach checks that a principal has a bounded number of connections, apart from those of others.
func TestForwardsEach(t *testing.T) {
	var f forwards
	var leaves []func()
	ann, bob := model.Caller{Tenant: "shop", Actor: "ann"}, model.Caller{Tenant: "shop", Actor: "bob"}
	for range forwardsEach {
		leave, err := f.begin(ann)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := f.begin(ann); !errors.Is(err, problem.Busy) {
		t.Errorf("one more connection of the same principal: %v", err)
	}
	leave, err := f.begin(bob)
	if err != nil {
		t.Fatal(err)
	}
	for _, leave := range append(leaves, leave) {
		leave()
	}
	if len(f.open) != 0 {
		t.Errorf("connections are counted after their end: %v", f.open)
	}
	if _, err := f.begin(ann); err != nil {
		t.Error(err)
	}
}
