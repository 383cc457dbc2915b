// Package idp starts a real provider of OpenID Connect and logs in on its pages as a browser does, for tests.
package idp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/testing/programs"
	"github.com/coopr/coopr/testing/site"
)

// The provider knows the mesh by two names: a public client with redirects, and one with a secret and the device flow.
const (
	Native     = "native"
	Device     = "device"
	DeviceWord = "words of the mesh"
)

// Provider is a running provider.
type Provider struct {
	Issuer string
	// Stop ends the provider.
	Stop func()
	file string
}

// New starts a provider that knows people: ann in the groups devs and ops, bob in devs, and eve in none. The password of each
// is "words of NAME". It ends with the test.
func New(t *testing.T) *Provider {
	t.Helper()
	dir := t.TempDir()
	program, err := programs.Tool(dir, "idp")
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{file: filepath.Join(dir, "people.json")}
	p.Knows(t, map[string][]string{"ann": {"devs", "ops"}, "bob": {"devs"}, "eve": nil})
	addr, name := site.Loopback()+":5556", filepath.Join(dir, "idp.log")
	log, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, addr, p.file)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Issuer, p.Stop = "http://"+addr+"/", sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(p.Stop)
	site.Await(t, "the identity provider to answer", func() error {
		resp, err := http.Get(p.Issuer + ".well-known/openid-configuration")
		if err != nil {
			said, _ := os.ReadFile(name)
			return fmt.Errorf("%w\n%s", err, said)
		}
		return resp.Body.Close()
	})
	return p
}

// Knows makes people, with their groups, all that the provider knows from now on.
func (p *Provider) Knows(t *testing.T, groups map[string][]string) {
	t.Helper()
	people := map[string]any{}
	for name, g := range groups {
		people[name] = map[string]any{"password": "words of " + name, "groups": g}
	}
	text, err := json.Marshal(people)
	if err == nil {
		err = os.WriteFile(p.file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(p.file+".new", p.file)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Browse opens a page of the provider as somebody with a password does in a browser, logs in and agrees. It returns where the
// browser is afterwards, and what it shows.
func (p *Provider) Browse(page, name, password string) (at, shows string, err error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", "", err
	}
	browser := &http.Client{Jar: jar}
	at, shows, err = read(browser.Get(page))
	if err != nil {
		return at, shows, err
	}
	u, err := url.Parse(at)
	if err != nil {
		return at, shows, err
	}
	form := url.Values{"username": {name}, "password": {password}}
	if code := u.Query().Get("user_code"); code != "" {
		form.Set("user_code", code)
		if at, shows, err = read(browser.PostForm(p.Issuer+"device/login", form)); err != nil || !strings.Contains(shows, "confirm") {
			return at, shows, err
		}
		return read(browser.PostForm(p.Issuer+"device/confirm", url.Values{"action": {"allowed"}}))
	}
	form.Set("id", u.Query().Get("authRequestID"))
	return read(browser.PostForm(p.Issuer+"login/username", form))
}

func read(resp *http.Response, err error) (at, shows string, _ error) {
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 500 {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return resp.Request.URL.String(), string(text), err
}
