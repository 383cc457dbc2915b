package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// redirect is a shell's redirection to a file, with the file's name.
var redirect = regexp.MustCompile(`(?:^|[ }])>>?("[^"]*"|[^\s&|;()"]+)`)

// TestRunningServicesReadWholeFiles checks that services that keep running while they are configured
// replace each file at once. A reader of a file that is written in place may see a part of it, or none:
// the page of the example web was empty so.
func TestRunningServicesReadWholeFiles(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*/services/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	files := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var service struct {
			Provisioner struct {
				Actions map[string]struct {
					Fields struct{ Script string }
				}
			}
			RestartOnConfigure *bool `yaml:"restart_on_configure"`
		}
		if err := yaml.Unmarshal(text, &service); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		script := service.Provisioner.Actions["configure"].Fields.Script
		if service.RestartOnConfigure == nil || *service.RestartOnConfigure || script == "" {
			continue
		}
		for _, found := range redirect.FindAllStringSubmatch(script, -1) {
			file := strings.Trim(found[1], `"`)
			if file == "/dev/null" {
				continue
			}
			files++
			if !strings.HasSuffix(file, ".new") {
				t.Errorf("%s writes %s in place: write %[2]s.new, and move it there", path, file)
			}
		}
	}
	if files < 8 {
		t.Errorf("only %d files are written: does the pattern find them?", files)
	}
}
