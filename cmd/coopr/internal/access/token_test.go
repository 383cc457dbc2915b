package access_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

var secret = regexp.MustCompile(`coopr-[A-Z2-7]{26}`)

// TestTokens is the story of tokens of a network: they are made, shown with their last use, and refused from elsewhere.
func TestTokens(t *testing.T) {
	s := clitest.New(t)
	// made returns the secret and the record of the token that was made last.
	made := func(actor string) (string, model.Token) {
		v, err := s.Mesh.View(t.Context(), api.Default, 0)
		if err != nil {
			t.Fatal(err)
		}
		secrets := secret.FindAllString(s.Story.String(), -1)
		for _, k := range v.Tokens("acme") {
			if k.Actor == actor && len(secrets) > 0 {
				return secrets[len(secrets)-1], k
			}
		}
		t.Fatalf("no token of %s", actor)
		return "", model.Token{}
	}
	admin := s.Env
	whoami := func(code int, token string) {
		s.Env = map[string]string{"HOME": s.Dir, "COOPR_ADDR": s.URL, "COOPR_TOKEN": token}
		s.Run(code, "whoami")
		s.Env = admin
	}
	s.Run(0, "token", "create", "ci", "--source", "127.0.0.1", "--source", "10.0.0.0/8,2001:db8::/32", "--description", "the build server")
	token, ci := made("ci")
	whoami(0, token)
	s.Mesh.RecordUses()
	s.Run(0, "token", "list")
	s.Run(0, "token", "create", "far", "--source", "192.0.2.0/24")
	token, far := made("far")
	whoami(1, token)
	s.Run(1, "token", "create", "bad", "--source", "10.1.2.3/8", "--source", "everywhere")
	s.Run(1, "token", "create", "--source", "::ffff:10.0.0.0/90")
	s.Run(0, "token", "get", ci.ID)
	s.Run(0, "token", "get", far.ID, "-o", "json")
	// The ids are random, and so is the order of the list of those that there are.
	if code, _, errs := s.Exec("token", "get", "none"); code != 3 || !strings.Contains(errs, "There are: ") || !strings.Contains(errs, ci.ID) {
		t.Errorf("%d %s", code, errs)
	}
	s.Run(3, "token", "get", far.ID, "--own")
	s.As(apitest.User)
	s.Run(1, "token", "get", ci.ID)
	story := secret.ReplaceAllString(strings.NewReplacer(ci.ID, "TOKENID1", far.ID, "TOKENID2").Replace(s.Story.String()), "coopr-SECRET")
	s.Story.Reset()
	s.Story.WriteString(story)
	s.Golden("tokens")
}
