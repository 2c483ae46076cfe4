// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// python is Debian's own, which has Debian's packages.
const python = "/usr/bin/python3"

// command is an openstack command that a document or a message tells of.
type command struct {
	at, text string
	whole    bool // not from the middle of a sentence, where what comes last may be left out
}

// Documents and messages tell of no openstack command that the client refuses.
func TestOpenStackCommands(t *testing.T) {
	t.Chdir(root)
	var all []command
	for _, pattern := range []string{"*.md", "docs/*.md", "hack/bed/*.md", "config/*/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("files %s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			all = append(all, commandsOfText(file, read(t, file))...)
		}
	}
	all = append(all, commandsOfCode(t, "cmd", "internal", "hack/demo")...)
	// The number guards the search: what finds nothing refuses nothing.
	if len(all) < 200 {
		t.Errorf("%d openstack commands are found in documents and code, want 200 or more", len(all))
	}
	for _, fault := range refused(t, all) {
		t.Error(fault)
	}
}

// Commands are found wherever documents write them, and the client's word counts.
func TestOpenStackCommandsAreFound(t *testing.T) {
	t.Chdir(root)
	const text = "Text `openstack loadbalancer\nshow ID` and `openstack loadbalancer quota`.\n\n" +
		"    openstack subnet create --network a \\\n        --subnet-range 10.0.0.0/8 b   # why\n" +
		"    for n in $(openstack network list -f value -c ID); do\n\n" +
		"1. Step\n\n       openstack port list | grep x\n\n" +
		"```sh\nopenstack floating ip list >file\n```\n" +
		"| `Down` | `openstack network set --enable` |\n" +
		"| wrong | `openstack loadbalancer list --vip-address 10.96.0.1`, `openstack router shows ID` |\n"
	all := commandsOfText("doc", text)
	var found []string
	for _, c := range all {
		found = append(found, c.at+" "+c.text)
	}
	want := []string{
		"doc:4 openstack subnet create --network a --subnet-range 10.0.0.0/8 b",
		"doc:6 openstack network list -f value -c ID",
		"doc:10 openstack port list",
		"doc:13 openstack floating ip list",
		"doc:1 openstack loadbalancer show ID",
		"doc:2 openstack loadbalancer quota",
		"doc:15 openstack network set --enable",
		"doc:16 openstack loadbalancer list --vip-address 10.96.0.1",
		"doc:16 openstack router shows ID",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("commands of a document (-want +got):\n%s", diff)
	}
	wantRefused := []string{
		"doc:16: `openstack loadbalancer list --vip-address 10.96.0.1`: unrecognized arguments: --vip-address 10.96.0.1",
		"doc:16: `openstack router shows ID`: no such command: router shows ID",
	}
	if diff := cmp.Diff(wantRefused, refused(t, all)); diff != "" {
		t.Errorf("what the client refuses (-want +got):\n%s", diff)
	}
}

// refused asks the installed client's parser, and returns what it says against commands.
func refused(t *testing.T, all []command) (faults []string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), python, "-c", "import openstackclient, octaviaclient").Run(); err != nil {
		t.Skip("SKIPPED: needs Debian's packages python3-openstackclient and python3-octaviaclient; 'make test' as root installs them")
	}
	var lines strings.Builder
	last := []int{0} // the last line of each command
	for _, c := range all {
		n := last[len(last)-1]
		for _, text := range filled(c.text) {
			if !c.whole {
				text = "? " + text
			}
			fmt.Fprintln(&lines, text)
			n++
		}
		last = append(last, n)
	}
	why := refusals(t, lines.String())
	for i, c := range all {
		refused := why[last[i+1]]
		for n := last[i] + 1; n < last[i+1] && refused != ""; n++ {
			refused = why[n]
		}
		if refused != "" {
			faults = append(faults, fmt.Sprintf("%s: `%s`: %s", c.at, c.text, refused))
		}
	}
	return faults
}

// refusals returns what the client's parser says against lines, by their numbers.
func refusals(t *testing.T, lines string) map[int]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "hack/openstack-commands.py")
	cmd.Stdin = strings.NewReader(lines)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s hack/openstack-commands.py: %v", python, err)
	}
	why := map[int]string{}
	for line := range strings.Lines(string(out)) {
		number, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("hack/openstack-commands.py says %q, want a number, a tab and a text", line)
		}
		why[n] = text
	}
	return why
}

var verb = regexp.MustCompile(`%(\[\d+\])?[a-z]`)

// filled returns a command with what its verbs of formatting may become: each a word,
// or nothing, because some stand for an option that is not always there.
func filled(text string) []string {
	at := verb.FindStringIndex(text)
	if at == nil {
		return []string{text}
	}
	var all []string
	for _, rest := range filled(text[at[1]:]) {
		all = append(all, text[:at[0]]+"1"+rest, text[:at[0]]+rest)
	}
	return all
}

var (
	begins = regexp.MustCompile(`(?:^|[\s($;|])(openstack [a-z-].*)`)
	span   = regexp.MustCompile("`([^`]+)`")
	ends   = regexp.MustCompile(`[|;)&<>]| #`)
)

// commandsOfText returns the commands in a document's blocks of code, and then those in
// its sentences.
func commandsOfText(file, text string) (all []command) {
	lines := strings.Split(text, "\n")
	fenced := false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced, lines[i] = !fenced, ""
			continue
		}
		comment := strings.HasPrefix(strings.TrimSpace(line), "# ") && strings.HasSuffix(file, ".yaml")
		if !fenced && !comment && (!strings.HasPrefix(line, "    ") || strings.Contains(line, "`")) {
			continue
		}
		at := i
		lines[i] = ""
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSpace(strings.TrimSuffix(line, `\`)) + " " + strings.TrimSpace(lines[i])
			lines[i] = ""
		}
		for m := begins.FindStringSubmatch(line); m != nil; m = begins.FindStringSubmatch(line) {
			words, rest := m[1], ""
			if end := ends.FindStringIndex(words); end != nil {
				words, rest = words[:end[0]], words[end[1]:]
			}
			all = append(all, command{fmt.Sprintf("%s:%d", file, at+1), strings.TrimSpace(words), true})
			line = rest
		}
	}
	begun := 0
	for _, paragraph := range strings.SplitAfter(strings.Join(lines, "\n"), "\n\n") {
		for _, m := range span.FindAllStringSubmatchIndex(paragraph, -1) {
			words := strings.Join(strings.Fields(paragraph[m[2]:m[3]]), " ")
			if c := begins.FindStringSubmatch(words); c != nil {
				words, _, _ = strings.Cut(c[1], " | ")
				all = append(all, command{fmt.Sprintf("%s:%d", file, begun+strings.Count(paragraph[:m[0]], "\n")+1), words, false})
			}
		}
		begun += strings.Count(paragraph, "\n")
	}
	return all
}

// commandsOfCode returns the commands in the strings of a program, with %s for what is
// known only when it runs.
func commandsOfCode(t *testing.T, dirs ...string) (all []command) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, is := n.(ast.Expr)
				if !is {
					return true
				}
				text, is := textOf(e)
				if !is {
					return true
				}
				for _, words := range commandsOfMessage(text) {
					all = append(all, command{fmt.Sprint(set.Position(e.Pos())), words, text == words})
				}
				return false
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// textOf returns the text of a string, or of several that are joined by +.
func textOf(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, a := textOf(e.X)
		right, b := textOf(e.Y)
		if e.Op != token.ADD || !a && !b {
			return "", false
		}
		if !a {
			left = "%s"
		}
		if !b {
			right = "%s"
		}
		return left + right, true
	}
	return "", false
}

// commandsOfMessage returns the commands in a text: one that is the whole text but for
// a comment, and others to their closing quote or bracket, or to the end of the clause.
func commandsOfMessage(text string) (all []string) {
	if strings.HasPrefix(text, "openstack ") {
		words, _, _ := strings.Cut(text, " #")
		return []string{words}
	}
	for at := strings.Index(text, "openstack "); at >= 0; at = strings.Index(text, "openstack ") {
		before, rest := text[at-1], text[at:]
		end := -1
		switch before {
		case '\'', '`':
			end = strings.IndexByte(rest, before)
		case '(':
			end = strings.IndexAny(rest, ");")
		case ' ':
			end = strings.IndexAny(rest, ",;:.")
		}
		if end < 0 {
			end = len(rest)
		}
		// A command whose name is put together is known only when it runs.
		if before != '-' && !strings.HasPrefix(rest, "openstack command") && !strings.HasPrefix(rest, "openstack %") {
			all = append(all, rest[:end])
		}
		text = rest[end:]
	}
	return all
}
