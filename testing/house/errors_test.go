package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// Packages whose functions take texts apart, and methods of regular expressions. To
// compare an error with a text, or to cut one, is to decide by its text.
var (
	readers  = []string{"strings", "bytes", "regexp", "strconv"}
	scanners = []string{"Sscan", "Sscanf", "Sscanln"}
	matchers = []string{"MatchString", "FindString", "FindStringIndex", "FindStringSubmatch", "FindStringSubmatchIndex", "FindAllString",
		"FindAllStringSubmatch", "ReplaceAllString"}
)

// TestErrorsAreNotReadAsText checks that no program decides by the text of an error: no such
// text is compared, searched or cut. A text that was stored in a variable counts too.
func TestErrorsAreNotReadAsText(t *testing.T) {
	t.Parallel()
	var found []violation
	for _, s := range sources() {
		if !s.code() || within(s.path, "testing/house") {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			for _, at := range errorTexts(f.Body) {
				found = append(found, violation{s.folder() + ": " + f.Name.Name,
					fmt.Sprintf("%s:%d: it decides by the text of an error; use errors.Is or errors.As", s.path, s.line(at))})
			}
		}
	}
	report(t, found, allowedErrorTexts)
}

// errorTexts returns the expressions of a function that read the text of an error.
func errorTexts(body *ast.BlockStmt) []ast.Node {
	stored := map[string]bool{}
	var isText func(e ast.Expr) bool
	isText = func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.ParenExpr:
			return isText(e.X)
		case *ast.BinaryExpr:
			return e.Op == token.ADD && (isText(e.X) || isText(e.Y))
		case *ast.Ident:
			return stored[e.Name]
		case *ast.CallExpr:
			sel, ok := e.Fun.(*ast.SelectorExpr)
			return ok && sel.Sel.Name == "Error" && len(e.Args) == 0
		}
		return false
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, l := range a.Lhs {
				if id, ok := l.(*ast.Ident); ok && isText(a.Rhs[i]) {
					stored[id.Name] = true
				}
			}
		}
		return true
	})
	var out []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if reads(n.Fun) && slices.ContainsFunc(n.Args, isText) {
				out = append(out, n)
			}
		case *ast.BinaryExpr:
			// An error itself, such as a future's, is compared with nil, and a text with "" if
			// there may be none.
			if (n.Op == token.EQL || n.Op == token.NEQ) && !isNone(n.X) && !isNone(n.Y) && (isText(n.X) || isText(n.Y)) {
				out = append(out, n)
			}
		case *ast.SwitchStmt:
			if n.Tag != nil && isText(n.Tag) {
				out = append(out, n)
			}
		case *ast.SliceExpr:
			if isText(n.X) {
				out = append(out, n)
			}
		}
		return true
	})
	return out
}

// reads reports whether a function takes a text apart.
func reads(f ast.Expr) bool {
	sel, ok := f.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && slices.Contains(readers, id.Name) || slices.Contains(scanners, sel.Sel.Name) || slices.Contains(matchers, sel.Sel.Name)
}

// isNone reports whether an expression is nil or the empty text.
func isNone(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "nil"
	case *ast.BasicLit:
		return e.Value == `""`
	}
	return false
}

// TestErrorTextsAreSeen shows what the check accepts and what it refuses.
func TestErrorTextsAreSeen(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]int{
		`if strings.Contains(err.Error(), "x") {}`:                              1,
		`if err.Error() == "x" {}`:                                              1,
		`text := err.Error(); return strings.Cut(text, ":")`:                    1,
		`text := "a: " + err.Error(); if ok { return text[3:] }`:                1,
		`if found.MatchString(err.Error()) {}`:                                  1,
		`fmt.Sscanf(err.Error(), "line %d", &n)`:                                1,
		`switch err.Error() { case "x": }`:                                      1,
		`if err := future.Error(); err != nil {}`:                               0,
		`fault := ""; if err != nil { fault = err.Error() }; if fault == "" {}`: 0,
		`log.Error("x"); return strings.Cut(name, ":")`:                         0,
		`return fmt.Errorf("%s", err.Error())`:                                  0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() {"+code+"}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(errorTexts(f.Decls[0].(*ast.FuncDecl).Body)); got != want {
			t.Errorf("%s: %d places, want %d", code, got, want)
		}
	}
}
