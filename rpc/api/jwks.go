package api

// WebKeySet has public keys as a JSON Web Key Set (RFC 7517).
type WebKeySet struct {
	Keys []WebKey `json:"keys"`
}

// WebKey is an RSA key as a JSON Web Key.
type WebKey struct {
	Type      string `json:"kty" enum:"RSA"`
	Use       string `json:"use" enum:"sig"`
	Algorithm string `json:"alg" enum:"RS256"`
	ID        string `json:"kid" doc:"The key's thumbprint (RFC 7638)"`
	Modulus   string `json:"n" doc:"In base64url"`
	Exponent  string `json:"e" doc:"In base64url"`
}

// Issuer is what OpenID Connect Discovery says about a mesh that issues tokens of tasks.
type Issuer struct {
	Issuer     string   `json:"issuer" doc:"The claim iss of the tokens"`
	Keys       string   `json:"jwks_uri"`
	Algorithms []string `json:"id_token_signing_alg_values_supported"`
	Responses  []string `json:"response_types_supported"`
	Subjects   []string `json:"subject_types_supported"`
}
