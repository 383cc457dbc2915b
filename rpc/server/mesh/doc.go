// Package mesh has the routes of the mesh, its agents and its Raft group.
package mesh

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	meshRoutes(s)
	operatorRoutes(s)
	joinTokenRoutes(s)
}
