package keystore

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
)

// Transit has the secrets engine "transit" of a server with Vault's API encrypt and decrypt.
type Transit struct{ cfg config.Transit }

// NewTransit returns the engine of a configuration.
func NewTransit(cfg config.Transit) *Transit { return &Transit{cfg} }

// transitTime bounds a request, mostTransit the size of its answer in bytes.
const (
	transitTime = 10 * time.Second
	mostTransit = 256 << 10
)

// errRefused is an answer that says no.
var errRefused = errors.New("the server refuses")

// Wrap returns an encrypted secret: what the server calls a ciphertext.
func (t *Transit) Wrap(secret []byte) (string, error) {
	data, err := t.call("encrypt", map[string]string{"plaintext": base64.StdEncoding.EncodeToString(secret)})
	if err == nil && data.Ciphertext == "" {
		err = errors.New("the server's answer to encrypt has no data.ciphertext: is keyring.transit.address the server, and not its page?")
	}
	return data.Ciphertext, err
}

// Unwrap returns the secret in what Wrap has returned.
func (t *Transit) Unwrap(wrapped string) ([]byte, error) {
	data, err := t.call("decrypt", map[string]string{"ciphertext": wrapped})
	if err != nil {
		return nil, err
	}
	secret, err := base64.StdEncoding.DecodeString(data.Plaintext)
	if err != nil || len(secret) == 0 {
		return nil, errors.New("the server's answer to decrypt has no data.plaintext")
	}
	return secret, nil
}

// transitData is the part data of an answer.
type transitData struct {
	Ciphertext string `json:"ciphertext"`
	Plaintext  string `json:"plaintext"`
}

// call sends a request. Its errors have nothing of what was sent or answered.
func (t *Transit) call(verb string, body map[string]string) (out transitData, err error) {
	token, err := t.token()
	if err != nil {
		return out, err
	}
	client, err := t.client()
	if err != nil {
		return out, err
	}
	defer client.CloseIdleConnections()
	text, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	where, err := url.JoinPath(t.cfg.Address, "v1", t.cfg.MountPath(), verb, t.cfg.Key)
	if err != nil {
		return out, err
	}
	r, err := http.NewRequest(http.MethodPost, where, bytes.NewReader(text))
	if err != nil {
		return out, err
	}
	r.Header = http.Header{
		"X-Vault-Token": {token}, "X-Vault-Request": {"true"}, "Content-Type": {"application/json"}, "User-Agent": {"coopr-agent"},
	}
	answer, err := client.Do(r)
	if err != nil {
		return out, fmt.Errorf("%w: %w", keyring.ErrAway, err)
	}
	defer answer.Body.Close()
	if err := judge(verb, answer.StatusCode); err != nil {
		return out, err
	}
	got, err := io.ReadAll(io.LimitReader(answer.Body, mostTransit))
	if err != nil {
		return out, fmt.Errorf("%w: %w", keyring.ErrAway, err)
	}
	var parsed struct {
		Data transitData `json:"data"`
	}
	if json.Unmarshal(got, &parsed) != nil {
		return out, fmt.Errorf("the server's answer to %s is not JSON", verb)
	}
	return parsed.Data, nil
}

// judge returns an error for a status other than that of success. Whether the server may answer otherwise later is marked by
// keyring.ErrAway: it is sealed, overloaded, a standby, or broken.
func judge(verb string, status int) error {
	switch {
	case status == http.StatusOK:
		return nil
	case status >= 300 && status < 400:
		return fmt.Errorf("%w to %s: it redirects (status %d), and nothing secret is sent elsewhere: set keyring.transit.address to where "+
			"it leads", errRefused, verb, status)
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return fmt.Errorf("%w to %s (status %d): the token in keyring.transit.token_file is wrong or has ended, or its policy lacks "+
			"the right to update %[2]s/KEY", errRefused, verb, status)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w to %s (status %d): there is no engine at keyring.transit.mount", errRefused, verb, status)
	case status == http.StatusBadRequest:
		return fmt.Errorf("%w to %s (status %d): the key of keyring.transit.key is missing, or is not the one that has encrypted the local key",
			errRefused, verb, status)
	case status == http.StatusTooManyRequests || status == 412 || status == 472 || status == 473 || status >= 500:
		return fmt.Errorf("%w: status %d", keyring.ErrAway, status)
	}
	return fmt.Errorf("%w to %s: status %d", errRefused, verb, status)
}

// maxToken bounds the size of a token's file, in bytes.
const maxToken = 16 << 10

// token reads the token of the server. It may be replaced at any time.
func (t *Transit) token() (string, error) {
	f, err := os.Open(t.cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("keyring.transit.token_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("keyring.transit.token_file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("keyring.transit.token_file: %s can be read by others (mode %04o): chmod 600 it", t.cfg.TokenFile, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fmt.Errorf("keyring.transit.token_file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, "\r\n") {
		return "", fmt.Errorf("keyring.transit.token_file: %s must have one line, the token", t.cfg.TokenFile)
	}
	return token, nil
}

// client returns a client that trusts the CAs of the configuration, and follows neither redirects nor a proxy of the environment.
func (t *Transit) client() (*http.Client, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.cfg.CAFile != "" {
		pem, err := os.ReadFile(t.cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("keyring.transit.ca_file: %w", err)
		}
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("keyring.transit.ca_file: %s has no certificate in PEM", t.cfg.CAFile)
		}
	}
	return &http.Client{
		Timeout:       transitTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: transitTime}).DialContext,
			TLSClientConfig: secure, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		},
	}, nil
}
