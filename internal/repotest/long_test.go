// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What -short cuts short, as in `make test`, runs at length with `make long`: a test is
// cut short nowhere for good. Those with -short's meaning of their own are on the real
// OpenStack (…Real and test/e2e, by hack/e2e.sh).
func TestWhatIsCutShortRunsAtLength(t *testing.T) {
	t.Chdir(root)
	makefile := read(t, "Makefile")
	names := regexp.MustCompile(strings.ReplaceAll(variable(t, makefile, "LONG"), "$$", "$"))
	places := strings.Fields(strings.ReplaceAll(variable(t, makefile, "LONG_IN"), "$(SIM)", "./openstacksim"))
	cut := cutShort(t)
	for dir, tests := range cut {
		for _, name := range tests {
			if strings.HasSuffix(name, "Real") {
				continue
			}
			if !names.MatchString(name) {
				t.Errorf("%s of %s is cut short by -short, and LONG of the Makefile does not name it", name, dir)
			}
			if !within(dir, places) {
				t.Errorf("%s of %s is cut short by -short, and LONG_IN of the Makefile does not name the folder", name, dir)
			}
		}
	}
	for _, name := range strings.Split(names.String(), "|") {
		if !matches(cut, regexp.MustCompile(name)) {
			t.Errorf("LONG of the Makefile names %s, and -short cuts no such test short", name)
		}
	}
}

func matches(cut map[string][]string, name *regexp.Regexp) bool {
	for _, tests := range cut {
		for _, test := range tests {
			if name.MatchString(test) {
				return true
			}
		}
	}
	return false
}

func within(dir string, places []string) bool {
	for _, place := range places {
		if strings.HasPrefix("./"+dir+"/", strings.TrimSuffix(place, "...")) {
			return true
		}
	}
	return false
}

// variable returns what the Makefile sets a variable to.
func variable(t *testing.T, makefile, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + `\s*:= (.*)$`).FindStringSubmatch(makefile)
	if m == nil {
		t.Fatalf("the Makefile does not set %s", name)
	}
	return m[1]
}

// cutShort returns the tests that ask for testing.Short, by their folder: themselves, or
// in what they call there.
func cutShort(t *testing.T) map[string][]string {
	t.Helper()
	uses := map[string]map[string][]string{} // by folder, and function: what it names
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && (path == "test" || path == "hack" || strings.HasPrefix(path, ".") && path != ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		if uses[dir] == nil {
			uses[dir] = map[string][]string{}
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				uses[dir][f.Name.Name] = append(uses[dir][f.Name.Name], calls(f)...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for dir, functions := range uses {
		for name := range functions {
			if strings.HasPrefix(name, "Test") && reaches(functions, name, map[string]bool{}) {
				out[dir] = append(out[dir], name)
			}
		}
	}
	return out
}

// asking is the call that tells whether -short is given.
const asking = "testing.Short"

// calls returns the functions and methods that f calls, by their names, and asking.
func calls(f *ast.FuncDecl) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fun := call.Fun.(type) {
		case *ast.Ident:
			names = append(names, fun.Name)
		case *ast.SelectorExpr:
			names = append(names, fun.Sel.Name)
			if x, ok := fun.X.(*ast.Ident); ok && x.Name+"."+fun.Sel.Name == asking {
				names = append(names, asking)
			}
		}
		return true
	})
	return names
}

func reaches(functions map[string][]string, name string, seen map[string]bool) bool {
	if name == asking {
		return true
	}
	if seen[name] {
		return false
	}
	seen[name] = true
	for _, called := range functions[name] {
		if reaches(functions, called, seen) {
			return true
		}
	}
	return false
}
