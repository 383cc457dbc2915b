package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
)

// pathPattern is that of the path of a secrets engine, keyPattern that of the name of a key.
var (
	pathPattern = regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`)
	keyPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	variable    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// check reports the faults of the settings.
func (p KeyringProgram) check(k *checks) {
	if !filepath.IsAbs(p.Path) {
		k.fault("keyring.program.path", "%q is not an absolute path", p.Path)
	}
	for i, a := range p.Args {
		if strings.ContainsRune(a, 0) {
			k.fault(fmt.Sprintf("keyring.program.args[%d]", i), "it has a zero byte")
		}
	}
	for i, name := range p.Env {
		if !variable.MatchString(name) {
			k.fault(fmt.Sprintf("keyring.program.env[%d]", i), "it is not the name of a variable: values stay in the environment of the agent")
		}
	}
}

func (c Config) checkKeyring(k *checks) {
	if c.Keyring.Dir != "" && c.DataDir != "" && within(c.Keyring.Dir, c.DataDir) {
		k.fault("keyring.dir", "%s is in data_dir, and a copy of that would have the keys: use another folder", c.Keyring.Dir)
	}
	const file, systemd, passphrase, transit, program = "file", "systemd-creds", "passphrase", "transit", "program"
	switch kind := c.Keyring.Kind; kind {
	case "", file, systemd, passphrase, transit, program:
	default:
		k.fault("keyring.kind", "%q is not a kind of keyring: use %s, %s, %s, %s or %s", kind, file, systemd, passphrase, transit, program)
	}
	if p := c.Keyring.Program; c.Keyring.Kind == program || p.Path != "" || len(p.Args)+len(p.Env) > 0 {
		p.check(k)
	}
	t := c.Keyring.Transit
	if t == (Transit{}) && c.Keyring.Kind != transit {
		return // settings of another kind may stay, for keyring convert
	}
	u, err := url.Parse(t.Address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		k.fault("keyring.transit.address", "%q: write it as https://HOST:PORT", shownURL(u, err))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		k.fault("keyring.transit.address", "it has more than scheme, host, port and path: put the token into keyring.transit.token_file")
	}
	if !pathPattern.MatchString(t.MountPath()) || !filepath.IsLocal(t.MountPath()) {
		k.fault("keyring.transit.mount", "%q: write it as the path at which the engine is enabled, such as transit", t.Mount)
	}
	if !keyPattern.MatchString(t.Key) || !filepath.IsLocal(t.Key) {
		k.fault("keyring.transit.key", "%q is not the name of a key", t.Key)
	}
	if t.TokenFile == "" {
		k.fault("keyring.transit.token_file", "it is empty; the server needs a token")
	}
}
