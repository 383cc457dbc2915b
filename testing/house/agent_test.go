package house

import (
	"fmt"
	"go/ast"
	"testing"
)

// TestAgentIsWiring checks that no other part of the program gets an Agent, or one of its
// methods to call later, so that no request reaches the root. A list of functions that New
// or Run calls itself is no such part.
func TestAgentIsWiring(t *testing.T) {
	t.Parallel()
	methods := map[string]bool{}
	for _, s := range sources() {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.folder() == "agent" && f.Recv != nil && isAgent(f.Recv.List[0].Type, "agent") {
				methods[f.Name.Name] = true
			}
		}
	}
	if len(methods) < 10 {
		t.Fatalf("only %d methods of Agent were found", len(methods))
	}
	var found []violation
	for _, s := range sources() {
		if !s.code() || within(s.path, "testing") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if x, ok := n.(*ast.StructType); ok {
				for _, f := range x.Fields.List {
					if isAgent(f.Type, s.folder()) {
						found = append(found, violation{s.folder() + ": *Agent", fmt.Sprintf("%s:%d: a struct holds an Agent", s.path, s.line(f))})
					}
				}
			}
			return true
		})
		if s.folder() != "agent" {
			continue
		}
		for _, d := range s.file.Decls {
			for name, at := range handedOut(d, methods) {
				found = append(found, violation{"agent: " + name,
					fmt.Sprintf("%s:%d: another part can call this method of Agent; give it a type of its own", s.path, s.line(at))})
			}
		}
	}
	report(t, found, allowedAgentMethods)
}

// isAgent reports whether an expression in a folder is the type agent.Agent or a pointer to it.
func isAgent(e ast.Expr, folder string) bool {
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	switch e := e.(type) {
	case *ast.Ident:
		return folder == "agent" && e.Name == "Agent"
	case *ast.SelectorExpr:
		id, ok := e.X.(*ast.Ident)
		return ok && id.Name == "agent" && e.Sel.Name == "Agent"
	}
	return false
}

// handedOut yields the methods of Agent that a declaration uses as values, or calls in a
// function without a name.
func handedOut(d ast.Decl, methods map[string]bool) func(yield func(string, ast.Node) bool) {
	return func(yield func(string, ast.Node) bool) {
		called := map[ast.Node]bool{}
		more := true
		var walk func(n ast.Node, closure bool)
		walk = func(n ast.Node, closure bool) {
			ast.Inspect(n, func(x ast.Node) bool {
				switch x := x.(type) {
				case *ast.FuncLit:
					if !closure {
						walk(x.Body, true)
						return false
					}
				case *ast.CompositeLit:
					if list, ok := x.Type.(*ast.ArrayType); ok {
						if _, ok := list.Elt.(*ast.FuncType); ok {
							return false
						}
					}
				case *ast.CallExpr:
					called[x.Fun] = true
				case *ast.SelectorExpr:
					id, ok := x.X.(*ast.Ident)
					if ok && id.Name == "a" && methods[x.Sel.Name] && (closure || !called[x]) {
						more = more && yield(x.Sel.Name, x)
					}
				}
				return more
			})
		}
		walk(d, false)
	}
}
