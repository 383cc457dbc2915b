package providertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

// Instances is a provider of rented machines with a cloud for its tests.
type Instances struct {
	sdk.Provider
	Fields        map[string]any
	Flavor, Image string
	// Confirms reports that the cloud's machines have SSH.
	Confirms bool
	// Troubled is the proxy in front of the cloud's API that causes failures; nil: none are tested.
	Troubled *Troubled
	// Throttled, Quota and Refused are the cloud's answers for these failures; nil: the cloud has
	// no such answer.
	Throttled, Quota, Refused Trouble
}

func (c *Instances) node(t testing.TB, number int) *Node {
	n := New(t, maps.Clone(c.Fields), fmt.Sprintf("00000007-n%d", number))
	n.Mesh, n.Number, n.Flavor, n.Image = "mesh7", number, c.Flavor, c.Image
	return n
}

func (c *Instances) observe(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	return c.Provider.(sdk.Observer).Observe(ctx, t)
}

// up creates a node and confirms it, if the machines have SSH.
func (c *Instances) up(n *Node) {
	n.T.Helper()
	n.Must("CREATE", c.Create)
	c.confirm(n)
}

func (c *Instances) confirm(n *Node) {
	n.T.Helper()
	if !c.Confirms {
		return
	}
	n.Must("CONFIRM", c.Confirm)
	if n.IPs["access_v4"] == "" || n.Results["ssh_host_keys"] == nil {
		n.T.Errorf("confirmed without an address or a host key: %v %v", n.IPs, n.Results)
	}
}

func (c *Instances) listed(t testing.TB, tenant, mesh string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := c.List(t.Context(), sdk.ListRequest{Fields: c.Fields, Tenant: tenant, Mesh: mesh}, func(r sdk.Resource) error {
		if r.Cluster != "c" || r.Fence == 0 || out[r.Node] != "" {
			t.Errorf("listed %+v", r)
		}
		out[r.Node] = r.ID
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

// Try runs all tests of a provider of rented machines.
func (c *Instances) Try(t *testing.T) {
	t.Run("life", c.life)
	if c.Troubled != nil {
		t.Run("trouble", c.trouble)
	}
}

// life tests that machines are created, found, told apart, adopted and removed.
func (c *Instances) life(t *testing.T) {
	nodes := []*Node{c.node(t, 1), c.node(t, 2), c.node(t, 1001)}
	want := map[string]string{}
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { c.up(n) })
	}
	wg.Wait()
	for _, n := range nodes {
		want[n.ID] = n.ProviderID()
	}
	if got := c.listed(t, "t", "mesh7"); !maps.Equal(got, want) || len(want) != 3 {
		t.Errorf("listed %v, made %v", got, want)
	}
	if a, b := c.listed(t, "another", "mesh7"), c.listed(t, "t", "mesh8"); len(a)+len(b) > 0 {
		t.Errorf("listed %v for another tenant and %v for another mesh, want none", a, b)
	}
	// If the answer is lost, or an attempt is repeated, the same machine is returned.
	for _, verb := range []Verb{c.observe, c.Create} {
		again := c.node(t, 2)
		again.Saved = nodes[1].Saved
		again.Must("CREATE", verb)
		if again.ProviderID() != want[again.ID] {
			t.Errorf("a repeated CREATE returned machine %s, want the existing %s", again.ProviderID(), want[again.ID])
		}
		c.confirm(again)
	}
	if err := nodes[0].Do("CHECK", c.observe); err != nil {
		t.Errorf("CHECK of an existing machine returned %v", err)
	}
	// If the private key is lost with the answer, the machine cannot be used.
	useless := c.node(t, 2)
	if err := useless.Do("CREATE", c.observe); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("observing a machine without its key returned %v, want ErrNotFound", err)
	}
	c.up(nodes[1])
	want[nodes[1].ID] = nodes[1].ProviderID()
	// A machine that belongs to no node.
	stray := c.node(t, 3)
	stray.Must("CREATE", c.Create)
	remove := func(id string) error {
		return c.Provider.(sdk.Remover).Remove(t.Context(), sdk.ListRequest{Fields: c.Fields, Tenant: "t", Mesh: "mesh7"},
			sdk.Resource{Cluster: "c", Node: stray.ID, Fence: 99, ID: id})
	}
	for _, id := range []string{want[nodes[0].ID], stray.ProviderID(), stray.ProviderID()} {
		if err := remove(id); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if got := c.listed(t, "t", "mesh7"); !maps.Equal(got, want) {
		t.Errorf("listed %v, made %v", got, want)
	}
	for range 2 {
		for _, n := range nodes {
			wg.Go(func() { n.Must("DELETE", c.Delete) })
		}
		wg.Wait()
	}
	if got := c.listed(t, "t", "mesh7"); len(got) > 0 {
		t.Errorf("machines remain: %v", got)
	}
	if err := nodes[0].Do("CHECK", c.observe); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("CHECK of a deleted machine returned %v, want ErrNotFound", err)
	}
	if err := nodes[0].Do("CONFIRM", c.Confirm); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_FATAL {
		t.Errorf("CONFIRM of a deleted machine returned %v, want a fatal error", err)
	}
	nameless := c.node(t, 4)
	nameless.Image = "no-such-image"
	if err := nameless.Do("CREATE", c.Create); err == nil {
		t.Error("a machine was created from an image that does not exist")
	}
	if got := c.listed(t, "t", "mesh7"); len(got) > 0 {
		t.Errorf("machines remain: %v", got)
	}
}

// trouble tests failures of the request that creates a machine. After each of them the node has
// exactly one machine, and none after its deletion.
func (c *Instances) trouble(t *testing.T) {
	for name, x := range map[string]struct {
		orders  []Trouble
		outcome proto.Outcome
		says    string
	}{
		"throttled":           {[]Trouble{c.Throttled, c.Throttled}, proto.Outcome_OUTCOME_SUCCEEDED, ""},
		"quota":               {[]Trouble{c.Quota}, proto.Outcome_OUTCOME_NOTHING_DONE, "quota"},
		"refused credentials": {[]Trouble{c.Refused}, proto.Outcome_OUTCOME_FATAL, "credentials"},
		"answer lost":         {[]Trouble{Lost}, proto.Outcome_OUTCOME_UNKNOWN, ""},
		"done later":          {[]Trouble{Late}, proto.Outcome_OUTCOME_UNKNOWN, ""},
	} {
		if x.orders[0] == nil {
			continue // this cloud has no such answer
		}
		t.Run(name, func(t *testing.T) {
			n := c.node(t, 5)
			c.Troubled.Next(x.orders...)
			err := n.Do("CREATE", c.Create)
			// Some clouds' libraries repeat the request by themselves, with a token that prevents a
			// second machine.
			if got := sdk.OutcomeOf(err); got != x.outcome && !(x.outcome == proto.Outcome_OUTCOME_UNKNOWN && err == nil) ||
				!strings.Contains(fmt.Sprint(err), x.says) && err != nil {
				t.Errorf("%v: %v", got, err)
			}
			if x.outcome != proto.Outcome_OUTCOME_FATAL {
				if err != nil {
					if oerr := n.Do("CREATE", c.observe); errors.Is(oerr, sdk.ErrNotFound) {
						n.Must("CREATE", c.Create)
					} else if oerr != nil {
						t.Fatal(oerr)
					}
				}
				c.Troubled.Release()
				if c.Confirms {
					n.Must("CONFIRM", c.Confirm)
					if got := c.listed(t, "t", "mesh7"); len(got) != 1 || got[n.ID] != n.ProviderID() {
						t.Errorf("listed %v, made %s", got, n.ProviderID())
					}
				}
			}
			n.Must("DELETE", c.Delete)
			if got := c.listed(t, "t", "mesh7"); len(got) > 0 {
				t.Errorf("machines remain: %v", got)
			}
		})
	}
}
