package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/testing/programs"
)

// bin is the folder of the programs under test.
var bin string

// long matches the tests that -short leaves out, because they take longest.
const long = "^Test(" +
	"KillWhileRollingBack|PauseAndRollback|Figure1Killed|ChangeCases|DamagedLog|DamagedFiles|Survey|" +
	"HangPlugin|GarbagePlugin|UnrulyPlugin|KillFollower|RestartWorker|KillAll|StopLeader|" +
	"FullDisk|HandOver|Storage|ClusterHeldInShape|TypesOfAutomators|Restore|LostQuorum|" +
	"Move|Orphans|Readiness|ResourcesOfObjects|UploadKilled|RunKillLeader|WritingPlugins|" +
	"RequestOnce|Recovery|ChecksOfUploads|PluginResources|Orders|CustomPlan|NoFault|Upgrade" +
	")$"

// TestMain builds the programs. They are built plainly: the race detector is
// for this package's own code, and for the packages' own tests.
func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		if err := flag.Set("test.skip", long); err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "coopr-e2e-")
	if err == nil {
		bin = filepath.Join(dir, "bin")
		err = build(bin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: the programs cannot be built:", err)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// build builds the programs: the plugins in the folder of the agent, where it finds them in dev
// mode, and the test's own plugins elsewhere, since only some tests use them.
func build(bin string) error {
	return errors.Join(
		programs.Put(bin, "./cmd/...", "./examples/shop/cmd/shop",
			// Each plugin is started once by every agent: no more than are used here.
			"./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-local", "./plugins/provider/coopr-node"),
		programs.Put(filepath.Join(bin, "more"), "./testing/plugins/coopr-plugin-chaos"))
}
