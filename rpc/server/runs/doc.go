// Package runs has the routes of profiles, programs, schedules and runs.
package runs

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	profileRoutes(s)
	programRoutes(s)
	scheduleRoutes(s)
	runRoutes(s)
}
