package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/testing/lab"
)

func TestMain(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir != "" {
			os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// every says that all examples are to be run, on all kinds of machines, and that no
// request may fail (make test-examples): that takes longer than CI has.
var every = os.Getenv("COOPR_EXAMPLES") == "all"

// whenEvery skips what CI has no time for.
func whenEvery(t *testing.T) {
	if !every {
		t.Skip("takes minutes: make test-examples")
	}
}

// dir is the folder of the programs, once a test has needed them.
var dir string

// builtVar names a folder with programs that are built already, to be quick.
const builtVar = "COOPR_EXAMPLES_BIN"

// programs builds the programs once and gives their folder.
var programs = sync.OnceValues(func() (string, error) {
	if built := os.Getenv(builtVar); built != "" {
		return built, nil
	}
	var err error
	if dir, err = os.MkdirTemp("", "coopr-examples-"); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/...", "./plugins/automator/...",
		"./plugins/provider/coopr-provider-hosts", "./plugins/provider/coopr-provider-docker")
	cmd.Dir, cmd.Stderr = filepath.Join("..", ".."), os.Stderr
	// Raft's stores need the tag (docs/decisions/001-libraries.md).
	cmd.Env = append(os.Environ(), "GOFLAGS=-tags=hashicorpmetrics -buildvcs=false")
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the programs: %w", err)
	}
	return dir, nil
})
