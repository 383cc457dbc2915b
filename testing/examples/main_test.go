package examples

import (
	"os"
	"testing"

	"github.com/coopr/coopr/testing/openstack"
	"github.com/coopr/coopr/testing/site"
)

var programs = site.NewPrograms("./plugins/automator/...", "./plugins/provider/coopr-provider-hosts",
	"./plugins/provider/coopr-provider-docker", "./plugins/provider/coopr-provider-openstack")

func TestMain(m *testing.M) { programs.Main(m) }

// every is true if all examples are to be run, on all kinds of machines, and no request may
// fail (make test-examples). That takes longer than CI has.
var every = os.Getenv("COOPR_EXAMPLES") == "all" || openstack.Wanted()

// whenEvery skips what CI has no time for.
func whenEvery(t *testing.T) {
	if !every {
		t.Skip("takes minutes: make test-examples")
	}
}
