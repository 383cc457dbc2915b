package joyent

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
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
	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/plugins/provider/instance"
	"github.com/coopr/coopr/plugins/provider/providertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"))
}

// account plays CloudAPI according to its documentation.
type account struct {
	t     *testing.T
	fleet *providertest.Fleet
	key   *rsa.PublicKey

	mu       sync.Mutex
	last     int
	machines []*machine
	boots    map[string]string
}

var signature = regexp.MustCompile(`^Signature keyId="/me/keys/[0-9a-f:]{47}",algorithm="rsa-sha256",signature="([^"]+)"$`)

func (a *account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	refuse := func(status int, code, message string) {
		answer(status, map[string]string{"code": code, "message": message})
	}
	m := signature.FindStringSubmatch(r.Header.Get("Authorization"))
	sum := sha256.Sum256([]byte("date: " + r.Header.Get("Date")))
	if m == nil {
		refuse(401, "InvalidCredentials", "no signature")
		return
	}
	if blob, err := base64.StdEncoding.DecodeString(m[1]); err != nil || rsa.VerifyPKCS1v15(a.key, crypto.SHA256, sum[:], blob) != nil {
		refuse(401, "InvalidCredentials", "The signature we calculated does not match the one you sent")
		return
	}
	switch {
	case r.Method == "GET" && r.URL.Path == "/me/machines":
		found := []machine{}
		for _, x := range a.machines {
			fits := true
			for k, v := range r.URL.Query() {
				if name, isTag := strings.CutPrefix(k, "tag."); isTag {
					fits = fits && x.Tags[name] == v[0]
				}
			}
			if !fits {
				continue
			}
			found = append(found, *x)
			if x.State == "provisioning" {
				x.State, x.IPs = "running", []string{"10.112.3.4", a.boots[x.ID]}
			}
		}
		answer(200, found)
	case r.Method == "POST" && r.URL.Path == "/me/machines":
		var in map[string]any
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in["image"] != "debian-12" {
			refuse(409, "InvalidArgument", "image is not a UUID of an image that you may use")
			return
		}
		if slices.ContainsFunc(a.machines, func(x *machine) bool { return x.Name == in["name"] }) {
			refuse(409, "InvalidArgument", "name: already exists for this owner_uuid")
			return
		}
		a.last++
		x := &machine{ID: fmt.Sprintf("b6979942-7d5d-4fe6-a2ec-%012x", a.last), Name: in["name"].(string), State: "provisioning",
			Created: time.Now(), Tags: map[string]any{}}
		for k, v := range in {
			if name, isTag := strings.CutPrefix(k, "tag."); isTag {
				x.Tags[name] = v
			}
		}
		a.boots[x.ID] = a.fleet.Boot(in["metadata.root_authorized_keys"].(string))
		a.machines = append(a.machines, x)
		answer(201, x)
	case strings.HasPrefix(r.URL.Path, "/me/machines/"):
		i := slices.IndexFunc(a.machines, func(x *machine) bool { return r.URL.Path == "/me/machines/"+x.ID })
		switch {
		case i < 0:
			refuse(404, "ResourceNotFound", "VM not found")
		case r.Method == "POST" && r.URL.RawQuery == "action=stop":
			a.machines[i].State = "stopped"
			w.WriteHeader(202)
		case a.machines[i].State != "stopped":
			refuse(409, "InvalidState", "the machine runs: stop it first")
		default:
			a.fleet.Halt(a.boots[a.machines[i].ID])
			a.machines = slices.Delete(a.machines, i, i+1)
			w.WriteHeader(204)
		}
	default:
		a.t.Errorf("nobody knows %s %s", r.Method, r.URL)
	}
}

func key(t *testing.T) (*rsa.PrivateKey, string) {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	block, err := gossh.MarshalPrivateKey(k, "")
	if err != nil {
		t.Fatal(err)
	}
	return k, string(pem.EncodeToMemory(block))
}

// TestInstances runs all tests against the played API and real SSH.
func TestInstances(t *testing.T) {
	private, text := key(t)
	a := &account{t: t, fleet: providertest.NewFleet(t), key: &private.PublicKey, boots: map[string]string{}}
	api := providertest.NewTroubled(t, a, func(r *http.Request, _ string) bool { return r.Method == "POST" && r.URL.Path == "/me/machines" })
	p := instance.New(instance.Config{Open: open, Type: New(nil).Describe(), Poll: 5 * time.Millisecond})
	t.Cleanup(p.Close)
	fields := map[string]any{"joyent_username": "me", "joyent_api_url": api.URL, "joyent_key": text, "ssh_port": providertest.FleetPort,
		"ssh_dir": t.TempDir()}
	(&providertest.Instances{
		Provider: p, Fields: fields, Flavor: "g4-highcpu-1G", Image: "debian-12", Confirms: true, Troubled: api,
		Throttled: providertest.Says(429, "Retry-After: 0", `{"code":"RequestThrottled","message":"You have exceeded your request rate"}`),
		Quota: providertest.Says(403, "", `{"code":"QuotaExceeded","message":"quota exceeded; to have your limits raised please `+
			`contact support"}`),
		Refused: providertest.Says(403, "", `{"code":"NotAuthorized","message":"account 'me' is disabled"}`),
	}).Try(t)
	_, fields["joyent_key"] = key(t)
	n := providertest.New(t, fields, "n")
	n.Flavor, n.Image = "g4-highcpu-1G", "debian-12"
	if err := n.Do("CREATE", p.Create); err == nil || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("wrong credentials: %v", err)
	}
}

func TestFields(t *testing.T) {
	f := &instance.Fields{Values: map[string]any{"joyent_api_url": "x", "joyent_key": "k"}}
	open(f)
	var paths []string
	for _, x := range f.Faults {
		paths = append(paths, x.Path)
	}
	slices.Sort(paths)
	if got := strings.Join(paths, " "); got != "joyent_api_url joyent_key joyent_username" {
		t.Errorf("%s: %v", got, f.Faults)
	}
}
