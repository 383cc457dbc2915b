// Package plans has the routes of plans, and of nodes as the pods of the DC/OS SDK, and the routes of its client's other commands.
package plans

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	planRoutes(s)
	recoveryRoutes(s)
	podRoutes(s)
	endpointRoutes(s)
	configurationRoutes(s)
	stateRoutes(s)
	cosmosRoutes(s)
}
