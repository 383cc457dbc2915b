package ssh

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// Transport is the value of a node's result "transport" for SSH.
const Transport = "ssh"

// Errors on which callers decide.
var (
	// ErrHostKey means that a node presents another host key than the recorded one.
	ErrHostKey = errors.New("the host key is not the recorded one")
	// ErrAuth means that the node accepts neither the key nor the password.
	ErrAuth = errors.New("the node refuses the credentials")
)

// DefaultDir is the folder in which scripts work on a node, unless its results name another.
const DefaultDir = "/var/lib/coopr"

// Target is the way to a node.
type Target struct {
	Hop
	// Jumps are the jump hosts, beginning with the nearest to the agent.
	Jumps []Hop
	// Sudo runs everything as root with "sudo -n".
	Sudo bool
	// Dir is the folder that scripts work in, an absolute path.
	Dir string
}

// Hop is one SSH server.
type Hop struct {
	Address  string // host:port
	User     string
	Signer   ssh.Signer // may be nil
	Password string     // may be ""
	// HostKeys are the accepted host keys.
	HostKeys []ssh.PublicKey

	learned func(ssh.PublicKey) // if set, accepts any key and receives it
}

// key returns the key of a connection in the pool: equal for targets that can share one.
func (t *Target) key() string {
	var b strings.Builder
	for _, h := range append(append([]Hop{}, t.Jumps...), t.Hop) {
		fmt.Fprintf(&b, "%q %q %q", h.Address, h.User, h.Password)
		if h.Signer != nil {
			fmt.Fprintf(&b, " %q", h.Signer.PublicKey().Marshal())
		}
		for _, k := range h.HostKeys {
			fmt.Fprintf(&b, " %q", k.Marshal())
		}
	}
	return b.String()
}

// Keys are folders on the agent's machine in which private keys are found by name, so that keys
// need not be part of definitions.
type Keys []string

// Signer reads a key. The file must be within the folders.
func (k Keys) Signer(name string) (ssh.Signer, error) {
	b, err := k.read(name)
	if err != nil {
		return nil, err
	}
	return ParseKey(b)
}

// Private returns the private key of a node, from the results of its provider, for programs that
// log in by themselves; nil if there is none.
func (k Keys) Private(results map[string]any) ([]byte, error) {
	auth, _ := results["ssh-auth"].(map[string]any)
	if pem, _ := auth["private_key"].(string); pem != "" {
		return []byte(strings.TrimSpace(pem) + "\n"), nil
	}
	if name, _ := auth["identityfile"].(string); name != "" {
		return k.read(name)
	}
	return nil, nil
}

func (k Keys) read(name string) ([]byte, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%q is not the name of a key file", name)
	}
	for _, dir := range k {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		return b, err
	}
	if len(k) == 0 {
		return nil, fmt.Errorf("key file %q: the plugin's settings name no folder of keys (keys: [folder, …])", name)
	}
	return nil, fmt.Errorf("key file %q is not in %s", name, words.Or(k))
}

// ParseKey decodes a private key without a passphrase.
func ParseKey(pem []byte) (ssh.Signer, error) {
	s, err := ssh.ParsePrivateKey(bytes.TrimSpace(append(bytes.TrimSpace(pem), '\n')))
	if err != nil {
		return nil, fmt.Errorf("not a private key without passphrase: %w", err)
	}
	return s, nil
}

// Results are the part of a provider's CONFIRM result from which automators learn how to reach the
// node (docs/plugins.md, "Reaching nodes").
type Results struct {
	User       string
	Identity   string          // name of a key file on the agents
	PrivateKey string          // or the key itself
	Password   string          // or a password
	HostKeys   []ssh.PublicKey // as recorded
	Port       int             // default 22
	Address    string          // default: the node's access_v4
	Dir        string          // default DefaultDir
	Sudo       *bool           // default: true, unless the user is root
	Jumps      []map[string]any
}

// Map returns the results in the form of a task's output.
func (r *Results) Map() map[string]any {
	auth := map[string]any{"user": r.User}
	put := func(m map[string]any, key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	put(auth, "identityfile", r.Identity)
	put(auth, "private_key", r.PrivateKey)
	put(auth, "password", r.Password)
	if r.Sudo != nil {
		auth["sudo"] = *r.Sudo
	}
	out := map[string]any{"transport": Transport, "ssh-auth": auth}
	if len(r.HostKeys) > 0 {
		out["ssh_host_keys"] = hostKeyMap(r.HostKeys)
	}
	if r.Port != 0 && r.Port != 22 {
		out["ssh_port"] = r.Port
	}
	put(out, "ssh_address", r.Address)
	put(out, "ssh_dir", r.Dir)
	if len(r.Jumps) > 0 {
		out["ssh_jump"] = r.Jumps
	}
	return out
}

func hostKeyMap(keys []ssh.PublicKey) map[string]any {
	out := map[string]any{}
	for _, k := range keys {
		out[k.Type()] = base64.StdEncoding.EncodeToString(k.Marshal())
	}
	return out
}

// TargetOf returns the way to a task's node, from the results of its provider.
func TargetOf(in *model.TaskInput, keys Keys) (*Target, error) {
	results := in.Config.Results
	t := &Target{Dir: DefaultDir}
	var err error
	if t.Hop, err = hopOf(results, keys); err != nil {
		return nil, err
	}
	host, _ := results["ssh_address"].(string)
	host = cmp.Or(host, in.Config.IPAddresses["access_v4"], in.Config.IPAddresses["bind_v4"])
	if host == "" {
		return nil, errors.New("its provider returned no address (access_v4)")
	}
	t.Address = net.JoinHostPort(host, strconv.Itoa(number(results["ssh_port"], 22)))
	t.User = cmp.Or(t.User, in.Config.SSHUser, "root")
	t.Sudo = t.User != "root"
	if auth, ok := results["ssh-auth"].(map[string]any); ok {
		if sudo, ok := auth["sudo"].(bool); ok {
			t.Sudo = sudo
		}
	}
	if dir, _ := results["ssh_dir"].(string); dir != "" {
		if !path.IsAbs(dir) {
			return nil, fmt.Errorf("ssh_dir %q is not an absolute path", dir)
		}
		t.Dir = path.Clean(dir)
	}
	if len(t.HostKeys) == 0 {
		return nil, errors.New("its provider returned no host key (ssh_host_keys)")
	}
	t.Jumps, err = JumpsOf(results["ssh_jump"], keys)
	return t, err
}

// JumpsOf decodes a list of jump hosts: objects with "address" (host or host:port), "ssh-auth" and
// "ssh_host_keys".
func JumpsOf(v any, keys Keys) ([]Hop, error) {
	var list []any
	switch x := v.(type) {
	case nil:
	case []any:
		list = x
	case []map[string]any:
		for _, m := range x {
			list = append(list, m)
		}
	default:
		return nil, errors.New("ssh_jump must be a list of objects")
	}
	var jumps []Hop
	for i, v := range list {
		m, ok := v.(map[string]any)
		address, _ := m["address"].(string)
		if !ok || address == "" {
			return nil, fmt.Errorf("ssh_jump[%d] has no address", i)
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(address, "22")
		}
		h, err := hopOf(m, keys)
		if err != nil {
			return nil, fmt.Errorf("ssh_jump[%d]: %w", i, err)
		}
		if len(h.HostKeys) == 0 {
			return nil, fmt.Errorf("ssh_jump[%d] has no ssh_host_keys, which a jump host needs", i)
		}
		h.Address, h.User = address, cmp.Or(h.User, "root")
		jumps = append(jumps, h)
	}
	return jumps, nil
}

// hopOf decodes credentials and host keys.
func hopOf(m map[string]any, keys Keys) (Hop, error) {
	var h Hop
	auth, _ := m["ssh-auth"].(map[string]any)
	h.User, _ = auth["user"].(string)
	h.Password, _ = auth["password"].(string)
	var err error
	if pem, _ := auth["private_key"].(string); pem != "" {
		if h.Signer, err = ParseKey([]byte(pem)); err != nil {
			return h, fmt.Errorf("ssh-auth.private_key: %w", err)
		}
	} else if name, _ := auth["identityfile"].(string); name != "" {
		if h.Signer, err = keys.Signer(name); err != nil {
			return h, fmt.Errorf("ssh-auth.identityfile: %w", err)
		}
	}
	if h.Signer == nil && h.Password == "" {
		return h, errors.New("there are no credentials (ssh-auth: private_key, identityfile or password)")
	}
	h.HostKeys, err = ParseHostKeys(m["ssh_host_keys"])
	return h, err
}

// ParseHostKeys decodes host keys: an object of base64 by type, as in results, or text with one key
// per line, as in known_hosts and public key files.
func ParseHostKeys(v any) ([]ssh.PublicKey, error) {
	var keys []ssh.PublicKey
	switch x := v.(type) {
	case nil:
	case map[string]any:
		for name, v := range x {
			s, _ := v.(string)
			b, err := base64.StdEncoding.DecodeString(s)
			if err != nil {
				return nil, fmt.Errorf("host key %s: %w", name, err)
			}
			k, err := ssh.ParsePublicKey(b)
			if err != nil {
				return nil, fmt.Errorf("host key %s: %w", name, err)
			}
			keys = append(keys, k)
		}
	case string:
		for line := range strings.Lines(x) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
			if err != nil {
				return nil, fmt.Errorf("host key %.40q: %w", line, err)
			}
			keys = append(keys, k)
		}
	default:
		return nil, errors.New("host keys must be text, or an object of texts by type")
	}
	return keys, nil
}

// number decodes a small number from JSON, YAML or a form.
func number(v any, fallback int) int {
	switch x := v.(type) {
	case int:
		return x
	case float64:
		return int(x)
	case string:
		if n, err := strconv.Atoi(x); err == nil {
			return n
		}
	case fmt.Stringer:
		if n, err := strconv.Atoi(x.String()); err == nil {
			return n
		}
	}
	return fallback
}

// KeysFromSettings decodes the settings of a plugin that has no others: {"keys": [folder, …]}.
func KeysFromSettings(text string) (Keys, error) {
	if text == "" {
		return nil, nil
	}
	var s struct {
		Keys []string `json:"keys"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("the plugin's settings must have the form {keys: [folder, …]}: %w", err)
	}
	var faults []error
	for i, dir := range s.Keys {
		if !filepath.IsAbs(dir) {
			faults = append(faults, fmt.Errorf("keys[%d]: %q is not an absolute path", i, dir))
		}
	}
	return s.Keys, errors.Join(faults...)
}
