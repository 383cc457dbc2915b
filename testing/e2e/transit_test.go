package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// TestTransit runs an agent whose keyring a server decrypts at each start. The agent waits while the server is away, and ends if it refuses.
func TestTransit(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a")
	m.found()
	a := m.agents[0]
	var status atomic.Int64 // of the server's answers
	status.Store(http.StatusServiceUnavailable)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/transit/{verb}/coopr", func(w http.ResponseWriter, r *http.Request) {
		var in map[string]string
		if now := int(status.Load()); now != http.StatusOK || r.Header.Get("X-Vault-Token") != "right" || json.NewDecoder(r.Body).Decode(&in) != nil {
			w.WriteHeader(max(now, http.StatusForbidden))
			return
		}
		out := map[string]string{"ciphertext": "vault:v1:" + in["plaintext"]} // its disk is not what is tested
		if r.PathValue("verb") == "decrypt" {
			out = map[string]string{"plaintext": strings.TrimPrefix(in["ciphertext"], "vault:v1:")}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": out})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	token := a.data + ".vault" // not in the folder that plugins may write to
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf("keyring: {kind: transit, transit: {address: %q, key: coopr, token_file: %q}}", server.URL, token)
	begin := func() {
		path := a.config("", settings)
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, bytes.Replace(text, []byte("join_token_file:"), []byte("#"), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.run("run", "--config", path)
	}
	hears := a.notifies()
	const waits = "READY=1\nSTATUS=the keyring waits for the service that decrypts it"
	begin()
	hears(waits)
	status.Store(http.StatusOK)
	m.ready()
	m.must("secret", "put", "phrase", "--file", m.put("value", "correct horse"))
	status.Store(http.StatusServiceUnavailable)
	m.must("secret", "put", "phrase", "--file", m.put("value", "battery staple")) // an agent that runs does not need the server
	a.kill()
	if data, err := os.ReadFile(a.data + "-keyring/keys"); err != nil || !bytes.HasPrefix(data, []byte("coopr-keyring 2 transit\nvault:v1:")) {
		t.Errorf("%v\n%s", err, data)
	}
	status.Store(http.StatusForbidden)
	begin()
	if <-a.ended; a.err == nil || !strings.Contains(a.tail(5), "keyring.transit.token_file is wrong") {
		t.Errorf("the server refuses, and the agent ended with %v:\n%s", a.err, a.tail(5))
	}
	status.Store(http.StatusServiceUnavailable)
	hears = a.notifies()
	begin()
	hears(waits)
	a.stop() // it can be stopped while it waits
	begin()
	status.Store(http.StatusOK)
	m.ready()
	m.stop()
}
