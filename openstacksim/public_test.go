// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstacksim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What is exported names no type of a package in internal/: a caller of another
// module could neither write it nor read of it in go doc.
func TestExportedNamesNoInternalTypes(t *testing.T) {
	for _, dir := range []string{".", "dial"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no Go files in %s: %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, use := range internalUses(file) {
				t.Errorf("%s exports %s", name, use)
			}
		}
	}
}

func TestInternalTypesAreSeen(t *testing.T) {
	const source = `package p
import (
	"net/http"
	"example.com/m/internal/a"
	named "example.com/m/internal/b"
)
const C = a.C
var V named.T
type S struct { F []a.T; g a.T; H http.Header }
type I interface { M(map[string]*named.T) }
type Alias = a.T
type hidden struct { F a.T }
func F(func(a.T)) {}
func (s *S) M() (*a.T, error) { return nil, nil }
func (s *S) m() *a.T { return nil }
func (hidden) M() a.T { return a.T{} }
func G(r *http.Request) { a.Do() }
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(internalUses(file), ", "); got != "C: a.C, V: named.T, S: a.T, I: named.T, Alias: a.T, F: a.T, M: a.T" {
		t.Errorf("got %s", got)
	}
}

// internalUses are the names of packages in internal/ that exported declarations
// show, each after what shows it.
func internalUses(file *ast.File) (uses []string) {
	internal := map[string]bool{}
	for _, i := range file.Imports {
		of, _ := strconv.Unquote(i.Path.Value)
		if strings.Contains(of+"/", "/internal/") {
			name := path.Base(of)
			if i.Name != nil {
				name = i.Name.Name
			}
			internal[name] = true
		}
	}
	ast.FileExports(file) // leaves exported declarations and fields, and no bodies to look at
	show := func(name string, node ast.Node) {
		ast.Inspect(node, func(n ast.Node) bool {
			if s, is := n.(*ast.SelectorExpr); is {
				if x, is := s.X.(*ast.Ident); is && internal[x.Name] {
					uses = append(uses, name+": "+x.Name+"."+s.Sel.Name)
				}
			}
			return true
		})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ofExported(d.Recv.List[0].Type) {
				show(d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					show(s.Name.Name, s.Type)
				case *ast.ValueSpec:
					show(s.Names[0].Name, s)
				}
			}
		}
	}
	return uses
}

// ofExported reports whether a receiver's type is exported.
func ofExported(receiver ast.Expr) bool {
	if star, is := receiver.(*ast.StarExpr); is {
		receiver = star.X
	}
	name, is := receiver.(*ast.Ident)
	return is && name.IsExported()
}
