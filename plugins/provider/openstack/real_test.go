package openstack

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/openstack"
)

// nodes is the network of the machines; its addresses belong to the test process.
var nodes = netip.MustParsePrefix("10.80.0.0/24")

// permissions returns the policy rules on the provider's page, which are all that the provider
// needs.
func permissions(t *testing.T) (rules []string) {
	page, err := os.ReadFile("../../../docs/plugins/openstack.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```json\n")
	text, _, _ = strings.Cut(text, "```")
	var list []struct{ Service, Method, Path string }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("the page's access rules: %v\n%s", err, text)
	}
	for _, r := range list {
		rules = append(rules, r.Service+" "+r.Method+" "+r.Path)
	}
	return rules
}

// TestReal runs all tests against a real OpenStack: Keystone, Glance, Placement, Neutron, and Nova
// with a simulated hypervisor.
func TestReal(t *testing.T) {
	l := lab.New(t)
	if err := l.Own(nodes); err != nil {
		t.Fatal(err)
	}
	s := openstack.Start(t, l, nodes, nodes)
	s.Hypervisor(openstack.NewFleet(t))

	// The proxy that causes failures is Nova's address in another interface of the catalog.
	trouble := s.Troubled()
	who, secret := s.Credential(permissions(t))
	fields := map[string]any{
		"auth_url": s.Keystone, "application_credential": who, "application_credential_secret": secret, "region": openstack.Region,
		"interface": "internal",
		"networks":  openstack.Network, "ssh_port": providertest.FleetPort, "ssh_dir": t.TempDir(), "zones": openstack.Zone,
	}
	p := instance.New(instance.Config{Type: New(nil).Describe(), Poll: 200 * time.Millisecond, Open: open})
	t.Cleanup(p.Close)
	all := &providertest.Instances{
		Provider: p, Fields: fields, Flavor: openstack.Flavor, Image: openstack.Image, Confirms: true, Troubled: trouble,
		Throttled: providertest.Says(429, "Retry-After: 0", `{"overLimit": {"code": 429, "message": "This request was rate-limited."}}`),
		// Quota and refusals are real ones, below.
	}
	all.Try(t)

	node := func(change map[string]any) *providertest.Node {
		all := maps.Clone(fields)
		delete(all, "application_credential")
		all["username"], all["password"], all["project"] = openstack.User, openstack.Password, openstack.Project
		maps.Copy(all, change)
		n := providertest.New(t, all, "n")
		n.Mesh, n.Flavor, n.Image = "mesh9", openstack.Flavor, openstack.Image
		return n
	}
	for says, x := range map[string]struct {
		change  map[string]any
		outcome proto.Outcome
	}{
		"credentials":           {map[string]any{"password": "wrong"}, proto.Outcome_OUTCOME_FATAL},
		"no network is named":   {map[string]any{"networks": "no-such"}, proto.Outcome_OUTCOME_FATAL},
		"availability zone":     {map[string]any{"zones": "no-such"}, proto.Outcome_OUTCOME_FATAL},
		"connection refused":    {map[string]any{"auth_url": "http://" + s.Host + ":1/v3"}, proto.Outcome_OUTCOME_NOTHING_DONE},
		"no suitable endpoint":  {map[string]any{"region": "elsewhere"}, proto.Outcome_OUTCOME_FATAL},
		"could not find projec": {map[string]any{"project": "no-such"}, proto.Outcome_OUTCOME_FATAL},
	} {
		n := node(x.change)
		if err := n.Do("CREATE", p.Create); sdk.OutcomeOf(err) != x.outcome {
			t.Errorf("%s: %v: %v", says, sdk.OutcomeOf(err), err)
		}
	}
	limited := []string{"compute GET /v2.1/servers/detail"}
	id, key := s.Credential(limited)
	n := node(map[string]any{"application_credential": id, "application_credential_secret": key})
	if err := n.Do("CREATE", p.Create); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_FATAL || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("credentials for less: %v: %v", sdk.OutcomeOf(err), err)
	}

	s.Quota(0)
	n = node(nil)
	if err := n.Do("CREATE", p.Create); sdk.OutcomeOf(err) != proto.Outcome_OUTCOME_NOTHING_DONE || !strings.Contains(err.Error(), "uota") {
		t.Errorf("no quota: %v", err)
	}
	s.Quota(10)

	// Without a host the server fails, and another one is created.
	s.Hosts(false)
	n.Must("CREATE", p.Create)
	failed := n.ProviderID()
	if err := n.Do("CONFIRM", p.Confirm); err == nil || !strings.Contains(err.Error(), "No valid host") {
		t.Errorf("no host: %v", err)
	}
	s.Hosts(true)
	n.Must("CREATE", p.Create)
	n.Must("CONFIRM", p.Confirm)
	if n.ProviderID() == failed {
		t.Error("a server that failed is used")
	}
	n.Must("DELETE", p.Delete)
	s.Empty()
}
