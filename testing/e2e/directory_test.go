package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/testing/idp"
	"github.com/coopr/coopr/testing/slapd"
)

// TestDirectory lets people in whom an LDAP server knows, and locks out who has left it, also after a change of leader.
func TestDirectory(t *testing.T) {
	t.Parallel()
	s := slapd.New(t)
	ann, bob := s.Person("ann", "words of ann"), s.Person("bob", "words of bob")
	s.Person("eve", "words of eve")
	devs := s.Group("devs", ann, bob)
	dir := t.TempDir()
	word, conf := filepath.Join(dir, "word"), filepath.Join(dir, "directories.yaml")
	for file, text := range map[string]string{word: slapd.AgentsWord, conf: fmt.Sprintf(`directories:
  - {name: corp, url: %q, ca_cert: %q, bind_dn: %q, bind_password_file: %q, users: %q, groups: %q,
     rules: [{group: %q, role: user, groups: [devs]}]}
`, s.URL, s.CA, slapd.Agents, word, slapd.People, slapd.Groups, devs)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := startMesh(t, "--config", conf)
	var addrs []string
	for _, a := range m.agents {
		addrs = append(addrs, a.addr(httpPort))
	}
	home := map[string]string{"ann": t.TempDir(), "bob": t.TempDir(), "eve": t.TempDir()}
	as := func(name, words string, code int, args ...string) string {
		t.Helper()
		said := m.person(home[name], words, args...)
		if said.code != code {
			t.Errorf("%s: coopr %s: exit code %d, not %d\n%s%s", name, strings.Join(args, " "), said.code, code, said.out, said.err)
		}
		return said.out + said.err
	}
	login := func(name, words string, code int) string {
		t.Helper()
		return as(name, words, code, "login", "--addr", strings.Join(addrs, ","), "--method", "corp", "--user", name, "--password-stdin")
	}
	login("ann", "words of bob", 1)
	login("eve", "words of eve", 1) // she is in no group
	login("ann", "words of ann", 0)
	if got := login("bob", "words of bob", 0); !strings.Contains(got, "corp.bob") {
		t.Errorf("the name of bob: %s", got)
	}
	if got := as("ann", "", 0, "whoami"); !strings.Contains(got, "devs") {
		t.Errorf("ann is: %s", got)
	}
	as("ann", "", 0, "token", "create")
	if got := m.must("user", "list"); strings.Count(got, "corp.") != 2 {
		t.Errorf("the users: %s", got)
	}
	for _, args := range [][]string{{"--role", "admin"}, {"--group", "ops"}, {"--new-password"}} {
		if said := m.coopr(append([]string{"user", "set", "corp.ann"}, args...)...); said.code != 1 || !strings.Contains(said.err, "corp") {
			t.Errorf("user set corp.ann %v: %d %s%s", args, said.code, said.out, said.err)
		}
	}

	// A person who has left the server has no access once a leader has asked.
	s.Delete(ann)
	m.leader().kill()
	m.await("ann to be locked out", func() error {
		if said := m.person(home["ann"], "", "cluster", "list"); said.code != 1 {
			return fmt.Errorf("exit code %d: %s%s", said.code, said.out, said.err)
		}
		return nil
	})
	as("bob", "", 0, "cluster", "list")
	if got := m.must("user", "list"); !strings.Contains(got, "not in corp") {
		t.Errorf("the users: %s", got)
	}
	for _, a := range m.agents {
		if !a.alive() {
			a.start()
		}
	}
	m.ready()
	s.Person("ann", "other words") // somebody else, who is in the group by the name
	if got := login("ann", "other words", 0); !strings.Contains(got, "corp.ann-") {
		t.Errorf("the name of another ann: %s", got)
	}
	m.stop()
}

// TestIdentityProvider logs in on the pages of a provider of OpenID Connect, with a browser on this machine and on another.
func TestIdentityProvider(t *testing.T) {
	t.Parallel()
	p := idp.New(t)
	dir := t.TempDir()
	word, conf := filepath.Join(dir, "word"), filepath.Join(dir, "providers.yaml")
	for file, text := range map[string]string{word: idp.DeviceWord, conf: fmt.Sprintf(`identity_providers:
  - {name: sso, issuer: %q, client_id: %s, scopes: [profile, offline_access],
     rules: [{group: devs, role: user}, {group: ops, groups: [oncall]}]}
  - {name: remote, issuer: %q, client_id: %s, client_secret_file: %q, device: true, rules: [{group: devs, role: read}]}
`, p.Issuer, idp.Native, p.Issuer, idp.Device, word)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := startMesh(t, "--config", conf)
	var addrs []string
	for _, a := range m.agents {
		addrs = append(addrs, a.addr(httpPort))
	}
	// login runs the command and a browser, and returns what the command said.
	login := func(home, name string, code int, args ...string) string {
		t.Helper()
		cmd := m.personCommand(t.Context(), home, append([]string{"login", "--addr", strings.Join(addrs, ",")}, args...)...)
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		var out, notes bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			fmt.Fprintln(&notes, lines.Text())
			if page, ok := strings.CutPrefix(lines.Text(), "Log in at "); ok {
				if _, shows, err := p.Browse(page, name, "words of "+name); err != nil {
					t.Errorf("the page of %s: %s, %v", name, shows, err)
				}
			}
		}
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != code {
			t.Errorf("%s logs in %v: exit code %d, not %d\n%s", name, args, cmd.ProcessState.ExitCode(), code, notes.String())
		}
		return out.String() + notes.String()
	}
	ann, bob := t.TempDir(), t.TempDir()
	if got := login(ann, "ann", 0, "--method", "sso"); !strings.Contains(got, "Logged in as sso.ann in tenant default") {
		t.Errorf("ann hears: %s", got)
	}
	if got := m.person(ann, "", "whoami"); got.code != 0 || !strings.Contains(got.out, "ann") {
		t.Errorf("ann is %+v", got)
	}
	if got := login(ann, "eve", 1, "--method", "sso"); !strings.Contains(got, "error: not logged in: you are not let in") {
		t.Errorf("eve hears: %s", got)
	}
	if got := login(bob, "bob", 0, "--method", "remote", "--device"); !strings.Contains(got, "confirm the code") {
		t.Errorf("bob hears: %s", got)
	}
	// The console, in one browser and in another.
	agent := "http://" + addrs[0]
	ask := func(path, body, cookie string, status int) (set map[string]string, answer map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, agent+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Sec-Fetch-Site": "same-origin", "Coopr-Csrf": "1", "Cookie": cookie} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != status {
			t.Fatalf("%s: %s %v, %v", path, resp.Status, answer, err)
		}
		set = map[string]string{}
		for _, c := range resp.Cookies() {
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
				t.Errorf("%s: %v", path, c)
			}
			set[c.Name] = c.Name + "=" + c.Value
		}
		return set, answer
	}
	const pending, session = "coopr-session-login", "coopr-session"
	begin := func() (cookie, page string) {
		t.Helper()
		set, answer := ask("/console/begin", `{"tenant":"default","method":"sso"}`, "", http.StatusCreated)
		page, _ = answer["url"].(string)
		if answer["login"] != nil || set[pending] == "" || set[session] != "" {
			t.Fatalf("the login begins with %v, %v", set, answer)
		}
		return set[pending], page
	}
	// A browser comes back to the agent that was asked, whatever the request says.
	_, sent := ask("/console/begin", `{"tenant":"default","method":"sso","redirect":"https://evil.example/","next":"//evil.example"}`, "",
		http.StatusCreated)
	text, _ := sent["url"].(string)
	to, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if q := to.Query(); q.Get("redirect_uri") != agent+"/console/callback" || strings.Contains(text, "evil") || len(q.Get("state")) < 20 ||
		len(q.Get("nonce")) < 20 || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) < 40 {
		t.Errorf("the browser is sent to %s", text)
	}
	cookie, page := begin()
	at, shows, err := p.Browse(page, "ann", "words of ann")
	back, fault := url.Parse(at)
	if err != nil || fault != nil || !strings.HasPrefix(at, agent+"/console/callback?") || !strings.Contains(shows, "/console/app.js") {
		t.Fatalf("the browser is at %s, which shows %s: %v", at, shows, err)
	}
	came := func(state string) string {
		return fmt.Sprintf(`{"state":%q,"code":%q}`, state, back.Query().Get("code"))
	}
	state := back.Query().Get("state")
	other, _ := begin()
	for what, of := range map[string][2]string{"no login": {"", state}, "another login": {other, state}, "another state": {cookie, "guess"}} {
		if set, _ := ask("/console/finish", came(of[1]), of[0], http.StatusUnauthorized); set[session] != "" {
			t.Errorf("%s has a session", what)
		}
	}
	set, answer := ask("/console/finish", came(state), cookie, http.StatusCreated)
	if set[session] == "" || set[pending] != pending+"=" || answer["actor"] != "sso.ann" || answer["secret"] != nil {
		t.Errorf("ann has %v in the console, %v", set, answer)
	}
	if set, _ := ask("/console/finish", came(state), cookie, http.StatusUnauthorized); set[session] != "" {
		t.Error("the same code opens another session")
	}
	if got := m.must("user", "list"); !strings.Contains(got, "sso") || !strings.Contains(got, "remote") {
		t.Errorf("the users: %s", got)
	}

	// The provider is asked again at each renewal, also by the next leader.
	m.await("a session that can be renewed", func() error { // as soon as the mesh encrypts values
		cookie, page := begin()
		at, _, err := p.Browse(page, "ann", "words of ann")
		if err != nil {
			return err
		}
		if back, err = url.Parse(at); err != nil {
			return err
		}
		if set, answer = ask("/console/finish", came(back.Query().Get("state")), cookie, http.StatusCreated); answer["renewable"] == answer["expires"] {
			return errNotYet
		}
		return nil
	})
	if got := m.person(ann, "", "whoami"); !strings.Contains(got.out, "oncall") {
		t.Errorf("ann is %+v", got)
	}
	p.Knows(t, map[string][]string{"ann": {"devs"}, "bob": {"devs"}})
	gone := m.leader()
	gone.kill()
	next := m.leader(gone)
	agent = "http://" + next.addr(httpPort)
	ask("/v1/self/renew", "", set[session], http.StatusOK)
	if got := m.person(ann, "", "whoami"); got.code != 0 || strings.Contains(got.out, "oncall") {
		t.Errorf("with other groups, ann is %+v", got)
	}
	p.Knows(t, map[string][]string{"bob": {"devs"}})
	ask("/v1/self/renew", "", set[session], http.StatusUnauthorized)
	if got := m.person(ann, "", "whoami"); got.code == 0 {
		t.Errorf("whoever is gone is still %+v", got)
	}
	gone.start()
	m.ready()
	m.stop()
}
