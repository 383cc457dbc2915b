package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"
)

// idsHome is the file that forms and splits the ids of clusters, nodes, operations and tasks.
const idsHome = "engine/model/id.go"

// cutters are the functions of package strings that take a text apart.
var cutters = map[string]bool{
	"Cut": true, "CutPrefix": true, "CutSuffix": true, "Index": true, "IndexByte": true, "LastIndex": true, "LastIndexByte": true,
	"Split": true, "SplitN": true, "TrimPrefix": true, "TrimSuffix": true, "SplitAfter": true,
}

// idName matches the last name of an expression that holds the id of a cluster, node, operation, task
// or placement.
var idName = regexp.MustCompile(`(^|\.)(?i:(cluster|node|operation|op|task|placement)(id)?)$|(^|\.)(ID|Id)$`)

// digits matches a format of the numbers in ids.
var digits = regexp.MustCompile(`%08d|-%03d`)

// No code but engine/model/id.go forms an id from its parts, or takes an id apart.
func TestIDsHaveOneHome(t *testing.T) {
	t.Parallel()
	var found []violation
	for _, s := range sources() {
		if !s.code() || s.path == idsHome || forTests(s.folder()) != "" {
			continue
		}
		for _, fault := range idFaults(s.file) {
			found = append(found, violation{s.folder() + ": " + fault.what, fmt.Sprintf("%s, line %d: only %s forms and splits ids",
				s.path, s.line(fault.at), idsHome)})
		}
	}
	report(t, found, allowedIDs)
}

// idFault is an expression that forms an id or takes one apart.
type idFault struct {
	at   ast.Node
	what string
}

func idFaults(file ast.Node) []idFault {
	var out []idFault
	add := func(n ast.Expr) { out = append(out, idFault{n, types.ExprString(n)}) }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING && digits.MatchString(n.Value) {
				add(n)
			}
		case *ast.BinaryExpr:
			// An id is followed by a separator: x.ID + "-" + y parses as (x.ID + "-") + y.
			if n.Op == token.ADD && separator(n.Y, true) && holdsID(lastTerm(n.X)) {
				add(n)
				return false
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && types.ExprString(f.X) == "strings" && cutters[f.Sel.Name] && len(n.Args) > 1 &&
				separator(n.Args[1], false) && holdsID(n.Args[0]) {
				add(n)
			}
		}
		return true
	})
	return out
}

// lastTerm returns the last term of a sum.
func lastTerm(x ast.Expr) ast.Expr {
	if sum, ok := x.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		return sum.Y
	}
	return x
}

// separator reports whether an expression is a text or character that is, or with prefix begins with,
// a separator of ids.
func separator(x ast.Expr, prefix bool) bool {
	lit, ok := x.(*ast.BasicLit)
	if !ok || len(lit.Value) < 3 {
		return false
	}
	text := lit.Value[1 : len(lit.Value)-1]
	return text == "-" || text == "/" || prefix && (strings.HasPrefix(text, "-") || strings.HasPrefix(text, "/"))
}

// holdsID reports whether an expression holds an id, as far as its name shows.
func holdsID(x ast.Expr) bool {
	if call, ok := x.(*ast.CallExpr); ok && len(call.Args) == 1 && types.ExprString(call.Fun) == "string" {
		x = call.Args[0]
	}
	switch x.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return idName.MatchString(types.ExprString(x))
	}
	return false
}

// The check of ids refuses some ways to form or split an id, and lets others pass.
func TestIDFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`fmt.Sprintf("%08d", n)`:           true,
		`fmt.Sprintf("%s-%03d", c, n)`:     true,
		`n.ID + "/" + service`:             true,
		`check + "/" + n.ID + "/machine"`:  true,
		`string(op) + "/" + v`:             true,
		`cl.ID + "-1000"`:                  true,
		`strings.Cut(t.Id, "/")`:           true,
		`strings.LastIndexByte(node,'-')`:  true,
		`strings.Split(string(id.Op),"-")`: true,
		`n.Service + "/" + name`:           false,
		`"/v1/runs/" + r.ID`:               false,
		`"operation " + op.ID + " ended"`:  false,
		`strings.Cut(name, "/")`:           false,
		`strings.Cut(n.ID, "=")`:           false,
	} {
		if got := len(idFaults(expression(t, text))) > 0; got != want {
			t.Errorf("%s: refused is %v, want %v", text, got, want)
		}
	}
}

func expression(t *testing.T, text string) ast.Expr {
	t.Helper()
	x, err := parser.ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
