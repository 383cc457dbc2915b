// Package digitalocean simulates an account at DigitalOcean for tests. It implements the part of
// the documented API that the provider uses. Droplets are machines of a fleet, with real SSH.
package digitalocean

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/plugins/provider/providertest"
)

// Token is the only valid API token, and Image the only image.
const (
	Token = "right"
	Image = "debian-12-x64"
)

// Account is an HTTP handler that serves the API of one account.
type Account struct {
	// Silent makes new droplets get an address at which nothing listens.
	Silent bool

	t        testing.TB
	fleet    *providertest.Fleet
	mu       sync.Mutex
	last     int
	droplets []map[string]any
}

// New returns an account without droplets. Its droplets will be machines of fleet.
func New(t testing.TB, fleet *providertest.Fleet) *Account { return &Account{t: t, fleet: fleet} }

// Creates reports whether a request asks for a new droplet.
func Creates(r *http.Request, _ string) bool { return r.Method == http.MethodPost }

// Responses of DigitalOcean to requests that it does not carry out.
var (
	Throttled = providertest.Says(429, "Retry-After: 0", `{"id":"too_many_requests","message":"API Rate limit exceeded."}`)
	Quota     = providertest.Says(422, "", `{"id":"unprocessable_entity","message":"creating this/these droplet(s) will exceed your `+
		`droplet limit"}`)
	Refused = providertest.Says(403, "", `{"id":"forbidden","message":"You do not have access for the attempted action."}`)
)

// Droplets returns the number of droplets now, and the number that were ever created.
func (a *Account) Droplets() (now, ever int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.droplets), a.last
}

func (a *Account) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	if r.Header.Get("Authorization") != "Bearer "+Token {
		answer(401, map[string]string{"id": "unauthorized", "message": "Unable to authenticate you"})
		return
	}
	switch {
	case Creates(r, "") && r.URL.Path == "/v2/droplets":
		var in struct {
			Name, Region, Size string
			Image              any
			Tags               []string
			UserData           string `json:"user_data"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Name == "" || in.Region == "" || in.Size == "" || in.Image != Image {
			answer(422, map[string]string{"id": "unprocessable_entity", "message": "You specified an invalid image for Droplet creation."})
			return
		}
		d := a.boot(in.UserData)
		if d == nil {
			answer(500, nil)
			return
		}
		d["name"], d["tags"], d["region"] = in.Name, in.Tags, map[string]string{"slug": in.Region}
		answer(202, map[string]any{"droplet": d})
	case r.Method == http.MethodGet && r.URL.Path == "/v2/droplets":
		a.list(answer, r.URL.Query().Get("tag_name"), r.URL.Query().Get("page"))
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/v2/droplets/"):
		i := slices.IndexFunc(a.droplets, func(d map[string]any) bool {
			return fmt.Sprint(d["id"]) == strings.TrimPrefix(r.URL.Path, "/v2/droplets/")
		})
		if i < 0 {
			answer(404, map[string]string{"id": "not_found", "message": "The resource you were accessing could not be found."})
			return
		}
		a.fleet.Halt(addressOf(a.droplets[i]))
		a.droplets = slices.Delete(a.droplets, i, i+1)
		w.WriteHeader(204)
	default:
		a.t.Errorf("nobody knows %s %s", r.Method, r.URL)
		answer(404, nil)
	}
}

// boot creates a droplet. It returns nil if the user data is invalid.
func (a *Account) boot(userData string) map[string]any {
	var data struct {
		Users []struct {
			Keys []string `yaml:"ssh_authorized_keys"`
		}
	}
	if err := yaml.Unmarshal([]byte(userData), &data); err != nil || len(data.Users) != 1 || !strings.HasPrefix(userData, "#cloud-config\n") {
		a.t.Errorf("user data %q: %v", userData, err)
		return nil
	}
	address := "127.0.0.9" // nothing listens there
	if !a.Silent {
		address = a.fleet.Boot(data.Users[0].Keys[0])
	}
	a.last++
	d := map[string]any{
		"id": a.last, "status": "new", "created_at": time.Now(),
		"networks": map[string]any{"v4": []any{map[string]string{"ip_address": address, "type": "public"}}},
	}
	a.droplets = append(a.droplets, d)
	return d
}

func addressOf(d map[string]any) string {
	return d["networks"].(map[string]any)["v4"].([]any)[0].(map[string]string)["ip_address"]
}

// list answers with one page of the droplets that have a tag. A page has only two droplets, so that
// a few droplets need several pages. A droplet is new and has no address when it is first listed;
// after that it is active.
func (a *Account) list(answer func(int, any), tag, number string) {
	found := []map[string]any{}
	for _, d := range a.droplets {
		if !slices.Contains(d["tags"].([]string), tag) {
			continue
		}
		shown := map[string]any{}
		for k, v := range d {
			if k != "networks" || d["status"] != "new" {
				shown[k] = v
			}
		}
		found = append(found, shown)
		d["status"] = "active"
	}
	page, _ := strconv.Atoi(number)
	from, to := min(2*(max(page, 1)-1), len(found)), min(2*max(page, 1), len(found))
	links := map[string]any{}
	if to < len(found) {
		links["pages"] = map[string]string{"next": "https://api.digitalocean.com/v2/droplets?page=2"}
	}
	answer(200, map[string]any{"droplets": found[from:to], "links": links, "meta": map[string]int{"total": len(found)}})
}
