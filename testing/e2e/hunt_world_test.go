package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/testing/hunt"
	"github.com/coopr/coopr/testing/slapd"
)

// A preserve is a mesh with canaries in every kind of secret, and all that was seen of it from outside.
type preserve struct {
	*mesh
	plant  map[string]hunt.Canary
	tokens map[string]string // of the principals, by name
	own    string            // folder of the operator's files, to which no plugin has access
	web    *http.Client

	mu    sync.Mutex
	heard map[string][]byte // what was said outside: output of commands, requests to the webhook, event streams
}

// canary plants a canary of a kind, and returns its value.
func (p *preserve) canary(kind string) string { return p.keep(hunt.Plant(kind)) }

// word is like canary, for places that take letters and digits only.
func (p *preserve) word(kind string) string { return p.keep(hunt.Word(kind)) }

// keep makes a secret that others have made up a canary.
func (p *preserve) keep(c hunt.Canary) string {
	if old, ok := p.plant[c.Kind]; ok && old.Value != c.Value {
		p.t.Fatalf("two canaries are the %s", c.Kind)
	}
	p.plant[c.Kind] = c
	return c.Value
}

// decoy plants a text that is no secret. The hunt must find it in a kind of places, or it does not reach these.
func (p *preserve) decoy(where string) string { return p.word("decoy in " + where) }

// hear keeps what was said outside.
func (p *preserve) hear(who string, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[who] = append(p.heard[who], data...)
}

// says runs a command that succeeds, whose output must have no secret.
func (p *preserve) says(args ...string) string {
	p.t.Helper()
	s := p.coopr(args...)
	p.hear("the output of coopr "+strings.Join(args, " "), []byte(s.out+s.err))
	if s.code != 0 {
		p.t.Fatalf("coopr %s: exit code %d\n%s%s", strings.Join(args, " "), s.code, s.out, s.err)
	}
	return s.out
}

// fails is like says for a command that fails.
func (p *preserve) fails(args ...string) {
	p.t.Helper()
	s := p.coopr(args...)
	p.hear("the output of coopr "+strings.Join(args, " "), []byte(s.out+s.err))
	if s.code == 0 {
		p.t.Errorf("coopr %s has no fault:\n%s%s", strings.Join(args, " "), s.out, s.err)
	}
}

// document writes definitions or another document to a file, and returns its path.
func (p *preserve) document(name string, value any) string {
	p.t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.put(name, string(text))
}

// object is a part of a document.
type object = map[string]any

// newPreserve starts a mesh as in production, with a directory, an identity provider that is away, sinks, and plugins with settings.
func newPreserve(t *testing.T) *preserve {
	t.Helper()
	p := &preserve{mesh: newMesh(t, "a", "b", "c"), plant: map[string]hunt.Canary{}, tokens: map[string]string{}, heard: map[string][]byte{},
		own: t.TempDir()}
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(p.own, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	p.found()
	p.keep(hunt.Canary{Kind: "root token", Value: p.token})
	p.tokens["root"] = p.token
	born := p.identity(p.agents[0])
	p.keep(hunt.Canary{Kind: "key of the CA", Value: string(born.Birth.CAKey)})
	p.joinToken("join token of the first voters", p.voterToken())

	webhook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // an agent was stopped meanwhile
		}
		p.hear("what the webhook got", body)
	}))
	t.Cleanup(webhook.Close)
	dir := slapd.New(t)
	dir.Person("ann", p.canary("password of ann, in the directory"))
	p.keep(hunt.Canary{Kind: "password of the mesh, in the directory", Value: slapd.AgentsWord})
	settings, err := json.Marshal(object{"region": "the moon", "api_token": p.canary("setting of a plugin")})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"seen", "got"} {
		if err := os.MkdirAll(filepath.Join(p.dir, "hunt", part), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.writers = fmt.Sprintf("- {name: vault, path: vault.yaml, writes: [%[1]q], settings: %[2]s}\n- {name: safe, path: safe.yaml, writes: [%[1]q]}\n", p.dir, settings)
	more := []string{
		"issuer: " + issuer, "log: {level: debug}", "zone: " + p.decoy("a setting"),
		fmt.Sprintf("audit: {sinks: [{name: hook, type: webhook, url: %q, header_file: %q}, {name: file, type: file, path: %q}]}",
			webhook.URL+"/"+p.word("path of the webhook"), file("hook.headers", "Authorization: Bearer "+p.word("header of the webhook")+"\n"), filepath.Join(p.own, "audit.jsonl")),
		fmt.Sprintf("directories: [{name: corp, url: %q, ca_cert: %q, bind_dn: %q, bind_password_file: %q, users: %q, role: read}]",
			dir.URL, dir.CA, slapd.Agents, file("word", slapd.AgentsWord), slapd.People),
		fmt.Sprintf("identity_providers: [{name: sso, issuer: 'http://127.0.0.1:1', client_id: coopr, client_secret_file: %q, device: true, role: read}]",
			file("client", p.canary("secret of the identity provider"))),
	}
	folder, _ := p.pluginDir()
	for name, from := range map[string]string{"coopr-provider-local": bin, "coopr-node": bin,
		"coopr-plugin-chaos": filepath.Join(bin, "more"), "bait": testdata(t, "hunt/plugins"), "vault.yaml": testdata(t, "hunt/plugins"),
		"safe.yaml": testdata(t, "hunt/plugins")} {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range p.agents {
		a.run("run", "--config", a.config(p.voterToken(), more...))
	}
	p.ready()
	p.vote()
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(p.caCert)
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal("the CA's certificate: ", err)
	}
	p.web = webClient(pool)
	t.Cleanup(p.web.CloseIdleConnections)
	return p
}

// identity returns the content of an agent's file of that name.
func (p *preserve) identity(a *agent) (m identity.Membership) {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.data, "identity"))
	if err == nil {
		// The file ends with a checksum.
		err = json.NewDecoder(bytes.NewReader(text[max(0, bytes.IndexByte(text, '{')):])).Decode(&m)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// joinToken makes the secret of a join token a canary, as it is and as operators copy it.
func (p *preserve) joinToken(kind, text string) {
	p.t.Helper()
	token, err := identity.ParseJoinToken(text)
	if err != nil {
		p.t.Fatal(err)
	}
	p.keep(hunt.Canary{Kind: kind, Value: string(token.Secret())})
	_, body, _ := strings.Cut(strings.TrimPrefix(text, "coopr-"), "-")
	// The id of eight bytes comes first, then the secret of twenty. The rest is no secret.
	p.keep(hunt.Canary{Kind: kind + ", as text", Value: body[13:44]})
}

// keysOfTheMesh makes the keys in the keyring canaries.
func (p *preserve) keysOfTheMesh() {
	p.t.Helper()
	text, err := os.ReadFile(p.agents[0].data + "-keyring/keys")
	if err != nil {
		p.t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "key" {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(words[2])
		if err != nil {
			p.t.Fatal(err)
		}
		p.keep(hunt.Canary{Kind: "key " + words[1] + " of the mesh", Value: string(key)})
		found++
	}
	if found == 0 {
		p.t.Error("the keyring has no keys")
	}
}

// people creates principals of every kind.
func (p *preserve) people() {
	t := p.t
	t.Helper()
	p.says("tenant", "put", "far")
	login := func(name, user, password string, args ...string) {
		t.Helper()
		home := t.TempDir()
		var addrs []string
		for _, a := range p.agents {
			addrs = append(addrs, a.addr(httpPort))
		}
		args = append([]string{"login", "--addr", strings.Join(addrs, ","), "--ca-cert", p.caCert, "--user", user, "--password-stdin"}, args...)
		s := p.person(home, password+"\n", args...)
		if s.code != 0 {
			t.Fatalf("%s cannot log in: %s%s", name, s.out, s.err)
		}
		p.hear("the login of "+name, []byte(s.out+s.err))
		var kept struct {
			Contexts map[string]struct{ Token string }
		}
		text, err := os.ReadFile(filepath.Join(home, ".config", "coopr", "contexts.json"))
		if err == nil {
			err = json.Unmarshal(text, &kept)
		}
		for _, c := range kept.Contexts {
			p.tokens[name] = c.Token
		}
		if err != nil || p.tokens[name] == "" {
			t.Fatalf("the session of %s: %v\n%s", name, err, text)
		}
		p.keep(hunt.Canary{Kind: "session of " + name, Value: p.tokens[name]})
	}
	for name, args := range map[string][]string{
		"sue": {"--role", "superadmin"}, "ada": {"--role", "admin"}, "bob": {"--role", "user"}, "vic": {"--role", "read"},
		"opa": {"--role", "read", "--group", "operator"}, "fay": {"--role", "admin", "--tenant", "far"},
	} {
		word := strings.TrimSpace(p.must(append([]string{"user", "create", name}, args...)...))
		p.keep(hunt.Canary{Kind: "first password of " + name, Value: word})
		if slices.Contains(args, "far") {
			login(name, name, word, "--tenant", "far")
		} else {
			login(name, name, word)
		}
	}
	login("ann", "ann", p.plant["password of ann, in the directory"].Value, "--method", "corp")
	// Bob chooses a password. His session goes on.
	own := p.canary("password that bob chose")
	body, err := json.Marshal(object{"old": p.plant["first password of bob"].Value, "new": own})
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := p.ask("bob", http.MethodPut, "/v1/self/password", string(body)); status >= 300 {
		t.Errorf("bob cannot change his password: %d %s", status, answer)
	}
	login("bob again", "bob", own)
	p.says("user", "create", "ci", "--account")
	p.tokens["ci"] = p.keep(hunt.Canary{Kind: "token of an account", Value: strings.TrimSpace(p.must("token", "create", "ci"))})
	p.tokens["nobody"] = ""
	p.joinToken("join token of a worker", strings.TrimSpace(p.must("token", "join", "--kind", "worker")))
	// Passwords and tokens that are wrong may be close to the right ones.
	p.wrong()
}

// wrong tries passwords and tokens that are not taken, and a provider of identities that is away.
func (p *preserve) wrong() {
	p.t.Helper()
	for _, body := range []object{
		{"tenant": "default", "user": "bob", "password": p.canary("wrong password")},
		{"tenant": "default", "user": "ann", "method": "corp", "password": p.canary("wrong password, in the directory")},
	} {
		text, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		status, answer := p.ask("nobody", http.MethodPost, "/v1/login", string(text))
		if status < 400 {
			p.t.Errorf("a wrong password is right: %d", status)
		}
		p.hear("the answer to a wrong password", answer)
	}
	status, answer := p.ask("nobody", http.MethodPost, "/v1/login/begin", `{"tenant":"default","method":"sso"}`)
	if status < 400 {
		p.t.Errorf("a provider that is away answers: %d", status)
	}
	p.hear("the answer for a provider that is away", answer)
	p.tokens["stranger"] = p.word("token that nobody knows")
	if status, _ := p.ask("stranger", http.MethodGet, "/v1/clusters", ""); status != http.StatusUnauthorized {
		p.t.Errorf("a stranger: %d", status)
	}
	delete(p.tokens, "stranger")
	if status, _ := p.ask("nobody", http.MethodGet, "/v1/clusters?token="+p.word("token in a URL"), ""); status < 400 {
		p.t.Errorf("a token in a URL: %d", status)
	}
}
