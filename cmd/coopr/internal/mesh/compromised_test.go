package mesh_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/coopr/coopr/rpc/api"
)

// The removal of a compromised voter shows its costs, what is left to do, and what the voter could decrypt.
func TestCompromisedStory(t *testing.T) {
	for name, exposed := range map[string][]api.Exposed{
		"compromised": {{Tenant: "default", Kind: "providers", Name: "cloud"}, {Tenant: "t", Kind: "secrets", Name: "key\x1b[2J"},
			{Tenant: "t", Kind: "users", Name: "corp.ann"}}, "harmless": nil,
	} {
		s := hostile(t, map[string]func(http.ResponseWriter){"/v1/leave": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(api.Left{Agent: "b", Exposed: exposed})
		}})
		s.Run(0, "leave", "b", "--compromised", "--yes")
		s.Golden(name)
	}
}
