package house

import (
	"go/ast"
	"testing"
)

// These packages start no goroutine, nor do their tests. So testing/ci/tests.sh runs them without the race
// detector.
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
				starts := false
				switch n := n.(type) {
				case *ast.GoStmt:
					starts = true
				case *ast.CallExpr: // of a sync.WaitGroup or an errgroup.Group
					f, ok := n.Fun.(*ast.SelectorExpr)
					starts = ok && f.Sel.Name == "Go"
				}
				if starts {
					t.Errorf("%s:%d starts a goroutine: move it, or have testing/ci/tests.sh run %s under the race detector",
						s.path, s.fset.Position(n.Pos()).Line, folder)
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
