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
