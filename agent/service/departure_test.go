package service_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/rpc/server/rest"
)

// The only voter cannot leave. Its error was reported as a request that took too long, without the advice.
func TestVoteThatIsStillNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.NewStore()
		defer s.Close()
		if _, err := apitest.NewAgent(s, "a").Services().Mesh.Leave(t.Context(), model.Caller{}, rest.Bearer{}, api.LeaveBody{}); !errors.Is(err, problem.Conflict) {
			t.Errorf("%v", err)
		}
	})
}
