package apitest

import (
	"fmt"

	"github.com/coopr/coopr/rpc/api"
)

// Resources says that the test mesh has none.
func (a *Agent) Resources() (api.Resources, error) {
	return nil, fmt.Errorf("%w: the test mesh has no plugin resources", api.ErrNotFound)
}
