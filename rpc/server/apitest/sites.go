package apitest

import (
	"fmt"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server"
)

// Sites says that the test mesh has none.
func (a *Agent) Sites() (server.Sites, error) {
	return nil, fmt.Errorf("%w: the test mesh has no sites", api.ErrNotFound)
}
