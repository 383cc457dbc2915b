package release

import (
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	defer func(v, c string) { version, commit = v, c }(version, commit)
	for _, tt := range []struct{ version, commit, build, text string }{
		{"", "", "development", "coopr development, " + runtime.Version()},
		{"0.1.0", "", "0.1.0", "coopr 0.1.0, " + runtime.Version()},
		{"0.1.0", "5eb49c91", "0.1.0+5eb49c91", "coopr 0.1.0 (commit 5eb49c91), " + runtime.Version()},
	} {
		version, commit = tt.version, tt.commit
		if Build() != tt.build || Text("coopr") != tt.text {
			t.Errorf("%+v: %s, %s", tt, Build(), Text("coopr"))
		}
	}
}

// The file VERSION has a version that packages and file names accept.
func TestVersionFile(t *testing.T) {
	text, err := os.ReadFile("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[a-z]+\.\d+)?\n$`).Match(text) {
		t.Errorf("VERSION has %q", strings.TrimSpace(string(text)))
	}
}
