// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"

	"golang.org/x/tools/go/ast/astutil"
)

// unqualify replaces pkg.Name by Name below n for all imported packages.
func unqualify(n ast.Node, imported map[string]bool) ast.Node {
	return astutil.Apply(n, func(c *astutil.Cursor) bool {
		sel, ok := c.Node().(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && imported[x.Name] {
			c.Replace(ast.NewIdent(sel.Sel.Name))
		}
		return true
	}, nil)
}
