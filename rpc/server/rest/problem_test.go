package rest

import (
	"fmt"
	"testing"

	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
)

// TestKinds checks that the type of a code's problem document has the code, so that
// clients read the same code, and that the statuses are those of errors.
func TestKinds(t *testing.T) {
	published := map[problem.Code]problem.Code{problem.Stale: problem.Conflict, problem.Refused: problem.Conflict,
		problem.Unsupported: problem.Internal}
	for code, k := range kinds {
		want, ok := published[code]
		if !ok {
			want = code
		}
		if got, ok := api.CodeOf(k.typ); !ok || got != want {
			t.Errorf("code %s has the type %s", code, k.typ)
		}
		if k.status < 400 || k.title == "" {
			t.Errorf("code %s: %+v", code, k)
		}
		if p := ProblemOf(fmt.Errorf("list: %w", code)); p.Type != k.typ || p.Status != k.status {
			t.Errorf("code %s is answered with %d %s", code, p.Status, p.Type)
		}
	}
}
