package digitalocean

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// account plays the API: of its documentation, as much as the provider uses.
type account struct {
	t     *testing.T
	fleet *providertest.Fleet

	mu       sync.Mutex
	last     int64
	droplets []*droplet
	address  map[int64]string
}

func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	if r.Header.Get("Authorization") != "Bearer right" {
		answer(401, map[string]string{"id": "unauthorized", "message": "Unable to authenticate you"})
		return
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v2/droplets":
		var in struct {
			Name, Region, Size string
			Image              any
			Tags               []string
			UserData           string `json:"user_data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Name == "" || in.Region == "" || in.Size == "" || in.Image != "debian-12-x64" {
			answer(422, map[string]string{"id": "unprocessable_entity", "message": "You specified an invalid image for Droplet creation."})
			return
		}
		var data struct {
			Users []struct {
				Keys []string `yaml:"ssh_authorized_keys"`
			}
		}
		if err := yaml.Unmarshal([]byte(in.UserData), &data); err != nil || len(data.Users) != 1 || !strings.HasPrefix(in.UserData, "#cloud-config\n") {
			a.t.Errorf("user data %q: %v", in.UserData, err)
		}
		a.last++
		d := &droplet{ID: a.last, Name: in.Name, Status: "new", Tags: in.Tags, Created: time.Now()}
		d.Region.Slug = in.Region
		a.droplets = append(a.droplets, d)
		a.address[d.ID] = a.fleet.Boot(data.Users[0].Keys[0])
		answer(202, map[string]any{"droplet": d})
	case r.Method == http.MethodGet && r.URL.Path == "/v2/droplets":
		tag := r.URL.Query().Get("tag_name")
		found := []*droplet{}
		for _, d := range a.droplets {
			if slices.Contains(d.Tags, tag) {
				shown := *d
				found = append(found, &shown)
				// It runs, and has addresses, from the second look on.
				if d.Status == "new" {
					d.Status = "active"
					d.Networks.V4 = append(d.Networks.V4, struct {
						Address string `json:"ip_address"`
						Type    string `json:"type"`
					}{a.address[d.ID], "public"})
				}
			}
		}
		// Pages of two, to have some.
		var page int
		fmt.Sscan(r.URL.Query().Get("page"), &page)
		from, to := min(2*(page-1), len(found)), min(2*page, len(found))
		links := map[string]any{}
		if to < len(found) {
			links["pages"] = map[string]string{"next": "https://api.digitalocean.com/v2/droplets?page=2"}
		}
		answer(200, map[string]any{"droplets": found[from:to], "links": links, "meta": map[string]int{"total": len(found)}})
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/v2/droplets/"):
		i := slices.IndexFunc(a.droplets, func(d *droplet) bool { return fmt.Sprint(d.ID) == strings.TrimPrefix(r.URL.Path, "/v2/droplets/") })
		if i < 0 {
			answer(404, map[string]string{"id": "not_found", "message": "The resource you were accessing could not be found."})
			return
		}
		a.fleet.Halt(a.address[a.droplets[i].ID])
		a.droplets = slices.Delete(a.droplets, i, i+1)
		w.WriteHeader(204)
	default:
		a.t.Errorf("nobody knows %s %s", r.Method, r.URL)
		answer(404, nil)
	}
}

// TestDroplets runs everything against the played API and real SSH.
func TestDroplets(t *testing.T) {
	a := &account{t: t, fleet: providertest.NewFleet(t), address: map[int64]string{}}
	api := providertest.NewTroubled(t, a, func(r *http.Request, _ string) bool { return r.Method == http.MethodPost })
	p := instance.New(instance.Config{Open: open, Type: New(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(p.Close)
	(&providertest.Instances{
		Provider: p, Flavor: "s-1vcpu-1gb", Image: "debian-12-x64", Confirms: true, Troubled: api,
		Fields:    map[string]any{"token": "right", "region": "fra1", "endpoint": api.URL, "ssh_port": providertest.FleetPort, "ssh_dir": t.TempDir(), "zones": "fra1,ams3"},
		Throttled: providertest.Says(429, "Retry-After: 0", `{"id":"too_many_requests","message":"API Rate limit exceeded."}`),
		Quota:     providertest.Says(422, "", `{"id":"unprocessable_entity","message":"creating this/these droplet(s) will exceed your droplet limit"}`),
		Refused:   providertest.Says(403, "", `{"id":"forbidden","message":"You do not have access for the attempted action."}`),
	}).Try(t)
}

// TestShape reads a droplet as the API's documentation shows it.
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
	if want := (instance.Machine{ID: "3164444", Name: "coopr-mesh7-00000001-1", State: instance.Running, Public: "104.131.186.241", Private: "10.128.192.124", Zone: "nyc3",
		Created: time.Date(2020, 7, 21, 18, 37, 44, 0, time.UTC), Tags: instance.Tags{Tenant: "Acme", Mesh: "mesh7", Cluster: "00000001", Node: "00000001-1", Fence: 42, Key: "0011223344556677"}}); !ours || m != want {
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
