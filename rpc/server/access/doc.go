// Package access has the routes of tenants, users, tokens, grants and permissions.
package access

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	tenantRoutes(s)
	userRoutes(s)
	selfRoutes(s)
	jwksRoutes(s)
	tokenRoutes(s)
	grantRoutes(s)
	permissionRoutes(s)
}
