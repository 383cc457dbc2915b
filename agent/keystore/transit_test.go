package keystore

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
)

// vault is a server that answers as Vault's documentation says of the secrets engine transit: POST /v1/MOUNT/encrypt/KEY takes a
// plaintext in base64 and a token in X-Vault-Token, and answers with a ciphertext; decrypt is the inverse. It keeps what it has encrypted.
type vault struct {
	*httptest.Server
	mu     sync.Mutex
	kept   map[string]string // plaintext of each ciphertext
	status int               // of every answer, if it is not 0
	body   string            // of every answer, if it is not ""
	tokens []string          // of the requests
}

func newVault(t *testing.T, secure bool) *vault {
	v := &vault{kept: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/team/transit/{verb}/coopr", v.serve)
	v.Server = httptest.NewUnstartedServer(mux)
	v.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		v.StartTLS()
	} else {
		v.Start()
	}
	t.Cleanup(v.Close)
	return v
}

func (v *vault) serve(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens = append(v.tokens, r.Header.Get("X-Vault-Token"))
	refuse := func(status int, why string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"errors": [%q]}`, why)
	}
	switch {
	case v.status != 0:
		w.Header().Set("Location", "/v1/team/transit/decrypt/coopr")
		refuse(v.status, "as the test says")
		return
	case v.body != "":
		fmt.Fprint(w, v.body)
		return
	case r.Header.Get("X-Vault-Token") != "s.right":
		refuse(http.StatusForbidden, "permission denied")
		return
	}
	var in, out map[string]string
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		refuse(http.StatusBadRequest, "not JSON")
		return
	}
	switch r.PathValue("verb") {
	case "encrypt":
		ciphertext := fmt.Sprintf("vault:v1:%d", len(v.kept))
		v.kept[ciphertext] = in["plaintext"]
		out = map[string]string{"ciphertext": ciphertext}
	case "decrypt":
		plaintext, ok := v.kept[in["ciphertext"]]
		if !ok {
			refuse(http.StatusBadRequest, "invalid ciphertext: no prefix")
			return
		}
		out = map[string]string{"plaintext": plaintext}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "1", "data": out})
}

// answer has the server give this answer to every request, or the right ones again.
func (v *vault) answer(status int, body string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.status, v.body = status, body
}

// settings returns the settings for the server.
func (v *vault) settings(t *testing.T) config.Transit {
	t.Helper()
	dir := t.TempDir()
	s := config.Transit{Address: v.URL, Mount: "team/transit", Key: "coopr", TokenFile: filepath.Join(dir, "token")}
	must(t, os.WriteFile(s.TokenFile, []byte("s.right\n"), 0o600))
	if cert := v.Certificate(); cert != nil {
		s.CAFile = filepath.Join(dir, "ca.pem")
		must(t, os.WriteFile(s.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), 0o600))
	}
	return s
}

func TestTransit(t *testing.T) {
	for _, secure := range []bool{false, true} {
		v := newVault(t, secure)
		s := v.settings(t)
		secret := []byte("thirty-two bytes of a local key!")
		wrapped, err := NewTransit(s).Wrap(secret)
		if err != nil || strings.Contains(wrapped, base64.StdEncoding.EncodeToString(secret)) {
			t.Fatal(wrapped, err)
		}
		if got, err := NewTransit(s).Unwrap(wrapped); err != nil || string(got) != string(secret) {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := NewTransit(s).Unwrap("vault:v1:other"); err == nil || errors.Is(err, keyring.ErrAway) {
			t.Error("another ciphertext:", err)
		}
	}
}

// TestTransitAnswers has the server give all kinds of answers. Some are worth a later try.
func TestTransitAnswers(t *testing.T) {
	v := newVault(t, false)
	s := v.settings(t)
	for _, x := range []struct {
		status int
		body   string
		away   bool
		word   string // of the error
	}{
		{302, "", false, "redirects"}, {307, "", false, "redirects"}, {308, "", false, "redirects"},
		{400, "", false, "keyring.transit.key"}, {401, "", false, "token"}, {403, "", false, "token"}, {404, "", false, "mount"},
		{418, "", false, "418"}, {429, "", true, "429"}, {473, "", true, "473"}, {500, "", true, "500"}, {502, "", true, "502"},
		{503, "", true, "503"}, {204, "", false, "204"},
		{0, "<html>", false, "JSON"}, {0, "{}", false, "no data"}, {0, `{"data": {"ciphertext": 5}}`, false, "JSON"},
		{0, `{"data": {"plaintext": "%"}}`, false, "no data"}, {0, strings.Repeat(" ", mostTransit) + "{}", false, "JSON"},
	} {
		v.answer(x.status, x.body)
		_, wrap := NewTransit(s).Wrap([]byte("canary"))
		_, unwrap := NewTransit(s).Unwrap("canary")
		for verb, err := range map[string]error{"encrypt": wrap, "decrypt": unwrap} {
			if err == nil || errors.Is(err, keyring.ErrAway) != x.away || !strings.Contains(err.Error(), x.word) {
				t.Errorf("%s, answer %d %.20q: %v", verb, x.status, x.body, err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "s.right") ||
				strings.Contains(err.Error(), "as the test says")) {
				t.Error("the error says too much:", err)
			}
		}
	}
}

// TestTransitSettings uses wrong tokens, CAs and addresses.
func TestTransitSettings(t *testing.T) {
	v := newVault(t, true)
	for name, x := range map[string]struct {
		change func(s *config.Transit)
		away   bool
		word   string
	}{
		"a wrong token":   {func(s *config.Transit) { must(t, os.WriteFile(s.TokenFile, []byte("s.wrong"), 0o600)) }, false, "403"},
		"two lines":       {func(s *config.Transit) { must(t, os.WriteFile(s.TokenFile, []byte("a\nb"), 0o600)) }, false, "one line"},
		"an open file":    {func(s *config.Transit) { must(t, os.Chmod(s.TokenFile, 0o644)) }, false, "0644"},
		"no token":        {func(s *config.Transit) { must(t, os.Remove(s.TokenFile)) }, false, "token_file"},
		"another CA":      {func(s *config.Transit) { s.CAFile = "" }, true, "certificate"},
		"no CA":           {func(s *config.Transit) { must(t, os.WriteFile(s.CAFile, nil, 0o600)) }, false, "ca_file"},
		"nobody listens":  {func(s *config.Transit) { s.Address = "https://127.0.0.1:1" }, true, "refused"},
		"another engine":  {func(s *config.Transit) { s.Mount = "" }, false, "mount"},
		"TLS where it is": {func(s *config.Transit) {}, false, ""},
	} {
		s := v.settings(t)
		x.change(&s)
		_, err := NewTransit(s).Wrap([]byte("secret"))
		if (err == nil) != (x.word == "") || errors.Is(err, keyring.ErrAway) != x.away || err != nil && !strings.Contains(err.Error(), x.word) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAwaitTransit starts an agent while the server is away. It waits, and goes on when the server answers.
func TestAwaitTransit(t *testing.T) {
	v := newVault(t, false)
	cfg := config.Config{DataDir: filepath.Join(t.TempDir(), "data"), Keyring: config.Keyring{Kind: keyring.KindTransit, Transit: v.settings(t)}}
	key := keyring.NewKey(1)
	must(t, Of(cfg).Save(keyring.Set{Active: 1, Keys: []keyring.Key{key}}))
	v.answer(http.StatusServiceUnavailable, "")
	s := start(t, cfg)
	if why := <-s.said; !strings.Contains(why, "service") {
		t.Error("it says", why)
	}
	v.answer(0, "")
	if <-s.ended; s.err != nil {
		t.Fatal(s.err)
	}
	if set, err := s.store.Load(); err != nil || len(set.Keys) != 1 || !set.Keys[0].Same(key) {
		t.Error(set, err)
	}
	v.answer(http.StatusForbidden, "")
	refused := start(t, cfg)
	if <-refused.ended; refused.err == nil || errors.Is(refused.err, keyring.ErrAway) {
		t.Error("it waits for a server that refuses:", refused.err)
	}
	v.answer(http.StatusServiceUnavailable, "")
	stopped := start(t, cfg)
	<-stopped.said
	stopped.stop()
	if <-stopped.ended; stopped.err != nil || stopped.store != nil {
		t.Error(stopped.err)
	}
}
