// Package access has the routes of tenants, tokens and permissions.
package access

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	tenantRoutes(s)
	tokenRoutes(s)
	permissionRoutes(s)
}
