package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/testing/doubles/fabric"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	oneID = "00000000-0000-4000-8000-000000000001"
	twoID = "00000000-0000-4000-8000-000000000002"
)

func mustSecret(testing.TB) Secret {
	var s Secret
	rand.Read(s.bytes[:]) // never fails
	return s
}

func mustNew(t testing.TB, s Secret, id string) *Identity {
	t.Helper()
	i, err := New(s, id)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestTokenRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Secret
		copy(s.bytes[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "secret"))
		token := s.Token()
		for _, text := range []string{token, " \t" + token + "\r\n", strings.ToUpper(token)} {
			got, err := ParseToken(text)
			if err != nil || got != s {
				t.Fatalf("%q: %v", text, err)
			}
		}
		// The checksum detects any single changed character.
		at := rapid.IntRange(len("coopr-join-1-"), len(token)-1).Draw(t, "at")
		other := rapid.SampledFrom([]byte("abcdefghijklmnopqrstuvwxyz234567")).Draw(t, "other")
		if other == token[at] {
			return
		}
		if _, err := ParseToken(token[:at] + string(other) + token[at+1:]); !errors.Is(err, ErrTokenChecksum) {
			t.Fatalf("a changed character: %v", err)
		}
	})
}

func TestBadTokens(t *testing.T) {
	token := mustSecret(t).Token()
	for text, want := range map[string]error{
		"":                                ErrTokenMalformed,
		"hello":                           ErrTokenMalformed,
		"coopr-jo":                        ErrTokenTruncated,
		"coopr-join-1":                    ErrTokenTruncated,
		token[:len(token)-1]:              ErrTokenTruncated,
		token + "a":                       ErrTokenMalformed,
		token[:len(token)-1] + "0":        ErrTokenMalformed,
		"coopr-join-2-" + token[13:]:      ErrTokenVersion,
		"coopr-join-" + token[13:] + "-x": ErrTokenVersion,
	} {
		_, err := ParseToken(text)
		if !errors.Is(err, want) {
			t.Errorf("%d characters: got %v, want %v", len(text), err, want)
		}
		if err != nil && strings.Contains(err.Error(), token[13:33]) {
			t.Errorf("the error quotes the token: %v", err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("coopr-join-1-")
	f.Add(Secret{}.Token())
	f.Add(Secret{bytes: [32]byte{1, 2, 3}}.Token())
	f.Add("coopr-join-99-zzzz")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseToken(text)
		if err == nil && s.Token() != strings.ToLower(strings.TrimSpace(text)) {
			t.Errorf("%q reads as the token of another secret", text)
		}
		typed := errors.Is(err, ErrTokenMalformed) || errors.Is(err, ErrTokenVersion) || errors.Is(err, ErrTokenTruncated) ||
			errors.Is(err, ErrTokenChecksum)
		if err != nil && !typed {
			t.Errorf("%q: untyped error %v", text, err)
		}
	})
}

func TestSecretsDoNotPrint(t *testing.T) {
	s := mustSecret(t)
	raw := fmt.Sprintf("%x", s.bytes)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s, "in", struct{ S Secret }{s})
	inJSON, _ := json.Marshal(map[string]any{"s": s})
	inYAML, _ := yaml.Marshal(map[string]any{"s": s})
	for _, text := range []string{
		s.String(), fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %x %s %q %d", s, s, s, s, s, s, s), fmt.Sprintf("%+v", struct{ S Secret }{s}),
		log.String(), string(inJSON), string(inYAML), fmt.Sprintf("%v %+v %#v", JoinToken{}, JoinToken{}, struct{ T JoinToken }{}),
	} {
		if strings.Contains(text, raw[:8]) || strings.Contains(text, s.Token()[13:30]) || !strings.Contains(text, "redacted") {
			t.Errorf("prints as %s", text)
		}
	}
}

// All builds must derive the same values, because a mesh is upgraded agent by agent. A change here
// needs a new token version.
func TestDerivationsNeverChange(t *testing.T) {
	s := Secret{bytes: [32]byte{1, 2, 3, 4, 5}}
	ca, err := CACertificate(s)
	if err != nil {
		t.Fatal(err)
	}
	hash := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:8]) }
	for name, pair := range map[string][2]string{
		"token":  {s.Token(), "coopr-join-1-aebagbafaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaox2gda"},
		"gossip": {hash(s.GossipKey()), "048116c1b5aef1cc"},
		"root":   {hash([]byte(s.RootToken())), "624e9287d1f1baba"},
		"ca":     {hash(ca), "e964084d005e6996"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %s, was %s", name, pair[0], pair[1])
		}
	}
}

func TestCACertificateIsTheSameEverywhere(t *testing.T) {
	s := mustSecret(t)
	one, _ := CACertificate(s)
	two, _ := CACertificate(s)
	other, _ := CACertificate(mustSecret(t))
	if string(one) != string(two) || string(one) == string(other) {
		t.Error("the CA does not follow from the secret")
	}
}

// shake does a handshake between two configurations. It returns the peer's id and the error of each side.
func shake(t *testing.T, server, client *tls.Config) (serverSees, clientSees string, serverErr, clientErr error) {
	f := fabric.New(1)
	l, err := f.Host("10.0.0.1").Listen(":1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			serverErr = err
			return
		}
		conn := tls.Server(raw, server)
		defer conn.Close()
		if _, serverErr = io.ReadFull(conn, make([]byte, 1)); serverErr != nil {
			return
		}
		serverSees, serverErr = peerID(conn)
	}()
	raw, err := f.Host("10.0.0.2").Dial(context.Background(), "10.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, client)
	if clientErr = conn.Handshake(); clientErr == nil {
		clientSees, clientErr = peerID(conn)
		conn.Write([]byte("x"))
	}
	if clientErr != nil {
		conn.Close()
	}
	<-done
	conn.Close()
	return
}

func peerID(conn net.Conn) (string, error) {
	p, err := PeerOf(conn)
	return p.ID, err
}

func TestAgentsOfAMeshTrustEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustSecret(t)
		one, two := mustNew(t, s, oneID), mustNew(t, s, twoID)
		for _, expect := range []string{"", oneID} {
			serverSees, clientSees, serverErr, clientErr := shake(t, one.ServerConfig(), two.ClientConfig(expect))
			if serverErr != nil || clientErr != nil || serverSees != twoID || clientSees != oneID {
				t.Error(serverSees, clientSees, serverErr, clientErr)
			}
		}
		_, _, _, err := shake(t, one.ServerConfig(), two.ClientConfig(twoID))
		if !errors.Is(err, ErrWrongPeer) {
			t.Error("another agent at the address:", err)
		}
	})
}

func TestStrangersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustSecret(t)
		one, two := mustNew(t, s, oneID), mustNew(t, s, twoID)
		stranger := mustNew(t, mustSecret(t), twoID)

		_, _, _, err := shake(t, stranger.ServerConfig(), one.ClientConfig(""))
		if !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("a stranger as server:", err)
		}
		trusting := stranger.ClientConfig("")
		trusting.VerifyConnection = nil // otherwise the client fails first
		_, _, err, _ = shake(t, one.ServerConfig(), trusting)
		if !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("a stranger as client:", err)
		}
		nobody := two.ClientConfig("")
		nobody.GetClientCertificate = nil
		_, _, err, _ = shake(t, one.ServerConfig(), nobody)
		if err == nil {
			t.Error("a client without a certificate was let in")
		}
		old := two.ClientConfig("")
		old.MaxVersion, old.MinVersion = tls.VersionTLS12, tls.VersionTLS12
		_, _, err, _ = shake(t, one.ServerConfig(), old)
		if err == nil {
			t.Error("TLS 1.2 was accepted")
		}
		// The API's certificate is of the same CA, but names no agent.
		_, _, _, err = shake(t, one.HTTPSConfig([]string{"localhost"}), two.ClientConfig(""))
		if !errors.Is(err, ErrNoAgent) {
			t.Error("an API certificate passes for an agent:", err)
		}
	})
}

func TestHTTPSForOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustSecret(t)
		one := mustNew(t, s, oneID)
		ca, _ := CACertificate(s)
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			t.Fatal("the CA is not PEM")
		}
		server := one.HTTPSConfig([]string{"coopr.example.org", "10.0.0.1"})
		for name, good := range map[string]bool{"coopr.example.org": true, "10.0.0.1": true, "other.example.org": false} {
			_, _, _, err := shake(t, server, &tls.Config{RootCAs: pool, ServerName: name})
			if refused := err != nil && !errors.Is(err, ErrNoAgent); refused == good {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Certificates are renewed while the agent runs. An expired certificate is refused.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustSecret(t)
		one, two := mustNew(t, s, oneID), mustNew(t, s, twoID)
		server, client := one.ServerConfig(), two.ClientConfig("")
		first, _ := one.agent()
		time.Sleep(47 * time.Hour)
		if now, _ := one.agent(); now != first {
			t.Error("renewed before two thirds of its life")
		}
		time.Sleep(2 * time.Hour)
		if now, _ := one.agent(); now == first {
			t.Error("not renewed after two thirds of its life")
		}
		stale, _ := two.agent()
		for range 100 {
			time.Sleep(71 * time.Hour)
			if _, _, serverErr, clientErr := shake(t, server, client); serverErr != nil || clientErr != nil {
				t.Fatal(serverErr, clientErr)
			}
		}
		old := two.ClientConfig("")
		old.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return stale, nil }
		if _, _, err, _ := shake(t, server, old); !errors.Is(err, ErrNotOfThisMesh) {
			t.Error("an expired certificate:", err)
		}
	})
}

func TestPeerWithoutTLS(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if _, err := PeerOf(near); !errors.Is(err, ErrNoAgent) {
		t.Error(err)
	}
}

func TestCertificatesNameOneAgent(t *testing.T) {
	one := mustNew(t, mustSecret(t), oneID)
	cert, _ := one.agent()
	if id, err := agentOf(cert.Leaf); id.ID != oneID || err != nil {
		t.Error(id, err)
	}
	if got := cert.Leaf.URIs[0].String(); got != "coopr://agent/"+oneID {
		t.Error(got)
	}
	if cert.Leaf.IsCA || len(cert.Leaf.DNSNames) != 0 {
		t.Error("an agent's certificate may do too much")
	}
	ca, _ := CACertificate(Secret{})
	if block, _ := pem.Decode(ca); block == nil {
		t.Error("no PEM")
	}
	for _, id := range []string{"", "x", "../../etc", strings.ToUpper("abcdef00-0000-4000-8000-000000000001")} {
		if _, err := New(mustSecret(t), id); err == nil {
			t.Errorf("%q is accepted as an id", id)
		}
	}
	if _, err := New(Secret{}, oneID); err == nil {
		t.Error("an identity without a secret")
	}
}
