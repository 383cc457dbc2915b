package definition_test

import (
	"os"
	"strings"
	"testing"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

func TestDefinitionsStory(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Run(0, "template", "list")
	s.Run(0, "import", "defs", "--check")
	s.Run(0, "import", "defs", "--check", "--offline")
	s.Run(2, "import", "defs", "--offline")
	s.Run(0, "import", "defs")
	s.Run(0, "template", "list")
	s.Run(0, "service", "list", "-o", "wide")
	s.Run(0, "provider", "get", "cloud")
	s.Run(0, "template", "get", "shop", "-o", "json")
	s.File("new.yaml", "name: php\ndescription: Another language\n")
	s.Run(0, "service", "put", "new.yaml")
	s.Stdin = `{"name":"php","label":"PHP"}`
	s.Run(0, "service", "put", "-")
	s.Run(0, "service", "versions", "php")
	s.Run(0, "service", "get", "php", "--version", "1")
	s.Run(3, "service", "get", "phq")
	s.Run(2, "service", "delete", "php")
	s.Run(0, "service", "delete", "php", "--version", "1", "--yes")
	s.Run(4, "service", "delete", "php", "-y")
	s.Run(0, "service", "delete", "php", "-y", "--force")
	s.Run(3, "service", "delete", "php", "-y")
	s.Run(0, "export", "--dir", "out")
	s.Run(0, "export")
	s.Golden("definitions")

	if got, err := os.ReadFile("out/providers/cloud.yaml"); err != nil || !strings.Contains(string(got), `pin: "1234"`) {
		t.Errorf("%s %v", got, err)
	}
	if info, err := os.Stat("out/providers/cloud.yaml"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	// An export can be imported without changes, if what its templates refer to exists.
	s.Exec("service", "put", "new.yaml")
	s.Exec("export", "--dir", "out")
	if code, _, errs := s.Exec("import", "out"); code != 0 {
		t.Errorf("%s", errs)
	}
}
