package instance

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// savedKey is the key in the replicated state under which a node's private key is saved. It is
// saved before the machine is requested, because the task's answer may be lost.
const savedKey = "instance-key"

// access is the SSH key of a node: a key file of the agents, or a key that was made for the node.
type access struct {
	identity string
	private  string
	signer   gossh.Signer
}

// fingerprint returns the text that stands for the key in a tag.
func (k *access) fingerprint() string {
	sum := sha256.Sum256(k.signer.PublicKey().Marshal())
	return hex.EncodeToString(sum[:8])
}

// newKey returns a new key pair; the private key is in OpenSSH's format.
func newKey() (*access, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := gossh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, err
	}
	signer, err := gossh.NewSignerFromKey(private)
	return &access{private: string(pem.EncodeToMemory(block)), signer: signer}, err
}

// access returns the key of a task's node: the key file that its provider configures, else the key
// in the node's results, else the saved key. It returns nil if the node has no key yet.
func (p *Provider) access(a *at, t *sdk.Task) (*access, error) {
	if id := a.common.identity; id != "" {
		s, err := p.keys.Signer(id)
		if err != nil {
			return nil, sdk.Fatal(fmt.Errorf("ssh_identityfile: %w", err))
		}
		return &access{identity: id, signer: s}, nil
	}
	private := ""
	if auth, ok := a.in.Config.Results["ssh-auth"].(map[string]any); ok {
		private, _ = auth["private_key"].(string)
	}
	if private == "" {
		if ok, err := t.Saved(savedKey, &private); err != nil || !ok {
			return nil, err
		}
	}
	s, err := ssh.ParseKey([]byte(private))
	if err != nil {
		return nil, fmt.Errorf("the SSH key that was made for node %s cannot be read: %w", t.Node, err)
	}
	return &access{private: private, signer: s}, nil
}

// authorized returns the key as a line of authorized_keys, without a newline.
func (k *access) authorized() string {
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(k.signer.PublicKey())))
}

// userData returns the data for cloud-init: the user with the key, and the script of the first
// boot.
func (c *common) userData(k *access, hostname, boot string) ([]byte, error) {
	short, _, _ := strings.Cut(hostname, ".")
	doc := map[string]any{"hostname": short, "fqdn": hostname, "ssh_pwauth": false}
	if c.user == "root" {
		doc["disable_root"] = false
		doc["users"] = []any{map[string]any{"name": "root", "ssh_authorized_keys": []string{k.authorized()}}}
	} else {
		doc["users"] = []any{"default", map[string]any{
			"name": c.user, "sudo": "ALL=(ALL) NOPASSWD:ALL", "shell": "/bin/sh", "lock_passwd": true,
			"ssh_authorized_keys": []string{k.authorized()},
		}}
	}
	if boot != "" {
		const path = "/run/coopr-boot"
		doc["write_files"] = []any{map[string]any{"path": path, "permissions": "0700", "content": boot + "\n"}}
		doc["runcmd"] = []any{[]string{"/bin/sh", "-c", `i=$(head -n 1 "$0"); exec ${i#\#!} "$0"`, path}}
	}
	b, err := yaml.Marshal(doc)
	return append([]byte("#cloud-config\n"), b...), err
}

// target returns how a machine is reached. known are its recorded host keys.
func (a *at) target(m *Machine, k *access, known []gossh.PublicKey) *ssh.Target {
	address, _ := a.common.addresses(m)
	return &ssh.Target{
		Hop:  ssh.Hop{Address: net.JoinHostPort(address, strconv.Itoa(a.common.port)), User: a.common.user, Signer: k.signer, HostKeys: known},
		Sudo: a.common.user != "root", Dir: cmp.Or(a.common.dir, ssh.DefaultDir),
	}
}
