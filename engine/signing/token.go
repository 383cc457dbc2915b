package signing

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
)

// Claims are what a token of a task says. Times are in Unix seconds.
type Claims struct {
	Issuer    string `json:"iss"`
	Audience  string `json:"aud"`
	Subject   string `json:"sub"`
	Expires   int64  `json:"exp"`
	NotBefore int64  `json:"nbf"`
	Issued    int64  `json:"iat"`
	ID        string `json:"jti"`
	Tenant    string `json:"coopr_tenant"`
	Cluster   string `json:"coopr_cluster"`
	Node      string `json:"coopr_node,omitempty"`
	Operation string `json:"coopr_operation"`
}

// Thumbprint returns the id of an RSA key in a JSON Web Key Set and in the tokens that it has signed (RFC 7638).
func Thumbprint(public *rsa.PublicKey) string {
	encode := base64.RawURLEncoding.EncodeToString
	// The members that make the key are hashed, in this order and without spaces.
	sum := sha256.Sum256([]byte(`{"e":"` + encode(big.NewInt(int64(public.E)).Bytes()) + `","kty":"RSA","n":"` +
		encode(public.N.Bytes()) + `"}`))
	return encode(sum[:])
}

// Token returns a JSON Web Token with claims, which a key has signed with RS256.
func (c Claims) Token(key *rsa.PrivateKey) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"RS256","kid":"`+Thumbprint(&key.PublicKey)+`","typ":"JWT"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign a token of a task: %w", err)
	}
	return text + "." + encode(signature), nil
}

// Signing returns the key that signs at a time in Unix milliseconds, and false if none does.
func (c TaskKeys) Signing(now int64) (k TaskKey, ok bool) {
	for _, x := range c {
		if x.Signs <= now {
			k, ok = x, true
		}
	}
	return k, ok
}
