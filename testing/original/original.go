// Package original finds the definitions that the original Coopr shipped. The
// repository does not hold them; tests over them are skipped where there are none.
package original

import (
	"os"
	"path/filepath"
	"testing"
)

// Dir returns the folder of the original's definitions. It skips the test where
// there is none.
func Dir(t testing.TB) string {
	t.Helper()
	dir, ok := Find()
	if !ok {
		t.Skip("needs the original's definitions, which are not in the repository: set COOPR_SHARED to the folder that holds data/coopr")
	}
	return dir
}

// Find returns data/coopr in the folder that COOPR_SHARED names, or in a folder
// "shared" of the working directory or one of its parents. It reports whether
// there is one.
func Find() (string, bool) {
	if dir := os.Getenv("COOPR_SHARED"); dir != "" {
		return definitions(dir)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", false
	}
	for {
		if found, ok := definitions(filepath.Join(dir, "shared")); ok {
			return found, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}

func definitions(shared string) (string, bool) {
	dir := filepath.Join(shared, "data", "coopr")
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}
