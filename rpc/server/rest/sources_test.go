package rest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// leaderWithTokens is a leader that knows some tokens, asked by an agent without a copy of the state.
type leaderWithTokens struct {
	Router
	Tokens
	known map[string]bool
	asked int
}

func (*leaderWithTokens) Serves(bool) bool { return false }

func (*leaderWithTokens) Authenticate(context.Context, Bearer) (model.Caller, error) {
	return model.Caller{}, problem.Unauthorized
}

func (l *leaderWithTokens) RoundTripToLeader(_ context.Context, _ time.Time, _, _ string, header map[string][]string, _ io.Reader) (int,
	map[string][]string, io.ReadCloser, error) {
	l.asked++
	status := http.StatusUnauthorized
	if l.known[strings.TrimPrefix(http.Header(header).Get("Authorization"), "Bearer ")] {
		status = http.StatusOK
	}
	return status, nil, io.NopCloser(strings.NewReader(`{"actor":"bob","tenant":"acme","role":"user"}`)), nil
}

// TestKnownTokensAmongStrangers checks that guesses of tokens do not lock out those of the same source whose tokens the leader has
// known lately, also once its answer is old; a token that it does not know any more counts as a guess again.
func TestKnownTokensAmongStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &leaderWithTokens{known: map[string]bool{"mine": true}}
		s := &Server{Services: Services{Router: l, Tokens: l}, sources: newSources(1)}
		admit := func(token string) error {
			r := httptest.NewRequest("GET", "/v1/members", nil)
			_, err := s.admit(r, time.Now().Add(time.Minute), Bearer{Token: token, From: netip.MustParseAddr("192.0.2.1")})
			return err
		}
		if err := admit("mine"); err != nil {
			t.Fatal(err)
		}
		flood := func() {
			for i := range 50 {
				if err := admit("guess"); i == 49 && !errors.Is(err, problem.Throttled) {
					t.Errorf("the guesses are not slowed: %v", err)
				}
				if i < 10 {
					time.Sleep(2 * time.Second)
				}
			}
		}
		flood() // the leader's answer is old by now
		asked := l.asked
		if err := admit("mine"); err != nil || l.asked != asked+1 {
			t.Errorf("a known token among guesses: %v; the leader was asked %d times", err, l.asked-asked)
		}
		delete(l.known, "mine")
		time.Sleep(callerTime)
		flood()
		if err := admit("mine"); !errors.Is(err, problem.Unauthorized) {
			t.Errorf("a token that was revoked: %v", err)
		}
		asked = l.asked
		if err := admit("mine"); !errors.Is(err, problem.Throttled) || l.asked != asked {
			t.Errorf("a revoked token counts as no guess: %v", err)
		}
	})
}
