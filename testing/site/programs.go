package site

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/programs"
)

// Programs holds the programs that the tests of a package need.
type Programs struct {
	packages []string
	build    func() (string, error)
	dir      string // once they are built
}

// NewPrograms returns the programs of packages of this repository ("./plugins/automator/..."),
// and the command and the agent. They are built when a test needs them.
func NewPrograms(packages ...string) *Programs {
	p := &Programs{packages: packages}
	p.build = sync.OnceValues(func() (string, error) {
		var err error
		if p.dir, err = os.MkdirTemp("", "coopr-programs-"); err != nil {
			return "", err
		}
		if err := programs.Put(p.dir, append([]string{"./cmd/..."}, p.packages...)...); err != nil {
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
