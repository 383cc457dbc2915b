package openstack

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/testing/lab"
)

func TestMain(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

// account plays Rackspace's identity and servers according to their documentation. Nova itself is
// tested for real (TestReal).
type account struct {
	t     *testing.T
	fleet *providertest.Fleet
	url   string

	mu      sync.Mutex
	last    int
	servers []map[string]any
	address map[string]string
}

func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	if r.URL.Path == "/v2.0/tokens" {
		var in struct {
			Auth struct {
				Key struct{ Username, APIKey string } `json:"RAX-KSKEY:apiKeyCredentials"`
			}
		}
		if json.NewDecoder(r.Body).Decode(&in); in.Auth.Key.APIKey != "right" {
			answer(401, map[string]any{"unauthorized": map[string]any{"code": 401, "message": "Username or api key is invalid."}})
			return
		}
		answer(200, map[string]any{"access": map[string]any{
			"token": map[string]any{"id": "token", "expires": "2036-11-24T22:05:39.115Z",
				"tenant": map[string]string{"id": "110011", "name": "110011"}},
			"serviceCatalog": []any{map[string]any{"name": "cloudServersOpenStack", "type": "compute",
				"endpoints": []any{map[string]string{"region": "DFW", "tenantId": "110011", "publicURL": a.url + "/v2/110011"}}}},
		}})
		return
	}
	path, ours := strings.CutPrefix(r.URL.Path, "/v2/110011")
	if !ours || r.Header.Get("X-Auth-Token") != "token" {
		answer(401, map[string]any{"unauthorized": map[string]any{"code": 401, "message": "No valid token provided."}})
		return
	}
	switch {
	case r.Method == "GET" && path == "/flavors/detail":
		answer(200, map[string]any{"flavors": []any{map[string]any{"id": "general1-1", "name": "1 GB General Purpose v1", "ram": 1024, "vcpus": 1,
			"disk": 20}}})
	case r.Method == "GET" && path == "/servers/detail":
		answer(200, map[string]any{"servers": a.servers})
		for _, s := range a.servers {
			if s["status"] == "BUILD" {
				s["status"] = "ACTIVE"
				s["accessIPv4"] = a.address[s["id"].(string)]
				s["addresses"] = map[string]any{"public": []any{map[string]any{"addr": s["accessIPv4"], "version": 4}},
					"private": []any{map[string]any{"addr": "10.176.1.2", "version": 4}}}
			}
		}
	case r.Method == "POST" && path == "/servers":
		var in struct {
			Server struct {
				Name, ImageRef, FlavorRef string
				UserData                  string `json:"user_data"`
				Metadata                  map[string]string
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Server.ImageRef != image || in.Server.FlavorRef != "general1-1" {
			answer(400, map[string]any{"badRequest": map[string]any{"code": 400, "message": "Invalid imageRef provided."}})
			return
		}
		text, err := base64.StdEncoding.DecodeString(in.Server.UserData)
		var d struct {
			Users []struct {
				Keys []string `yaml:"ssh_authorized_keys"`
			}
		}
		if err == nil {
			err = yaml.Unmarshal(text, &d)
		}
		if err != nil || len(d.Users) != 1 {
			a.t.Errorf("user data %q: %v", text, err)
			return
		}
		a.last++
		id := fmt.Sprintf("00000000-0000-4000-8000-%012x", a.last)
		a.address[id] = a.fleet.Boot(d.Users[0].Keys[0])
		a.servers = append(a.servers, map[string]any{"id": id, "name": in.Server.Name, "status": "BUILD", "metadata": in.Server.Metadata,
			"created": time.Now().UTC().Format(time.RFC3339), "addresses": map[string]any{}})
		answer(202, map[string]any{"server": map[string]any{"id": id, "adminPass": "x"}})
	case r.Method == "DELETE":
		i := slices.IndexFunc(a.servers, func(s map[string]any) bool { return "/servers/"+s["id"].(string) == path })
		if i < 0 {
			answer(404, map[string]any{"itemNotFound": map[string]any{"code": 404, "message": "Instance could not be found."}})
			return
		}
		a.fleet.Halt(a.address[a.servers[i]["id"].(string)])
		a.servers = slices.Delete(a.servers, i, i+1)
		w.WriteHeader(204)
	default:
		a.t.Errorf("nobody knows %s %s", r.Method, r.URL)
	}
}

const image = "3afe97b2-26dc-49c5-a2cc-a2fc8d80c001"

// TestRackspace runs all tests against the played account and real SSH.
func TestRackspace(t *testing.T) {
	a := &account{t: t, fleet: providertest.NewFleet(t), address: map[string]string{}, servers: []map[string]any{}}
	api := providertest.NewTroubled(t, a, func(r *http.Request, _ string) bool {
		return strings.HasSuffix(r.URL.Path, "/servers") && r.Method == "POST"
	})
	a.url = api.URL
	p := instance.New(instance.Config{Open: openRackspace, Type: NewRackspace(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(p.Close)
	fields := map[string]any{"rackspace_username": "u", "rackspace_api_key": "right", "rackspace_region": "dfw", "auth_url": api.URL + "/v2.0",
		"ssh_port": providertest.FleetPort, "ssh_dir": t.TempDir()}
	(&providertest.Instances{
		Provider: p, Fields: fields, Flavor: "1 GB General Purpose v1", Image: image, Confirms: true, Troubled: api,
		Throttled: providertest.Says(429, "Retry-After: 0", `{"overLimit": {"code": 429, "message": "OverLimit Retry..."}}`),
		Quota: providertest.Says(413, "", `{"overLimit": {"code": 413, "message": "Quota exceeded for ram: Requested 1024, but already `+
			`used 131072 of 131072 ram"}}`),
		Refused: providertest.Says(403, "", `{"forbidden": {"code": 403, "message": "Policy doesn't allow os_compute_api:servers:create to `+
			`be performed."}}`),
	}).Try(t)
	for says, change := range map[string][2]string{"credentials": {"rackspace_api_key", "wrong"},
		`its regions are ["DFW"]`: {"rackspace_region", "ORD"}} {
		bad := map[string]any{}
		for k, v := range fields {
			bad[k] = v
		}
		bad[change[0]] = change[1]
		n := providertest.New(t, bad, "n")
		n.Image = image
		if err := n.Do("CREATE", p.Create); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestFields(t *testing.T) {
	for want, values := range map[string]map[string]any{
		"auth_url password project username":     {},
		"application_credential_secret auth_url": {"application_credential": "x"},
		"interface": {"auth_url": "https://x/v3", "application_credential": "x",
			"application_credential_secret": "y", "interface": "both"},
	} {
		f := &instance.Fields{Values: values}
		open(f)
		var paths []string
		for _, x := range f.Faults {
			paths = append(paths, x.Path)
		}
		slices.Sort(paths)
		if got := strings.Join(slices.Compact(paths), " "); got != want {
			t.Errorf("%s: %v", got, f.Faults)
		}
	}
}
