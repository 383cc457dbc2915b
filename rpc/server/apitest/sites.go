package apitest

import (
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/server"
)

// Sites says that the test mesh has none.
func (a *Agent) Sites() (server.Sites, error) {
	return nil, problem.New(problem.NotFound, "the test mesh has no sites")
}
