package hostexec

import (
	"errors"
	"net"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// TestHere checks which addresses are the machine's own by their text.
func TestHere(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.10:22": true, "[::1]:22": true, "::1": true, "0.0.0.0": true, "[::]": true, "::ffff:127.0.0.1": true,
		"localhost": true, "LOCALHOST:22": true, "db.localhost": true, "localhost.": true, "127.1": true, "0x7f.1": true, "2130706433": true, "0": true,
		"10.0.0.1": false, "10.0.0.1:22": false, "fd00::1": false, "node7": false, "db.example.org:22": false, "cafe.example.org": false,
		"localhost.example.org": false,
	} {
		if here(address) != want {
			t.Errorf("%s: %v", address, !want)
		}
	}
}

// TestOwnMachines checks that the addresses of agents' machines are recognized wherever a document names a host, in all their forms, and those
// of other machines nowhere.
func TestOwnMachines(t *testing.T) {
	rules := Rules{Own: func() []string { return []string{"10.0.0.5", "fd00::5", "control"} }}.Among(func() []model.Agent {
		return []model.Agent{{PeerAddr: "10.0.0.6:7421"}, {APIAddr: "[fd00::6]:7420"}}
	})
	node := func(access string, results map[string]any) []Use {
		results["ssh_host_keys"] = map[string]any{"ssh-ed25519": "AAAA"}
		return Task("shell", true, &model.TaskConfig{Results: results, IPAddresses: map[string]string{"access_v4": access}})
	}
	for address, own := range map[string]bool{
		"10.0.0.5": true, "::ffff:10.0.0.5": true, "fd00::5": true, "fd00:0::5": true, "control": true, "CONTROL.": true, "10.0.0.6": true, "fd00::6": true,
		"10.0.0.7": false, "fd00::7": false, "controls": false, "control.example.org": false,
	} {
		for name, uses := range map[string][]Use{
			"engine":    Provider("docker", map[string]any{"engine": "tcp://" + net.JoinHostPort(address, "2376")}),
			"daemon":    Provider("libvirt", map[string]any{"daemons": "a=192.0.2.1:16509, b=" + net.JoinHostPort(address, "16509")}),
			"list":      Provider("hosts", map[string]any{"inventory": []any{"192.0.2.1", map[string]any{"address": address}}}),
			"text":      Provider("hosts", map[string]any{"inventory": "192.0.2.1\nname address=" + address + "\n"}),
			"jump host": Provider("hosts", map[string]any{"inventory": "192.0.2.1", "ssh_jump": []any{map[string]any{"address": address}}}),
			"node":      node(address, map[string]any{}),
			"SSH":       node("192.0.2.1", map[string]any{"ssh_address": address}),
			"jump":      node("192.0.2.1", map[string]any{"ssh_jump": []any{map[string]any{"address": address}}}),
		} {
			who := model.Caller{Tenant: "acme", Role: model.RoleAdmin}
			if ask, run := rules.Ask(who, uses), rules.Run("acme", uses); errors.Is(ask, problem.Forbidden) != own || errors.Is(run, problem.Forbidden) != own {
				t.Errorf("%s %s: %v, %v", name, address, ask, run)
			}
			if got := rules.Here(uses); len(got) > 1 || (len(got) == 1) != own {
				t.Errorf("%s %s: %v", name, address, got)
			}
		}
	}
	// Loopback needs nobody to say so.
	if err := (Rules{}).Run("acme", node("127.0.0.1", map[string]any{})); !errors.Is(err, problem.Forbidden) {
		t.Error("a node on loopback:", err)
	}
}

// TestActing checks that a user's role for later work comes from the tokens that the user has now.
func TestActing(t *testing.T) {
	tokens := []model.Token{
		{Actor: "ann", Tenant: "acme", Role: model.RoleUser}, {Actor: "ann", Tenant: "acme", Role: model.RoleAdmin},
		{Actor: "ann", Tenant: "other", Role: model.RoleUser},
		{Actor: "ops", Tenant: "main", Role: model.RoleSuperadmin}, {Actor: "bob", Tenant: "main", Role: model.RoleAdmin},
	}
	for actor, want := range map[string]model.Role{
		"ann": model.RoleAdmin, "ops": model.RoleSuperadmin, "bob": "", "gone": "", "root": model.RoleSuperadmin, "dev": model.RoleSuperadmin,
	} {
		if got := Acting(tokens, "acme", actor); got.Role != want || got.Actor != actor || got.Tenant != "acme" {
			t.Errorf("%s: %+v", actor, got)
		}
	}
}

// TestAsk checks who may ask for what.
func TestAsk(t *testing.T) {
	rules := Rules{HostExec: true, Interpreters: []string{"acme/ansible"}}
	user, super := model.Caller{Tenant: "acme", Role: model.RoleAdmin}, model.Caller{Tenant: "acme", Role: model.RoleSuperadmin}
	local, play := Provider("local", nil), Automator("ansible")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"a user of nothing":               {rules.Ask(user, nil), true},
		"a user of the machine":           {rules.Ask(user, local), false},
		"a user of an interpreter":        {rules.Ask(user, play), true},
		"a user of both":                  {rules.Ask(user, append(play, local...)), false},
		"another tenant's interpreter":    {rules.Ask(model.Caller{Tenant: "b", Role: model.RoleAdmin}, play), false},
		"a superadmin":                    {rules.Ask(super, local), true},
		"the mesh after it was accepted":  {rules.Ask(model.Caller{Tenant: "acme", Follows: true}, local), true},
		"an agent with the setting":       {rules.Run("b", append(local, play...)), true},
		"an agent without":                {Rules{}.Run("acme", local), false},
		"an agent with an interpreter":    {Rules{Interpreters: []string{"*/ansible"}}.Run("acme", play), true},
		"an agent with another's":         {Rules{Interpreters: []string{"b/ansible"}}.Run("acme", play), false},
		"an agent that cannot confine it": {Rules{HostExec: true, Unconfined: true}.Run("acme", local), false},
		"the same for an interpreter":     {Rules{Interpreters: []string{"*/ansible"}, Unconfined: true}.Run("acme", play), false},
		"the same for nothing":            {Rules{Unconfined: true}.Run("acme", nil), true},
		"an agent's interpreter on local": {Rules{Interpreters: []string{"*/ansible"}}.Run("acme", local), false},
	} {
		if (c.err == nil) != c.want || c.err != nil && !errors.Is(c.err, problem.Forbidden) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}
