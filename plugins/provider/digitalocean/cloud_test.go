package digitalocean

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/testing/doubles/digitalocean"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDroplets runs all tests against the played API and real SSH.
func TestDroplets(t *testing.T) {
	api := providertest.NewTroubled(t, digitalocean.New(t, providertest.NewFleet(t)), digitalocean.Creates)
	p := instance.New(instance.Config{Open: open, Type: New(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(p.Close)
	(&providertest.Instances{
		Provider: p, Flavor: "s-1vcpu-1gb", Image: digitalocean.Image, Confirms: true, Troubled: api,
		Fields: map[string]any{"token": digitalocean.Token, "region": "fra1", "endpoint": api.URL, "ssh_port": providertest.FleetPort,
			"ssh_dir": t.TempDir(), "zones": "fra1,ams3"},
		Throttled: digitalocean.Throttled, Quota: digitalocean.Quota, Refused: digitalocean.Refused,
	}).Try(t)
}

// TestShape decodes a droplet from the API's documentation.
func TestShape(t *testing.T) {
	b, err := os.ReadFile("testdata/droplet.json")
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Droplet droplet }
	if err := json.Unmarshal(b, &answer); err != nil {
		t.Fatal(err)
	}
	m, ours := answer.Droplet.machine()
	if want := (instance.Machine{ID: "3164444", Name: "coopr-mesh7-00000001-1", State: instance.Running, Public: "104.131.186.241",
		Private: "10.128.192.124", Zone: "nyc3",
		Created: time.Date(2020, 7, 21, 18, 37, 44, 0, time.UTC),
		Tags: instance.Tags{Tenant: "Acme", Mesh: "mesh7", Cluster: "00000001", Node: "00000001-1", Fence: 42,
			Key: "0011223344556677"}}); !ours || m != want {
		t.Errorf("%+v", m)
	}
}

func TestFields(t *testing.T) {
	f := &instance.Fields{Values: map[string]any{"endpoint": "api", "region": 3, "ssh_keys": []any{1}}}
	open(f)
	var paths []string
	for _, x := range f.Faults {
		paths = append(paths, x.Path)
	}
	slices.Sort(paths)
	if got := strings.Join(paths, " "); got != "endpoint region ssh_keys token" {
		t.Errorf("%s: %v", got, f.Faults)
	}
}
