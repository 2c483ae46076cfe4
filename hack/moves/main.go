// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Command moves prints what moving code must not change: a hash of every function
// body, and the strings that leave the process. Two trees differ by moves alone if
// it prints the same for both:
//
//	go run ./hack/moves bodies internal cmd >after; git stash; ...
//	go run ./hack/moves words internal api >after
//
// A body is hashed with the qualifiers of packages taken off and the first letter of
// each name in lower case, because a move exports names and qualifies them.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: moves bodies|words DIR...")
		os.Exit(2)
	}
	var lines []string
	for _, dir := range os.Args[2:] {
		found, err := walk(dir, os.Args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		lines = append(lines, found...)
	}
	slices.Sort(lines)
	for _, l := range lines {
		fmt.Println(l)
	}
}

func walk(dir, what string) (lines []string, err error) {
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if what == "words" {
			lines = append(lines, words(f)...)
		} else {
			lines = append(lines, bodies(f)...)
		}
		return nil
	})
	return lines, err
}

// words returns the string literals of a file but for its imports: names of metrics,
// reasons, annotations, messages.
func words(f *ast.File) (lines []string) {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				lines = append(lines, lit.Value)
			}
			return true
		})
	}
	return lines
}

func bodies(f *ast.File) (lines []string) {
	imported := map[string]bool{f.Name.Name: true}
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		imported[path.Base(p)] = true
		if i.Name != nil {
			imported[i.Name.Name] = true
		}
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		fn.Doc = nil
		name := canonical(fn.Name.Name)
		fn.Body = unqualify(fn.Body, imported).(*ast.BlockStmt)
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				n.Name = canonical(n.Name)
			case *ast.CompositeLit: // that of a type of another package has to be keyed
				for i, e := range n.Elts {
					if kv, ok := e.(*ast.KeyValueExpr); ok && isRef(n) {
						n.Elts[i] = kv.Value
					}
				}
			}
			return true
		})
		var b bytes.Buffer
		if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&b, token.NewFileSet(), fn.Body); err != nil {
			panic(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		lines = append(lines, fmt.Sprintf("%x %s", sha256.Sum256([]byte(text)), name))
	}
	return lines
}

// renames are names that a move changed, by what they were before.
var renames = map[string]string{
	"explain":                    "explainBalancer",
	"grantIndex":                 "balancerGrants",
	"hasFinalizer":               "hasBalancerFinalizer",
	"iD":                         "id",
	"join":                       "joinGroups",
	"keptSourceRangesAnnotation": "keptAnnotation",
	"kindLoadBalancer":           "balancerKind",
	"kindPool":                   "ownerKind",
	"memberGroups":               "granted",
	"memberGroupsAnnotation":     "grantsAnnotation",
	"members":                    "grants",
	"memories":                   "balancerMemories",
	"memory":                     "balancerMemory",
	"most":                       "mostGroups",
	"newWaiter":                  "newBalancerWait",
	"ownerOf":                    "balancerOwner",
	"owners":                     "owners",
	"queue":                      "waker",
	"quotaError":                 "fullError",
	"reason":                     "reasonOf",
	"reasonBackendError":         "reasonError",
	"reasonFillRefused":          "reasonFill",
	"reasonFloatingIPNotUsable":  "reasonAddress",
	"reasonFloatingIPWithheld":   "reasonWithheld",
	"reasonFor":                  "balancerReason",
	"reasonHostUnusable":         "reasonHost",
	"reasonLoadBalancerBusy":     "reasonStuck",
	"reasonLoadBalancerInError":  "reasonBroken",
	"reasonNoLoadBalancing":      "reasonNoService",
	"reasonNotChanged":           "reasonKept",
	"reasonNotSupported":         "reasonUnsupported",
	"reasonParentPortUnknown":    "reasonParent",
	"reasonPortMissing":          "reasonMissing",
	"reasonSecurityGroupLeft":    "reasonGroupLeft",
	"reasonSeveralProblems":      "reasonSeveral",
	"reasonSubnetExhausted":      "reasonExhausted",
	"ref":                        "poolRequest",
	"servesServices":             "takes",
	"serviceWorkers":             "balancerWorkers",
	"setMemberGroups":            "grantTo",
	"waiter":                     "balancerWait",
	"workers":                    "balancerWorkers",
}

// canonical returns the same for the names of a thing before and after the moves.
func canonical(name string) string {
	name = lower(name)
	if before, ok := renames[name]; ok {
		return before
	}
	return name
}

func isRef(n *ast.CompositeLit) bool {
	id, ok := n.Type.(*ast.Ident)
	return ok && canonical(id.Name) == canonical("ref")
}

// lower puts the first letter of a name in lower case.
func lower(name string) string {
	r := []rune(name)
	r[0] = unicode.ToLower(r[0])
	return string(r)
}
