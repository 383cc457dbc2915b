// Package clusters has the routes of clusters, their nodes, operations and tasks, and of orphans.
package clusters

import (
	"github.com/coopr/coopr/rpc/server/rest"
)

// Register adds the routes.
func Register(s *rest.Server) {
	clusterRoutes(s)
	attentionRoute(s)
	operationRoutes(s)
	changeRoutes(s)
	historyRoutes(s)
	labelRoute(s)
	leaseRoute(s)
	taskRoutes(s)
	nodeRoutes(s)
	orphanRoutes(s)
}
