package gcp

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coopr/coopr/plugins/provider/instance"
)

// account is the key of a service account, in the form that Google issues.
type account struct {
	Email     string `json:"client_email"`
	KeyID     string `json:"private_key_id"`
	Key       string `json:"private_key"`
	TokenURI  string `json:"token_uri"`
	ProjectID string `json:"project_id"`

	key *rsa.PrivateKey
}

func parseAccount(text string) (*account, error) {
	a := &account{}
	if err := json.Unmarshal([]byte(text), a); err != nil {
		return nil, fmt.Errorf("is not the JSON key of a service account: %w", err)
	}
	block, _ := pem.Decode([]byte(a.Key))
	if a.Email == "" || a.TokenURI == "" || block == nil {
		return nil, errors.New("is not the key of a service account: client_email, token_uri or private_key is missing")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("private_key: %w", err)
	}
	var ok bool
	if a.key, ok = key.(*rsa.PrivateKey); !ok {
		return nil, errors.New("private_key is not of type RSA")
	}
	return a, nil
}

// metadata is the address from which a machine in Google's cloud gets a token for its own account.
const metadata = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"

// tokens gets tokens for the API and keeps each while it is valid.
type tokens struct {
	account *account // nil: the account of the agent's machine
	guarded *http.Client

	mu    sync.Mutex
	token string
	until time.Time
}

// sign adds a token to a request.
func (t *tokens) sign(ctx context.Context, r *http.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Until(t.until) < time.Minute {
		if err := t.renew(ctx); err != nil {
			return err
		}
	}
	r.Header.Set("Authorization", "Bearer "+t.token)
	return nil
}

func (t *tokens) renew(ctx context.Context) error {
	// The account's key names the address of its tokens, so only the machine's own is trusted.
	client := http.DefaultClient
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metadata, nil)
	if err == nil && t.account != nil {
		client = t.guarded
		var assertion string
		if assertion, err = t.account.assertion(time.Now()); err != nil {
			return err
		}
		form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
		if req, err = http.NewRequestWithContext(ctx, http.MethodPost, t.account.TokenURI, strings.NewReader(form.Encode())); err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	if err != nil {
		return err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("get a token: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("get a token: %w", err)
	}
	if resp.StatusCode >= 500 {
		return instance.Faultf(instance.Unclear, "get a token: %s", resp.Status)
	}
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int    `json:"expires_in"`
	}
	if resp.StatusCode != http.StatusOK || json.Unmarshal(b, &answer) != nil || answer.Token == "" {
		return instance.Faultf(instance.Credentials, "get a token: %s", resp.Status)
	}
	t.token, t.until = answer.Token, time.Now().Add(time.Duration(answer.Seconds)*time.Second)
	return nil
}

// assertion returns a signed JSON web token that identifies the account.
func (a *account) assertion(now time.Time) (string, error) {
	part := func(v any) string {
		b, _ := json.Marshal(v) // cannot fail for maps of texts and numbers
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]string{"alg": "RS256", "typ": "JWT", "kid": a.KeyID}) + "." + part(map[string]any{
		"iss": a.Email, "aud": a.TokenURI, "scope": "https://www.googleapis.com/auth/compute", "iat": now.Unix(),
		"exp": now.Add(time.Hour).Unix(),
	})
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), err
}
