// Package definitions has the routes of definitions: their versions, import, export, checks and layouts.
package definitions

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	kindRoutes(s)
	importRoutes(s)
	solveRoutes(s)
}
