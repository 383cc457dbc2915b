package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/moby/moby/client"
	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/plugins/remote/ssh"
)

// hostKeyFile is the host key of the container's sshd.
const hostKeyFile = "/etc/ssh/ssh_host_ed25519_key"

// newKey returns a key pair; the private key is in OpenSSH's format.
func newKey() (string, gossh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", nil, err
	}
	block, err := gossh.MarshalPrivateKey(private, "")
	if err != nil {
		return "", nil, err
	}
	key, err := gossh.NewPublicKey(public)
	return string(pem.EncodeToMemory(block)), key, err
}

// equip installs the node's authorized key in a container, and a host key unless it has one. It
// returns the results by which automators reach the container.
func (p *Provider) equip(ctx context.Context, c *client.Client, id string, s *settings) (*ssh.Results, error) {
	r := &ssh.Results{User: s.user, Identity: s.identity}
	var mine gossh.PublicKey
	var err error
	if s.identity != "" {
		signer, err := p.keys.Signer(s.identity)
		if err != nil {
			return nil, err
		}
		mine = signer.PublicKey()
	} else if r.PrivateKey, mine, err = newKey(); err != nil {
		return nil, err
	}
	home := "/root"
	owner := 0
	if s.user != "root" {
		home = "/home/" + s.user
		if owner, err = uid(ctx, c, id, s.user); err != nil {
			return nil, err
		}
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	dir := func(name string, owner int) {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(name, "/") + "/", Mode: 0o700, Uid: owner, Gid: owner})
	}
	file := func(name, content string, mode int64, owner int) {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: mode, Uid: owner, Gid: owner,
			Size: int64(len(content))})
		_, _ = io.WriteString(w, content)
	}
	dir(home+"/.ssh", owner)
	file(home+"/.ssh/authorized_keys", string(gossh.MarshalAuthorizedKey(mine)), 0o600, owner)
	hostKey, err := readFile(ctx, c, id, hostKeyFile+".pub")
	if err == nil {
		var key gossh.PublicKey
		if key, _, _, _, err = gossh.ParseAuthorizedKey(hostKey); err != nil {
			return nil, fmt.Errorf("the container's host key: %w", err)
		}
		r.HostKeys = []gossh.PublicKey{key}
	} else if isNotFound(err) {
		private, public, err := newKey()
		if err != nil {
			return nil, err
		}
		r.HostKeys = []gossh.PublicKey{public}
		file(hostKeyFile, private, 0o600, 0)
		file(hostKeyFile+".pub", string(gossh.MarshalAuthorizedKey(public)), 0o644, 0)
	} else {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	_, err = c.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: "/", Content: &files})
	if err != nil {
		return nil, fmt.Errorf("write the keys into the container: %w", err)
	}
	return r, nil
}

// readFile reads a small file of a container.
func readFile(ctx context.Context, c *client.Client, id, name string) ([]byte, error) {
	got, err := c.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: name})
	if err != nil {
		return nil, err
	}
	defer got.Content.Close()
	r := tar.NewReader(got.Content)
	for {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("read %s of the container: %w", name, err)
		}
		if h.Typeflag == tar.TypeReg && path.Base(h.Name) == path.Base(name) {
			return io.ReadAll(io.LimitReader(r, 1<<20))
		}
	}
}

// uid returns the number of a user of the container's image.
func uid(ctx context.Context, c *client.Client, id, user string) (int, error) {
	users, err := readFile(ctx, c, id, "/etc/passwd")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(users)) {
		var number int
		if f := strings.Split(line, ":"); len(f) > 2 && f[0] == user {
			if _, err := fmt.Sscan(f[2], &number); err == nil {
				return number, nil
			}
		}
	}
	return 0, fmt.Errorf("the image has no user %s", user)
}
