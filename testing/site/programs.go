package site

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

// Programs holds the programs that the tests of a package need.
type Programs struct {
	packages []string
	build    func() (string, error)
	dir      string // once they are built
}

// builtVar names a folder with programs that are built already, to save time.
const builtVar = "COOPR_TEST_BIN"

// NewPrograms returns the programs of packages of this repository ("./plugins/automator/..."),
// and the command and the agent. They are built when a test needs them.
func NewPrograms(packages ...string) *Programs {
	p := &Programs{packages: packages}
	p.build = sync.OnceValues(func() (string, error) {
		if built := os.Getenv(builtVar); built != "" {
			return built, nil
		}
		var err error
		if p.dir, err = os.MkdirTemp("", "coopr-programs-"); err != nil {
			return "", err
		}
		root, err := root()
		if err != nil {
			return "", err
		}
		cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-o", p.dir + "/", "./cmd/..."}, p.packages...)...)
		cmd.Dir, cmd.Stderr = root, os.Stderr
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("build the programs: %w", err)
		}
		return p.dir, nil
	})
	return p
}

// Build returns the programs' folder; it builds them the first time.
func (p *Programs) Build(t testing.TB) string {
	t.Helper()
	dir, err := p.build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// root is the folder of this repository.
func root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in any folder above the test")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// Main is the TestMain of a package with such programs: its tests run in an arena.
func (p *Programs) Main(m *testing.M) {
	lab.Enter()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if p.dir != "" {
			os.RemoveAll(p.dir)
		}
		os.Exit(code)
	}))
}
