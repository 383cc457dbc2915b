package service_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/agent/service"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// reporter keeps the uses of tokens that an agent reports.
type reporter struct{ tokens []string }

func (r *reporter) ReportUse(token string) { r.tokens = append(r.tokens, token) }

// An agent that does not lead reports the use of a token once an hour, and none that the state has.
func TestUsesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.NewStore()
		defer s.Close()
		leader, voter := apitest.NewAgent(s, "a").Services().Tokens, apitest.NewAgent(s, "b")
		voter.Follow("", true, nil)
		tokens, r, now := voter.Services().Tokens.(*service.Tokens), &reporter{}, time.UnixMilli(apitest.Epoch)
		tokens.Reporter, tokens.Now = r, func() time.Time { return now }
		use := func(of rest.Tokens, all ...string) {
			for _, token := range all {
				if _, err := of.Authenticate(t.Context(), rest.Bearer{Token: token}); (err == nil) == (token == "guess") {
					t.Errorf("%s: %v", token, err)
				}
			}
		}
		reported := func(want ...string) {
			t.Helper()
			if !slices.Equal(r.tokens, want) {
				t.Errorf("reported %v, not %v", r.tokens, want)
			}
		}
		use(tokens, apitest.User, apitest.Root, "guess", apitest.User, apitest.Admin, apitest.User)
		reported("t3", "t2")
		now = now.Add(time.Hour)
		use(tokens, apitest.User, apitest.User)
		reported("t3", "t2", "t3")
		use(leader, apitest.Guest)
		s.RecordUses()
		now = time.UnixMilli(apitest.Epoch)
		use(tokens, apitest.Guest, apitest.Other)
		reported("t3", "t2", "t3", "t4")
	})
}
