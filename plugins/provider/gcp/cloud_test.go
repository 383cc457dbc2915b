package gcp

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

// project plays the API according to its documentation.
type project struct {
	t     *testing.T
	fleet *providertest.Fleet
	key   *rsa.PrivateKey

	mu    sync.Mutex
	last  int
	vms   []*vm
	boots map[string]string // address by id
	done  map[string]string // id by request
}

var want = regexp.MustCompile(`labels\.([a-z-]+)="([^"]*)"`)

func refusal(code int, reason, message string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"errors":[{"message":%q,"domain":"usageLimits","reason":%q}]}}`, code, message,
		message, reason)
}

func (p *project) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	refuse := func(code int, reason, message string) {
		w.WriteHeader(code)
		fmt.Fprint(w, refusal(code, reason, message))
	}
	if r.URL.Path == "/token" {
		parts := strings.Split(r.FormValue("assertion"), ".")
		sum := sha256.Sum256([]byte(strings.Join(parts[:len(parts)-1], ".")))
		signature, err := base64.RawURLEncoding.DecodeString(parts[len(parts)-1])
		if err != nil || rsa.VerifyPKCS1v15(&p.key.PublicKey, crypto.SHA256, sum[:], signature) != nil {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
			return
		}
		answer(map[string]any{"access_token": "right", "expires_in": 3599, "token_type": "Bearer"})
		return
	}
	if r.Header.Get("Authorization") != "Bearer right" {
		refuse(401, "authError", "Invalid Credentials")
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/projects/shop")
	switch {
	case r.Method == "GET" && path == "/aggregated/instances":
		items := map[string]any{}
		for _, v := range p.vms {
			fits := true
			for _, m := range want.FindAllStringSubmatch(r.URL.Query().Get("filter"), -1) {
				fits = fits && v.Labels[m[1]] == m[2]
			}
			if !fits {
				continue
			}
			shown := *v
			zone := "zones/" + v.Zone[strings.LastIndex(v.Zone, "/")+1:]
			list, _ := items[zone].(map[string]any)
			if list == nil {
				list = map[string]any{"instances": []vm{}}
			}
			list["instances"] = append(list["instances"].([]vm), shown)
			items[zone] = list
			if v.Status == "STAGING" {
				v.Status = "RUNNING"
				_ = json.Unmarshal(fmt.Appendf(nil, `[{"networkIP":"10.156.0.2","accessConfigs":[{"natIP":%q}]}]`, p.boots[v.ID]), &v.Nets)
			}
		}
		items["zones/us-east1-b"] = map[string]any{"warning": map[string]string{"code": "NO_RESULTS_ON_PAGE"}}
		answer(map[string]any{"kind": "compute#instanceAggregatedList", "items": items})
	case r.Method == "POST" && strings.HasSuffix(path, "/wait"):
		answer(map[string]any{"name": "operation-1", "status": "DONE", "targetId": strings.TrimPrefix(strings.Split(path, "/")[4], "operation-")})
	case r.Method == "POST" && strings.HasSuffix(path, "/instances"):
		zone := strings.Split(path, "/")[2]
		var in struct {
			Name, MachineType string
			Labels            map[string]string
			Disks             []struct {
				InitializeParams struct{ SourceImage string }
			}
			Metadata struct{ Items []struct{ Key, Value string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Disks) != 1 ||
			in.Disks[0].InitializeParams.SourceImage != "debian-12" {
			refuse(400, "invalid", "Invalid value for field 'resource.disks[0].initializeParams.sourceImage'")
			return
		}
		request := r.URL.Query().Get("requestId")
		id, again := p.done[request]
		if !again {
			if slices.ContainsFunc(p.vms, func(v *vm) bool { return v.Name == in.Name && strings.HasSuffix(v.Zone, zone) }) {
				refuse(409, "alreadyExists", "The resource '"+in.Name+"' already exists")
				return
			}
			p.last++
			id = fmt.Sprint(4000000000000000000 + p.last)
			p.done[request] = id
			p.vms = append(p.vms, &vm{ID: id, Name: in.Name, Status: "STAGING",
				Zone: "https://www.googleapis.com/compute/v1/projects/shop/zones/" + zone, Created: time.Now(), Labels: in.Labels})
			for _, i := range in.Metadata.Items {
				if _, key, ok := strings.Cut(i.Value, ":"); ok && i.Key == "ssh-keys" {
					p.boots[id] = p.fleet.Boot(key)
				}
			}
		}
		answer(map[string]any{"kind": "compute#operation", "name": "operation-" + id, "status": "RUNNING", "targetId": id})
	case r.Method == "DELETE":
		i := slices.IndexFunc(p.vms, func(v *vm) bool { return strings.HasSuffix(path, "/instances/"+v.Name) })
		if i < 0 {
			refuse(404, "notFound", "The resource was not found")
			return
		}
		id := p.vms[i].ID
		p.fleet.Halt(p.boots[id])
		p.vms = slices.Delete(p.vms, i, i+1)
		for k, v := range p.done {
			if v == id {
				delete(p.done, k)
			}
		}
		answer(map[string]any{"name": "operation-" + id, "status": "RUNNING"})
	default:
		p.t.Errorf("nobody knows %s %s", r.Method, r.URL)
	}
}

// TestInstances runs all tests against the played API and real SSH.
func TestInstances(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &project{t: t, fleet: providertest.NewFleet(t), key: key, boots: map[string]string{}, done: map[string]string{}}
	api := providertest.NewTroubled(t, p, func(r *http.Request, _ string) bool {
		return r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/instances")
	})
	jsonKey := func(k *rsa.PrivateKey) string {
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(map[string]string{"type": "service_account", "project_id": "shop", "private_key_id": "k1",
			"client_email": "coopr@shop.iam.gserviceaccount.com",
			"token_uri":    api.URL + "/token", "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
		return string(b)
	}
	provider := instance.New(instance.Config{Open: open, Type: New(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(provider.Close)
	fields := map[string]any{"json_key": jsonKey(key), "zone": "europe-west3-a", "zones": "europe-west3-a,europe-west3-b",
		"public_address": true, "endpoint": api.URL, "ssh_port": providertest.FleetPort, "ssh_dir": t.TempDir()}
	(&providertest.Instances{
		Provider: provider, Fields: fields, Flavor: "e2-small", Image: "debian-12", Confirms: true, Troubled: api,
		Throttled: providertest.Says(429, "Retry-After: 0", refusal(429, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries'")),
		Quota:     providertest.Says(403, "", refusal(403, "quotaExceeded", "Quota 'CPUS' exceeded.  Limit: 24.0 in region europe-west3.")),
		Refused:   providertest.Says(403, "", refusal(403, "forbidden", "Required 'compute.instances.create' permission for 'projects/shop'")),
	}).Try(t)
	// The quota is only checked after the answer.
	api.Next(providertest.Says(200, "", `{"name":"operation-x","status":"DONE","error":{"errors":[{"code":"QUOTA_EXCEEDED","message":"Quota `+
		`'CPUS' exceeded."}]}}`))
	n := providertest.New(t, fields, "n")
	n.Flavor, n.Image = "e2-small", "debian-12"
	if err := n.Do("CREATE", provider.Create); err == nil || !strings.Contains(err.Error(), "quota raised") {
		t.Errorf("an operation that fails: %v", err)
	}
	fields["json_key"] = jsonKey(other)
	if err := n.Do("CREATE", provider.Create); err == nil || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("wrong credentials: %v", err)
	}
}

func TestFields(t *testing.T) {
	f := &instance.Fields{Values: map[string]any{"json_key": "{}", "disk_gb": 0}}
	open(f)
	var paths []string
	for _, x := range f.Faults {
		paths = append(paths, x.Path)
	}
	slices.Sort(paths)
	if got := strings.Join(paths, " "); got != "disk_gb json_key project zone" {
		t.Errorf("%s: %v", got, f.Faults)
	}
	if got := uuid("00112233445566778899aabbccddeeff"); got != "00112233-4455-4677-8899-aabbccddeeff" {
		t.Error(got)
	}
}
