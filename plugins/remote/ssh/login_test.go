package ssh

import (
	"crypto/ed25519"
	"errors"
	"net"
	"testing"

	"golang.org/x/crypto/ssh"
)

// TestClosedLogin: a node that closes the connection during the login, as sshd does while its machine
// boots, has not refused the credentials.
func TestClosedLogin(t *testing.T) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			cfg := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
				raw.Close()
				return nil, errors.New("closed")
			}}
			cfg.AddHostKey(signer)
			_, _, _, _ = ssh.NewServerConn(raw, cfg)
		}
	}()
	p := newPool(t, Config{})
	err = p.Node(&Target{Hop: Hop{
		Address: listener.Addr().String(), User: "debian", Signer: signer, HostKeys: []ssh.PublicKey{signer.PublicKey()},
	}}).Prepare(t.Context())
	if err == nil || errors.Is(err, ErrAuth) {
		t.Errorf("a closed login: %v", err)
	}
}
