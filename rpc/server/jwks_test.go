package server_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/signing"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server"
)

// TestJWKS checks that any agent returns, without a token of the mesh, the keys that may have signed a valid token of a task, and the next
// one.
func TestJWKS(t *testing.T) {
	leader, voter := pair(t)
	agents := map[string]*world{"leader": leader, "voter": voter, "worker": stateless(t, leader)}
	for name, w := range agents {
		if a := w.must(200, "", "GET", "/v1/jwks", ""); a.body != "{\"keys\":[]}\n" {
			t.Errorf("%s, in a mesh that issues no tokens: %q", name, a.body)
		}
	}
	put := func(number uint32, signs time.Time) *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, signing.TaskKeyBits)
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		leader.Must(&pb.Command{Change: &pb.Command_PutTaskKey{PutTaskKey: &pb.PutTaskKey{Number: number, Public: public,
			SignsMs: signs.UnixMilli(), Private: &pb.SealedValue{Id: table.TaskPrivateID(number), Version: 1, Sealed: []byte{0, 0, 0, 1}}}}})
		return key
	}
	now := time.Now()
	ended, valid := put(1, time.UnixMilli(1)), put(2, now.Add(-signing.TaskTokenTime-time.Minute))
	signs, next := put(3, now.Add(-time.Minute)), put(4, now.Add(signing.TaskKeyNotice))
	for name, w := range agents {
		var set api.WebKeySet
		w.must(200, "", "GET", "/v1/jwks", "").into(t, &set)
		if len(set.Keys) != 3 {
			t.Fatalf("%s publishes %d keys", name, len(set.Keys))
		}
		for i, key := range []*rsa.PrivateKey{valid, signs, next} {
			keys := oidc.NewRemoteKeySet(t.Context(), w.url+"/v1/jwks")
			if got, err := keys.VerifySignature(t.Context(), signed(t, key, set.Keys[i].ID)); err != nil || string(got) != `{"sub":"x"}` {
				t.Errorf("%s, key %d: %q %v", name, i, got, err)
			}
			if _, err := keys.VerifySignature(t.Context(), signed(t, ended, set.Keys[i].ID)); err == nil {
				t.Errorf("%s: a token of an old key is good as one of key %d", name, i)
			}
		}
	}
}

// signed returns a token with the claim sub that a key has signed.
func signed(t *testing.T, key *rsa.PrivateKey, id string) string {
	t.Helper()
	head, err := json.Marshal(map[string]string{"alg": "RS256", "kid": id})
	if err != nil {
		t.Fatal(err)
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"x"}`))
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TestIssuer has a library of receivers discover a mesh with the setting issuer, without a token of the mesh. A mesh without the setting has
// nothing to discover.
func TestIssuer(t *testing.T) {
	const path, issuer = "/.well-known/openid-configuration", "https://coopr.example.com/mesh"
	leader, voter := pair(t)
	for name, w := range map[string]*world{"leader": leader, "voter": voter, "worker": stateless(t, leader)} {
		w.must(404, "", "GET", path, "").problem(t)
		w.must(404, "guess", "GET", path, "").problem(t)
		if a := w.ask("", "POST", path, "{}"); a.status != 405 {
			t.Errorf("%s: POST: %d %s", name, a.status, a.body)
		}
	}
	h, err := server.New(server.Config{Services: newAgent(t).Services(), Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	ctx := oidc.ClientContext(oidc.InsecureIssuerURLContext(t.Context(), issuer), s.Client())
	p, err := oidc.NewProvider(ctx, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := p.Claims(&got); err != nil {
		t.Fatal(err)
	}
	if want := map[string]any{"issuer": issuer, "jwks_uri": issuer + "/v1/jwks", "id_token_signing_alg_values_supported": []any{"RS256"},
		"response_types_supported": []any{"id_token"}, "subject_types_supported": []any{"public"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}
