package apitest

import (
	"github.com/coopr/coopr/rpc/server"
)

// siteService is the service of a mesh without sites. No test calls its methods.
type siteService struct{ server.Sites }
