package house

import (
	"fmt"
	"go/ast"
	"path"
	"strings"
	"testing"
)

// The limits. Lines are those of files that people write, without tests.
const (
	packageLines = 5000
	fileLines    = 600
	agentLines   = 800 // of the package agent, which is wiring
	typeMethods  = 40
	structFields = 25
)

func TestSizesOfPackagesAndFiles(t *testing.T) {
	t.Parallel()
	var found []violation
	total := map[string]int{}
	for _, s := range sources() {
		if !s.code() {
			continue
		}
		lines := strings.Count(s.text, "\n")
		total[s.folder()] += lines
		if lines > fileLines {
			found = append(found, violation{s.path, fmt.Sprintf("the file has %d lines; at most %d are allowed", lines, fileLines)})
		}
	}
	for folder, lines := range total {
		most := packageLines
		if folder == "agent" {
			most = agentLines
		}
		if lines > most {
			found = append(found, violation{folder, fmt.Sprintf("the package has %d lines; at most %d are allowed", lines, most)})
		}
	}
	report(t, found, allowedLines)
}

func TestSizesOfTypes(t *testing.T) {
	t.Parallel()
	var found []violation
	methods := map[string]int{}
	for _, s := range sources() {
		if !s.code() {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[path.Join(s.folder(), receiver(d))]++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					spec, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					name := path.Join(s.folder(), spec.Name.Name)
					switch typ := spec.Type.(type) {
					case *ast.InterfaceType:
						methods[name] += typ.Methods.NumFields()
					case *ast.StructType:
						if n := typ.Fields.NumFields(); n > structFields && !wire(s.folder()) {
							found = append(found, violation{name, fmt.Sprintf("the struct has %d fields; at most %d are allowed", n, structFields)})
						}
					}
				}
			}
		}
	}
	for name, n := range methods {
		if n > typeMethods {
			found = append(found, violation{name, fmt.Sprintf("the type has %d methods; at most %d are allowed", n, typeMethods)})
		}
	}
	report(t, found, allowedTypes)
}

// wire reports whether the structs of a folder are shapes of files and messages, whose
// fields others decide.
func wire(folder string) bool {
	return folder == "rpc/api" || folder == "engine/model" || within(folder, "rpc/proto")
}

// receiver returns the name of the type that a method belongs to.
func receiver(d *ast.FuncDecl) string {
	typ := d.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name
		default:
			return "?"
		}
	}
}
