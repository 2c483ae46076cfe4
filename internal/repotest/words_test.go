// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// decides are the folders whose code must not decide by words: neither by the message of
// a condition nor by the text of an error. Backends are none of them: they alone know the
// words of a cloud, and make errors of package sdn of them.
var decides = []string{"internal/controller", "internal/plan", "internal/sdn", "internal/daemon", "internal/adopt", "cmd"}

// hands is what a condition's message may be given to: whoever shows it to a person.
var hands = []string{"keptFinding", "event", "Eventf", "row"}

// TestNoDecisionByWords: production code compares and searches no condition's message and
// no error's text. Another wording would change what Kuryr does.
func TestNoDecisionByWords(t *testing.T) {
	t.Chdir(root)
	for _, dir := range decides {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if d.IsDir() && d.Name() == "sdntest" {
				return fs.SkipDir // it tests backends
			}
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			conditions := strings.HasPrefix(path, "internal/controller/") || strings.HasPrefix(path, "internal/plan/")
			for _, at := range wordsIn(file, conditions) {
				t.Errorf("%s: a decision by words: say it by a type, a reason or a field of the status", set.Position(at))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestWordsAreFound shows that the check finds what it is to find.
func TestWordsAreFound(t *testing.T) {
	t.Chdir(root)
	for code, found := range map[string]bool{
		`if c.Message == "ready" {}`:                               true,
		`switch c.Message { case "ready": }`:                       true,
		`said := c.Message; _ = said`:                              true,
		`_ = strings.Contains(c.Message, "ready")`:                 true,
		`event(c.Reason, c.Message)`:                               false,
		`c.Message = "ready"`:                                      false,
		`if err.Error() == "gone" {}`:                              true,
		`if err.Error() != told {}`:                                false,
		`_ = strings.HasPrefix(err.Error(), "gone")`:               true,
		`text := err.Error(); _, _, _ = strings.Cut(text, "gone")`: true,
		`text := err.Error(); event("reason", text+". Wait")`:      false,
		`event("reason", err.Error())`:                             false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", fmt.Sprintf("package p\nfunc f() {\n%s\n}", code), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(wordsIn(file, true)) > 0; got != found {
			t.Errorf("%s: found = %t, want %t", code, got, found)
		}
	}
}

// wordsIn returns where a file decides by the text of an error and, if it may have
// conditions, by the message of one.
func wordsIn(file *ast.File, conditions bool) []token.Pos {
	w := words{texts: map[string]bool{}, conditions: conditions}
	for _, decl := range file.Decls {
		if f, is := decl.(*ast.FuncDecl); is && f.Body != nil {
			clear(w.texts)
			ast.Inspect(f.Body, w.node)
		}
	}
	return w.found
}

type words struct {
	texts      map[string]bool // variables of the function that hold an error's text
	shown      []ast.Expr      // messages that are given to who shows them, or set
	conditions bool
	found      []token.Pos
}

func (w *words) node(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		w.shown = append(w.shown, n.Lhs...)
		for i, from := range n.Rhs {
			if name, is := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); is && isErrorText(from) {
				w.texts[name.Name] = true
			}
		}
	case *ast.CallExpr:
		w.call(n)
	case *ast.BinaryExpr:
		if (n.Op == token.EQL || n.Op == token.NEQ) && (isWords(n.X) || isWords(n.Y)) {
			w.text(n.X, n.Y) // to compare it with that of another error is to say a thing once
		}
	case *ast.SwitchStmt:
		if n.Tag != nil {
			w.text(n.Tag)
		}
	case *ast.SelectorExpr:
		if w.conditions && n.Sel.Name == "Message" && !slices.Contains(w.shown, ast.Expr(n)) {
			w.found = append(w.found, n.Pos())
		}
	}
	return true
}

// call looks at the arguments of a call: what searches a text, and what shows a message.
func (w *words) call(call *ast.CallExpr) {
	name, of := "", ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		name = f.Sel.Name
		if x, is := f.X.(*ast.Ident); is {
			of = x.Name
		}
	}
	if slices.Contains(hands, name) {
		w.shown = append(w.shown, call.Args...)
	}
	shortens := slices.Contains([]string{"ToValidUTF8", "TrimSpace", "ReplaceAll", "Join"}, name)
	if of == "strings" && !shortens || strings.HasPrefix(name, "Match") || strings.HasPrefix(name, "Find") {
		w.text(call.Args...)
	}
}

// text notes those expressions that are an error's text.
func (w *words) text(all ...ast.Expr) {
	for _, e := range all {
		name, is := e.(*ast.Ident)
		if isErrorText(e) || is && w.texts[name.Name] {
			w.found = append(w.found, e.Pos())
		}
	}
}

// isWords reports whether an expression is a text that is written there.
func isWords(e ast.Expr) bool {
	lit, is := e.(*ast.BasicLit)
	return is && lit.Kind == token.STRING && lit.Value != `""`
}

// isErrorText reports whether an expression is a call of Error without arguments.
func isErrorText(e ast.Expr) bool {
	call, is := e.(*ast.CallExpr)
	if !is || len(call.Args) > 0 {
		return false
	}
	f, is := call.Fun.(*ast.SelectorExpr)
	return is && f.Sel.Name == "Error"
}
