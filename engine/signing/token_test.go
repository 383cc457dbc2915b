package signing_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/coopr/coopr/engine/signing"
)

// TestToken has a library of receivers verify a token of a task: with its key only, for its audience only, and until it ends.
func TestToken(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, signing.TaskKeyBits)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, signing.TaskKeyBits)
	if err != nil {
		t.Fatal(err)
	}
	const issuer, audience = "https://mesh.example.com", "https://vault.example.com"
	now := time.Now()
	token, err := signing.Claims{Issuer: issuer, Audience: audience, Subject: "coopr:t:service:web", Issued: now.Unix(), NotBefore: now.Unix(),
		Expires: now.Add(time.Minute).Unix(), ID: "00000001-001-0/7", Tenant: "t", Cluster: "00000001", Operation: "00000001-001"}.Token(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key      *rsa.PrivateKey
		audience string
		at       time.Time
		good     bool
	}{
		"itself":           {key, audience, now, true},
		"a foreign key":    {other, audience, now, false},
		"another audience": {key, "https://elsewhere.example.com", now, false},
		"a later time":     {key, audience, now.Add(2 * time.Minute), false},
	} {
		keys := &oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{&c.key.PublicKey}}
		verifier := oidc.NewVerifier(issuer, keys, &oidc.Config{ClientID: c.audience, Now: func() time.Time { return c.at }})
		got, err := verifier.Verify(t.Context(), token)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if c.good && err == nil && got.Subject != "coopr:t:service:web" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSigning checks which key signs at a time.
func TestSigning(t *testing.T) {
	keys := signing.TaskKeys{{Number: 1, Signs: 10}, {Number: 2, Signs: 20}}
	for now, want := range map[int64]uint32{9: 0, 10: 1, 19: 1, 20: 2, 99: 2} {
		if k, ok := keys.Signing(now); k.Number != want || ok != (want > 0) {
			t.Errorf("at %d, key %d signs", now, k.Number)
		}
	}
}
