package mesh_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// A snapshot that was saved counts, even if the agent is too old to say anything about the keyring.
func TestSaveFromAnOlderAgent(t *testing.T) {
	s := clitest.New(t)
	s.As(apitest.Super)
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/operator/keyring" {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(older.Close)
	s.Env["COOPR_ADDR"] = older.URL
	code, out, errs := s.Exec("operator", "snapshot", "save", "state.snap")
	if code != 0 || !strings.Contains(out, "state.snap was saved") || !strings.Contains(errs, "it is not known whether the keyring was exported") {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
}
