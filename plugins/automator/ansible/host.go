package ansible

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// host is a node in an inventory.
type host struct {
	name string
	vars map[string]any
}

// host returns the inventory entry of a task's node. The private key and the known host keys are
// written to files in dir.
func (a *Automator) host(in *model.TaskInput, keys ssh.Keys, dir string) (*host, error) {
	results := in.Config.Results
	if via, _ := results["transport"].(string); via != ssh.Transport {
		return nil, sdk.Fatal(fmt.Errorf("node %s: Ansible needs a node that is reached over SSH, not by %q", in.NodeID, via))
	}
	t, err := ssh.TargetOf(in, keys)
	if err != nil {
		return nil, sdk.Fatal(fmt.Errorf("node %s has no valid SSH settings: %w", in.NodeID, err))
	}
	if len(t.Jumps) > 0 {
		return nil, sdk.Fatal(fmt.Errorf("node %s: the automator ansible does not support jump hosts (ssh_jump)", in.NodeID))
	}
	key, err := keys.Private(results)
	if err == nil && key == nil {
		err = errors.New("the automator ansible needs a key, not a password (ssh-auth: private_key or identityfile)")
	}
	if err != nil {
		return nil, sdk.Fatal(fmt.Errorf("node %s: %w", in.NodeID, err))
	}
	address, port, err := net.SplitHostPort(t.Address)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	var known strings.Builder
	var kinds []string
	for _, k := range t.HostKeys {
		known.WriteString(knownhosts.Line([]string{t.Address}, k) + "\n")
		kinds = append(kinds, algorithms(k)...)
	}
	keyFile, knownFile := filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts")
	if err := errors.Join(os.WriteFile(keyFile, key, 0o600), os.WriteFile(knownFile, []byte(known.String()), 0o600)); err != nil {
		return nil, sdk.NothingDone(err)
	}
	return &host{
		name: cmp.Or(in.Config.Hostname, in.NodeID, address),
		vars: map[string]any{
			"ansible_host": address, "ansible_port": number, "ansible_user": t.User, "ansible_ssh_private_key_file": keyFile,
			"ansible_become":             t.Sudo,
			"ansible_python_interpreter": "auto_silent",
			// Only the known host key is accepted, and the agent's own SSH settings are ignored.
			"ansible_ssh_common_args": "-F /dev/null -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=" + knownFile +
				" -o GlobalKnownHostsFile=/dev/null -o HostKeyAlgorithms=" + strings.Join(kinds, ","),
		},
	}, nil
}

// algorithms returns the signature algorithms with which a host may prove its key.
func algorithms(k gossh.PublicKey) []string {
	if k.Type() == gossh.KeyAlgoRSA {
		return []string{gossh.KeyAlgoRSASHA512, gossh.KeyAlgoRSASHA256}
	}
	return []string{k.Type()}
}
