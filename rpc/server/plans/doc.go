// Package plans has the routes of plans, and of nodes as the pods of the DC/OS SDK.
package plans

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	planRoutes(s)
	recoveryRoutes(s)
	podRoutes(s)
}
