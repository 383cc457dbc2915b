package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/identity"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write docs/agent.yaml again")

// file writes a configuration file with mode 0600 and returns its path.
func file(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t testing.TB, content string) (Config, error) {
	t.Helper()
	return Load(Sources{Files: []string{file(t, "agent.yaml", content)}})
}

// faultsOf returns "line path: message" for each fault.
func faultsOf(t testing.TB, err error) string {
	t.Helper()
	var faults Faults
	if err == nil {
		return ""
	}
	if !errors.As(err, &faults) {
		t.Fatalf("not Faults: %v", err)
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, fmt.Sprintf("%d %s: %s", f.Line, f.Path, f.Message))
	}
	return strings.Join(lines, "\n")
}

func TestDefaultsAreValid(t *testing.T) {
	for _, dev := range []bool{false, true} {
		c, err := Load(Sources{Flags: map[string]string{"dev": fmt.Sprint(dev)}})
		if err != nil {
			t.Error(err)
		}
		want := Default(dev)
		want.Name, _ = os.Hostname()
		if !reflect.DeepEqual(c, want) {
			t.Errorf("dev %v: got %+v", dev, c)
		}
	}
}

func TestSampleIsUpToDateAndSaysTheDefaults(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "agent.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(sample()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != sample() {
		t.Error("docs/agent.yaml is out of date: go test ./agent/config -run Sample -update")
	}
	hostname, _ := os.Hostname()
	want := Default(false)
	want.Name = hostname
	asIs, err := load(t, string(raw))
	if err != nil || !reflect.DeepEqual(asIs, want) {
		t.Errorf("as it is: %v\n%+v", err, asIs)
	}
	// With every value uncommented it loads too, with the same values except for the examples.
	var in strings.Builder
	for line := range strings.Lines(string(raw)) {
		text := strings.TrimLeft(line, " ")
		indent := line[:len(line)-len(text)]
		if strings.HasPrefix(text, "#") && len(text) > 2 && (text[1] != ' ' || text[2] == ' ') {
			text = text[1:]
		}
		in.WriteString(indent + text)
	}
	all, err := load(t, in.String())
	if err != nil {
		t.Fatal(err)
	}
	if len(all.Plugins) != 1 || len(all.Plugins[0].Settings) != 1 {
		t.Errorf("the example plugin: %+v", all.Plugins)
	}
	if len(all.Directories) != 1 || len(all.IdentityProviders) != 1 {
		t.Errorf("the example directory and provider: %+v, %+v", all.Directories, all.IdentityProviders)
	}
	if len(all.Audit.Sinks) != 4 {
		t.Errorf("the example sinks: %+v", all.Audit.Sinks)
	}
	all.Plugins, all.Directories, all.IdentityProviders, all.Audit.Sinks = nil, nil, nil, nil
	all.Name, all.Join, all.HTTP.Names, all.Providers.Endpoints, all.Interpreters = hostname, nil, nil, nil, nil
	all.Keyring.Program.Args, all.Keyring.Program.Env = nil, nil
	if !reflect.DeepEqual(all, want) {
		t.Errorf("commented in it is not the default:\n%#v\n%#v", all, want)
	}
	for _, f := range Fields() {
		if f.Doc == "" {
			t.Errorf("%s has no documentation", f.Path)
		}
	}
}

func TestPrecedence(t *testing.T) {
	one := file(t, "one.yaml", "zone: file-one\nclass: file-one\nname: file-one\nlog: {level: debug}\njoin: [a, b]\n")
	two := file(t, "two.yaml", "class: file-two\nname: file-two\nlog:\n  format: json\njoin: [c]\n")
	c, err := Load(Sources{
		Files: []string{one, two},
		Env: []string{"COOPR_NAME=env", "COOPR_WORKER_SLOTS=7", "COOPR_HTTP_ADDR=127.0.0.1:1", "HOME=/root",
			"COOPR_HTTP_NAMES=x.example.org, 10.0.0.1"},
		Flags: map[string]string{"worker.slots": "9"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s %s %s %d %s %v %v %v", c.Zone, c.Class, c.Name, c.Worker.Slots, c.HTTP.Addr, c.Log, c.Join, c.HTTP.Names)
	if want := "file-one file-two env 9 127.0.0.1:1 {debug json} [c] [x.example.org 10.0.0.1]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestDirectoryOfFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"10-a.yaml": "zone: a\nclass: a", "20-b.yml": "zone: b", "README": "zone: [",
		"30.yaml.bak": "zone: c"} {
		os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)
	}
	c, err := Load(Sources{Files: []string{dir}})
	if err != nil || c.Zone != "b" || c.Class != "a" {
		t.Error(c.Zone, c.Class, err)
	}
}

func TestDevSetsDefaultsFromAnySource(t *testing.T) {
	for name, s := range map[string]Sources{
		"file": {Files: []string{file(t, "a.yaml", "dev: true")}},
		"env":  {Env: []string{"COOPR_DEV=true"}},
		"flag": {Flags: map[string]string{"dev": "true"}},
	} {
		c, err := Load(s)
		if err != nil || c.HTTP.Addr != "127.0.0.1:55054" || c.BootstrapExpect != 1 || c.HTTPSecurity() != PlainLoopback {
			t.Error(name, c, err)
		}
	}
}

// A dev agent that joins others does not start its own mesh, because it would lose the state of that
// mesh to the mesh of the others.
func TestDevThatJoinsBeginsNothing(t *testing.T) {
	for content, want := range map[string]int{
		"dev: true\njoin: ['127.0.0.1:7000']":                      0,
		"dev: true\njoin: ['127.0.0.1:7000']\nbootstrap_expect: 3": 3,
		"dev: true\njoin: ['127.0.0.1:55056']":                     1, // the agent's own address
		"dev: true\nbootstrap_expect: 0":                           0,
		"dev: true":                                                1,
	} {
		if c, err := load(t, content); err != nil || c.BootstrapExpect != want {
			t.Errorf("%s\ngives bootstrap_expect %d, %v; expected %d", content, c.BootstrapExpect, err, want)
		}
	}
}

func TestEveryFaultAtOnceWithItsLine(t *testing.T) {
	_, err := load(t, `name: "bad name"
http:
  adr: 0.0.0.0:1
  tls_cert: /nonexistent
peer:
  addr: nowhere
gossip: 5
worker: {slots: many}
bootstrap_expect: 2
join: [ok.example.org, "bad host", "h:99999"]
log: {level: loud}
raft:
  snapshot_interval: soon
  multiplier: 99
limits: {body: huge}
plugins:
  - name: p
    checksum: md5:1
  - name: p
    path: ../../bin/sh
    setings: {a: b}
name: again
quux: 1
`)
	want := []string{
		`1 name: "bad name"`, `3 http.adr: unknown name, did you mean addr?`, `4 http.tls_cert: http.tls_key is missing`,
		`6 peer.addr: "nowhere": write it as ip:port`, `7 gossip: expected names and values, found a single value`,
		`8 worker.slots: "many" is not a whole number`, `9 bootstrap_expect: 2: it must be 1, 3 or 5`, `10 join[1]: "bad host"`,
		`10 join[2]: "h:99999"`,
		`11 log.level: "loud": it must be one of debug, info, warn, error`, `13 raft.snapshot_interval: "soon" is not a duration`,
		`14 raft.multiplier: 99: it must be between 1 and 10`, `15 limits.body: "huge" is not a size`, `18 plugins[0].checksum:`,
		`19 plugins[1].name: p is in the list twice`, `20 plugins[1].path: "../../bin/sh" is outside plugin_dir`,
		`21 plugins[1].setings: unknown name, did you mean settings?`, `22 name: set a second time; the first is on line 1`,
		`23 quux: unknown name`,
	}
	got := faultsOf(t, err)
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("no fault %q", w)
		}
	}
	if lines := strings.Count(got, "\n") + 1; lines != len(want) {
		t.Errorf("%d faults, expected %d:\n%s", lines, len(want), got)
	}
	if !strings.Contains(err.Error(), "agent.yaml, line 3: http.adr: ") {
		t.Errorf("printed as:\n%v", err)
	}
}

// The settings of a directory and of an identity provider without faults.
const (
	goodLDAP = "name: corp, url: 'ldaps://h', users: 'dc=a', role: read"
	goodOIDC = "name: sso, issuer: 'https://h/', client_id: c, role: read"
	// goodTransit is a server that decrypts keyrings.
	goodTransit = "address: 'https://v:8200', key: k, token_file: /t"
)

// oldMesh is the secret of a mesh whose agents share one.
const oldMesh = "coopr-join-1-bb2rm4bbjbejwk5qythtb2pezf7lx2dxg7dn6ufu46k4vxhzqe7rqrziy4"

func TestRules(t *testing.T) {
	token, _ := identity.ParseToken(oldMesh)
	tokenFile := file(t, "token", token.Token())
	for content, want := range map[string]string{
		"":                                                           "",
		"http: {addr: '127.0.0.1:1'}":                                "",
		"http: {insecure_plaintext: true}":                           "",
		"dev: true\nhttp: {addr: '0.0.0.0:1'}":                       "not loopback",
		"dev: true\ngossip: {addr: '10.0.0.1:1'}":                    "not loopback",
		"dev: true\npeer: {advertise: '10.0.0.1:1'}":                 "not loopback",
		"dev: true\nhttp: {addr: '127.0.0.2:1'}":                     "",
		"dev: true\nhttp: {addr: '[::1]:1'}":                         "",
		"peer: {addr: '0.0.0.0:55054'}":                              "is also the value of http.addr",
		"peer: {addr: '127.0.0.1:0'}\ngossip: {addr: '127.0.0.1:0'}": "",
		"peer: {advertise: '0.0.0.0:55055'}":                         "other agents cannot reach this address",
		"gossip: {advertise: '10.0.0.1'}":                            "write it as ip:port",
		"data_dir: ''":                                               "needs a directory",
		"eligible: false\nbootstrap_expect: 3":                       "eligible is false",
		"eligible: false":                                            "",
		"bootstrap_expect: 1":                                        "",
		"bootstrap_expect: 1\njoin: [10.0.0.1]":                      "starts a mesh of this agent alone",
		"dev: true\nbootstrap_expect: 1\njoin: [h]":                  "starts a mesh of this agent alone",
		"bootstrap_expect: 1\ngossip: {advertise: '10.0.0.1:55056'}\njoin: [10.0.0.1]": "",
		"join_token: coopr-join-1-x":                                       "cut short",
		"join_token: " + token.Token():                                     "",
		"join_token_file: " + tokenFile:                                    "",
		"join_token_file: " + tokenFile + "\njoin_token: " + token.Token(): "remove one of the two",
		"join_token_file: /nonexistent/token":                              "no such file",
		"http: {tls_key: /x}":                                              "http.tls_cert is missing",
		"http: {names: ['a b']}":                                           "neither a host name",
		"join: a.example.org, 10.0.0.1:55056, fd00::1":                     "",
		"join: ['[::1]:5', 10.0.0.9, host:5]":                              "",
		"worker: {slots: 0}":                                               "",
		"worker: {slots: -1}":                                              "between",
		"raft: {snapshot_interval: 0s}":                                    "must be more than 0",
		"limits: {body: 1B}":                                               "at least 1KiB",
		"zone: [a]":                                                        "expected one value, found a list",
		"join: {a: b}":                                                     "expected a list, found a section",
		"http: [a]":                                                        "expected names and values, found a list",
		"http:\n  addr: 'x\n":                                              "not YAML",
		"- a":                                                              "expected names and values, found a list",
		"a: b\n---\nc: d":                                                  "second document",
		"zone: &z a\nclass: *z":                                            "",
		"plugins: [{name: p, settings: [1]}]":                              "expected names and values",
		"interpreters: [acme/ansible, '*/ansible']":                        "",
		"interpreters: [acme/shell]":                                       "write it as TENANT/AUTOMATOR",
		"providers: {endpoints: [127.0.0.1]}":                              "write it as a network",

		"audit: {sinks: [{name: s, type: syslog, address: 'tls://h'}, {name: f, type: file, path: /var/log/a}]}":                          "",
		"audit: {sinks: [{name: s, type: syslog, address: 'udp://h'}]}":                                                                   "write it as tls://HOST",
		"audit: {sinks: [{name: s, type: syslog, address: 'tls://h:0'}]}":                                                                 "port must be a number",
		"audit: {sinks: [{name: s, type: syslog, address: 'tcp://h', ca_cert: /a}]}":                                                      "use tls://",
		"audit: {sinks: [{name: s, type: syslog, address: 'tcp://h', path: /a}]}":                                                         "has none",
		"audit: {sinks: [{name: s, type: kafka}]}":                                                                                        "file, syslog, webhook",
		"audit: {sinks: [{name: 's s', type: file, path: /a}]}":                                                                           "audit.sinks[0].name",
		"audit: {sinks: [{name: s, type: file, path: a}]}":                                                                                "not an absolute path",
		"audit: {sinks: [{name: s, type: file, path: /var/lib/coopr/a}]}":                                                                 "in data_dir",
		"audit: {sinks: [{name: s, type: file, path: /a}, {name: s, type: file, path: /b}]}":                                              "s is in the list twice",
		"audit: {sinks: [{name: s, type: webhook, url: 'http://h/'}]}":                                                                    "write it as https://HOST/",
		"audit: {sinks: [{name: s, type: webhook, url: 'http://127.0.0.1:1/', header_file: /a}]}":                                         "",
		"audit: {sinks: [{name: s, type: webhook, url: 'http://127.0.0.1:1/', types: ['task.*'], tenants: [a], signature_key_file: /a}]}": "",
		"audit: {sinks: [{name: s, type: file, path: /a, signature_key_file: /a}]}":                                                       "audit.sinks[0].signature_key_file",
		"audit: {sinks: [{name: s, type: file, path: /a, types: ['*']}]}":                                                                 "audit.sinks[0].types[0]",
		"audit: {sinks: [{name: s, type: file, path: /a, tenants: ['a b']}]}":                                                             "audit.sinks[0].tenants[0]",
		"audit: {sinks: [{name: s, type: webhook, url: 'https://a:b@h/'}]}":                                                               "it has a password",
		"audit: {sinks: [{name: s, type: webhook, url: 'https://h/', format: slack, labels: [team=red, env=], severity: warning}]}":       "",
		"audit: {sinks: [{name: s, type: webhook, url: 'https://h/', format: teams}]}":                                                    "records, slack",
		"audit: {sinks: [{name: s, type: file, path: /a, format: slack}]}":                                                                "audit.sinks[0].format",
		"audit: {sinks: [{name: s, type: file, path: /a, labels: [team]}]}":                                                               "KEY=VALUE",
		"audit: {sinks: [{name: s, type: file, path: /a, severity: fatal}]}":                                                              "info, warning, error",
		"audit: {sinks: [{name: s, type: mail, address: 'smtps://h', from: a@b, to: [c@d, e@f], username: u, password_file: /a}]}":        "",
		"audit: {sinks: [{name: s, type: mail, address: 'smtp://u:secret@h', from: a@b, to: [c@d]}]}":                                     "it has a name or password",
		"audit: {sinks: [{name: s, type: mail, address: 'https://h', from: a@b, to: [c@d]}]}":                                             "write it as smtp://HOST",
		"audit: {sinks: [{name: s, type: mail, address: 'smtp://h:x', from: a@b, to: [c@d]}]}":                                            "write it as smtp://HOST",
		"audit: {sinks: [{name: s, type: mail, address: 'smtp://h', from: 'Ann <a@b>', to: [c@d]}]}":                                      "audit.sinks[0].from",
		"audit: {sinks: [{name: s, type: mail, address: 'smtp://h', from: a@b}]}":                                                         "audit.sinks[0].to",
		"audit: {sinks: [{name: s, type: mail, address: 'smtp://h', from: a@b, to: [\"c@d\\r\\nBcc: x@y\"]}]}":                            "audit.sinks[0].to[0]",
		"audit: {sinks: [{name: s, type: mail, address: 'smtp://h', from: a@b, to: [c@d], username: u}]}":                                 "password_file belong together",
		"audit: {sinks: [{name: s, type: file, path: /a, to: [c@d]}]}":                                                                    "has none",
		"audit: {sink_wait: 1001}": "between 0 and 1000",

		"keyring: {kind: passphrase}": "",
		"keyring: {kind: paper}":      "use file, systemd-creds, passphrase, transit or program",
		"keyring: {kind: transit}":    "keyring.transit.address",
		"keyring: {kind: program}":    "keyring.program.path",
		"keyring: {kind: program, program: {path: /usr/bin/kms, args: [--key, a], env: [AWS_REGION]}}": "",
		"keyring: {kind: program, program: {path: kms}}":                                               "not an absolute path",
		"keyring: {program: {args: [a]}}":                                                              "keyring.program.path",
		"keyring: {program: {path: /kms, args: [\"a\\0\"]}}":                                           "keyring.program.args[0]",
		"keyring: {program: {path: /kms, env: [AWS_SECRET=canary]}}":                                   "keyring.program.env[0]",
		"keyring: {transit: {" + goodTransit + "}}":                                                    "",
		"keyring: {kind: transit, transit: {" + goodTransit + ", mount: team/transit}}":                "",
		"keyring: {transit: {" + goodTransit + ", mount: ../sys}}":                                     "keyring.transit.mount",
		"keyring: {transit: {address: 'https://v', key: k}}":                                           "keyring.transit.token_file",
		"keyring: {transit: {address: 'https://v', token_file: /t}}":                                   "keyring.transit.key",
		"keyring: {transit: {address: 'https://v', token_file: /t, key: a/b}}":                         "keyring.transit.key",
		"keyring: {transit: {address: 'https://v', token_file: /t, key: ..}}":                          "keyring.transit.key",
		"keyring: {transit: {address: 'http://v', key: k, token_file: /t}}":                            "write it as https://HOST:PORT",
		"keyring: {transit: {address: 'http://127.0.0.1:8200', key: k, token_file: /t}}":               "",
		"keyring: {transit: {address: 'https://v/?token=canary', key: k, token_file: /t}}":             "it has more than scheme",
		"keyring: {transit: {address: 'https://canary:x@v/path', key: k, token_file: /t}}":             "it has more than scheme",
		"keyring: {transit: {address: 'http://canary@v/canary', key: k, token_file: /t}}":              "write it as https://HOST:PORT",
		"keyring: {transit: {address: '://canary', key: k, token_file: /t}}":                           "write it as https://HOST:PORT",
		"keyring: {transit: {" + goodTransit + ", tokenfile: /t}}":                                     "did you mean token_file?",

		"directories: [{" + goodLDAP + "}]":                                                 "",
		"directories: [{name: corp, url: 'ldaps://h', users: dc=a, role: superadmin}]":      `"superadmin": it must be admin, user or read`,
		"directories: [{" + goodLDAP + ", rules: [{group: devs}]}]":                         "write it as ou=people,dc=example,dc=com",
		"directories: [{" + goodLDAP + ", user_filter: person}]":                            "directories[0].user_filter",
		"directories: [{" + goodLDAP + ", id_attribute: a=b}]":                              "is no name of an attribute",
		"directories: [{" + goodLDAP + ", bind_dn: cn=a}]":                                  "bind_password_file is missing",
		"directories: [{" + goodLDAP + "}, {" + goodLDAP + "}]":                             "tenant default has corp twice",
		"directories: [{" + goodLDAP + "}, {" + goodLDAP + ", tenant: acme}]":               "",
		"directories: [{name: local, url: 'ldaps://h', users: dc=a, role: read}]":           "local is a method of the mesh itself",
		"directories: [{name: corp, url: 'http://h', users: dc=a, role: read}]":             "write it as ldaps://HOST or ldap://HOST",
		"directories: [{name: corp, url: 'ldaps://h', users: dc=a}]":                        "neither a role nor a rule",
		"directories: [{name: corp, url: 'ldaps://h', role: read}]":                         "directories[0].users",
		"identity_providers: [{" + goodOIDC + "}]":                                          "",
		"identity_providers: [{" + goodOIDC + "}]\ndirectories: [{" + goodLDAP + "}]":       "",
		"issuer: 'https://coopr.example.com'":                                               "",
		"issuer: 'https://coopr.example.com:8443/mesh'":                                     "",
		"issuer: 'https://coopr.example.com/'":                                              "without a slash",
		"issuer: 'http://coopr.example.com'":                                                "issuer: \"http://coopr.example.com\"",
		"issuer: 'https://coopr.example.com?mesh=1'":                                        "write it as https://HOST",
		"issuer: coopr.example.com":                                                         "write it as https://HOST",
		"identity_providers: [{name: sso, issuer: 'http://h/', client_id: c}]":              "write it as https://HOST/",
		"identity_providers: [{name: sso, issuer: 'https://h/', role: read}]":               "client_id: it is missing",
		"identity_providers: [{" + goodOIDC + ", rules: [{role: user}]}]":                   "rules[0].group: it is missing",
		"identity_providers: [{" + goodOIDC + ", rules: [{group: g, groups: [a b]}]}]":      "rules[0].groups[0]",
		"identity_providers: [{" + goodOIDC + ", rules: [{group: g, groups: [operator]}]}]": "rules[0].groups[0]",
		"identity_providers: [{" + goodOIDC + ", rules: [{group: g, groups: [editor]}]}]":   "",
		"identity_providers: [{" + goodOIDC + ", rule: []}]":                                "unknown name, did you mean",

		"identity_providers: [{name: sso, issuer: 'http://localhost:5556/', client_id: c, role: read}]": "",
		"identity_providers: [{name: sso, issuer: 'http://h/', client_id: c, role: read}]":              "http is for loopback only",
		"identity_providers: [{" + goodOIDC + ", console_url: 'http://localhost:55054'}]":               "leave it out",
		"identity_providers: [{" + goodOIDC + ", console_url: 'http://[::1]:55054'}]":                   "leave it out",
		"identity_providers: [{" + goodOIDC + ", console_url: 'http://h:55054'}]":                       "write it as https://HOST:PORT",
	} {
		_, err := load(t, content)
		got := faultsOf(t, err)
		if want == "" && got != "" || want != "" && !strings.Contains(got, want) {
			t.Errorf("%s\ngives %q, expected %q", content, got, want)
		}
		if strings.Contains(got, "canary") {
			t.Errorf("the fault has a secret: %s", got)
		}
	}
}

func TestJoinTokenInAReadableFileIsRefused(t *testing.T) {
	token, _ := identity.ParseToken(oldMesh)
	path := file(t, "agent.yaml", "join_token: "+token.Token())
	c, err := Load(Sources{Files: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.JoinText(); got != token.Token() || err != nil {
		t.Error(err)
	}
	os.Chmod(path, 0o644)
	if _, err := Load(Sources{Files: []string{path}}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Error(err)
	}
}

func TestEnvironmentAndFlagFaults(t *testing.T) {
	_, err := Load(Sources{
		Env:   []string{"COOPR_HTTP_ADRR=x", "COOPR_TOKEN=secret", "COOPR_WORKER_SLOTS=many", "COOPR_PLUGINS=x"},
		Flags: map[string]string{"htpp.addr": "x", "log.level": "loud"},
	})
	got := err.Error()
	for _, want := range []string{
		"COOPR_HTTP_ADRR: unknown variable, did you mean COOPR_HTTP_ADDR?", `COOPR_WORKER_SLOTS: worker.slots: "many"`,
		"flag htpp.addr: unknown flag, did you mean http.addr?", `--log-level: log.level: "loud"`,
		"COOPR_PLUGINS: plugins: this setting can only be set in a file",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "TOKEN") {
		t.Error("another program's variable is refused")
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Sources{Files: []string{"/nonexistent/agent.yaml"}})
	if err == nil || err.Error() != "/nonexistent/agent.yaml: the file cannot be read: no such file or directory" {
		t.Error(err)
	}
}

func TestNamesDoNotCollide(t *testing.T) {
	seen := map[string]string{}
	for _, f := range Fields() {
		for _, name := range []string{f.Env, f.Flag} {
			if other, ok := seen[name]; ok && name != "" {
				t.Errorf("%s and %s are both %s", f.Path, other, name)
			}
			seen[name] = f.Path
		}
	}
}

func TestReload(t *testing.T) {
	running := Default(false)
	next := running
	next.Log.Level, next.Join, next.Zone, next.Limits.HTTPConns = "debug", []string{"x"}, "z", 7
	next.HTTP.TLSCert, next.HTTP.TLSKey = "c", "k"
	next.Peer.Addr, next.Raft.Store = "0.0.0.0:1", "wal"
	next.JoinToken = NewSecret("hidden")
	changes := Diff(running, next)
	if got := changes.String(); got != "changed: http.tls_cert, http.tls_key, join, zone, log.level, limits.http_conns; restart the agent "+
		"for: peer.addr, join_token, raft.store" {
		t.Error(got)
	}
	after := Reloaded(running, next)
	if left := Diff(after, next); len(left.Now) != 0 || len(left.Restart) != 3 {
		t.Error("after a reload:", left)
	}
	if after.Peer.Addr != running.Peer.Addr || after.Zone != "z" {
		t.Errorf("%+v", after)
	}
	if Diff(running, running).String() != "nothing changed" {
		t.Error("a configuration differs from itself")
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	c := Default(false)
	c.JoinToken = NewSecret("hunter2")
	c.Plugins = []Plugin{{Name: "p", Settings: Settings{"password": "hunter2", "deep": map[string]any{"key": "hunter2"}}}}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "secret", c.JoinToken, "settings", c.Plugins[0].Settings)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "secret", c.JoinToken, "settings", c.Plugins[0].Settings)
	inJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	inYAML, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", c, c, c),
		fmt.Sprintf("%s %q %x %d", c.JoinToken, c.JoinToken, c.JoinToken, c.JoinToken), log.String(), string(inJSON), string(inYAML)} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e746572") || !strings.Contains(text, "redacted") {
			t.Errorf("prints as %s", text)
		}
	}
	if c.JoinToken.Reveal() != "hunter2" {
		t.Error("lost")
	}
}

func TestSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Range(0, 1<<50).Draw(t, "size"))
		if back, err := parseSize(s.String()); back != s || err != nil {
			t.Fatal(s, back, err)
		}
	})
	for text, want := range map[string]Size{"0": 0, "4096": 4096, "64KiB": 64 << 10, "1 GiB": 1 << 30} {
		if got, err := parseSize(text); got != want || err != nil {
			t.Error(text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "99999999999GiB", "1MB"} {
		if got, err := parseSize(text); err == nil {
			t.Error(text, "is", got)
		}
	}
}

func TestDurations(t *testing.T) {
	c, err := load(t, "raft: {snapshot_interval: 90s}")
	if err != nil || c.Raft.SnapshotInterval != 90*time.Second {
		t.Error(c.Raft, err)
	}
}

// FuzzDecode checks that no file makes decode or check panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(sample()))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("join: &a [x, *a]\nhttp: &h {addr: *h}"))
	f.Add([]byte("plugins: [{settings: {a: &x {b: *x}}}]"))
	f.Add([]byte("http: {addr: 1.2.3.4:5}\nlog: !!binary aGk=\n? [a]\n: b"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := Default(false)
		d := decoder{file: "f", places: map[string]place{}, unread: map[string]bool{}}
		d.decode(raw, &c)
		c.check()
		_ = d.faults.Error()
	})
}

// Plugins start in another folder than the agent, so paths that they or their launcher are given must not depend on it.
func TestPathsForPlugins(t *testing.T) {
	c := Default(false)
	c.DataDir, c.JoinTokenFile, c.HTTP.TLSKey = "data", "token", "keys/key.pem"
	for _, path := range append(c.Secrets(), c.Work()) {
		if !filepath.IsAbs(path) {
			t.Errorf("%s is relative", path)
		}
	}
	if c.WorkDir = "work"; !filepath.IsAbs(c.Work()) {
		t.Errorf("%s is relative", c.Work())
	}
}
