// Package shared finds the folder with the case files and the original's
// definitions that tests read.
package shared

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir gives the shared folder (the one that holds "conformance" and "data"):
// that of COOPR_SHARED, or a folder "shared" beside one of the parents of the
// working directory. Where there is none the test is skipped with the reason.
func Dir(t testing.TB) string {
	t.Helper()
	dir, ok := Find()
	if !ok {
		t.Skip("needs the shared case files: set COOPR_SHARED to the folder that holds conformance/ and data/")
	}
	return dir
}

// Find is Dir for programs: the folder and whether there is one.
func Find() (string, bool) {
	if dir := os.Getenv("COOPR_SHARED"); dir != "" {
		return dir, has(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if try := filepath.Join(dir, "shared"); has(try) {
			return try, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func has(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "conformance"))
	return err == nil && info.IsDir()
}
