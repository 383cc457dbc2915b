package access_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/api"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// lossy passes requests on to an agent, and loses the first answer to each write: the connection ends instead.
type lossy struct {
	proxy *httputil.ReverseProxy

	mu   sync.Mutex
	lost map[string]bool // by request id
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(api.HeaderRequest)
	l.mu.Lock()
	lose := r.Method != http.MethodGet && !l.lost[id]
	l.lost[id] = true
	l.mu.Unlock()
	if lose {
		l.proxy.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	l.proxy.ServeHTTP(w, r)
}

// TestPasswordOfALostAnswer has the answers lost to the commands that make passwords up: the commands are repeated, and print the passwords,
// which nobody else knows.
func TestPasswordOfALostAnswer(t *testing.T) {
	s := clitest.New(t)
	agent, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	l := &lossy{proxy: httputil.NewSingleHostReverseProxy(agent), lost: map[string]bool{}}
	between := httptest.NewServer(l)
	t.Cleanup(between.Close)
	s.Env["COOPR_ADDR"], s.Patience = between.URL, time.Minute
	for _, args := range [][]string{{"user", "create", "kim"}, {"user", "set", "kim", "--new-password"}} {
		code, password, errs := s.Exec(args...)
		if password = strings.TrimSpace(password); code != 0 || password == "" {
			t.Fatalf("coopr %s: code %d, standard output %q, %s", strings.Join(args, " "), code, password, errs)
		}
		body := strings.NewReader(`{"tenant": "acme", "user": "kim", "password": "` + password + `"}`)
		resp, err := http.Post(s.URL+"/v1/login", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusCreated {
			t.Errorf("coopr %s: a login with the password that it printed is answered %d: %s", strings.Join(args, " "), resp.StatusCode, text)
		}
	}
}
