// Package events has the routes of the event stream and the audit log.
package events

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	eventRoutes(s)
	auditRoutes(s)
}
