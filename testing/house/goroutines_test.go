package house

import (
	"go/ast"
	"testing"
)

// The engine and these packages start no goroutine, nor do their tests. So testing/ci/tests.sh runs them
// without the race detector.
var sequential = []string{"engine", "consensus/duty/orchestrate", "consensus/logformat"}

func TestSequentialPackagesStartNoGoroutine(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range sources() {
		for _, folder := range sequential {
			if !within(s.folder(), folder) {
				continue
			}
			seen[folder] = true
			ast.Inspect(s.file, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s:%d starts a goroutine: move it, or have testing/ci/tests.sh run %s under the race detector",
						s.path, s.fset.Position(g.Pos()).Line, folder)
				}
				return true
			})
		}
	}
	for _, folder := range sequential {
		if !seen[folder] {
			t.Errorf("there is no folder %s", folder)
		}
	}
}
