// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	testName  = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	bugNumber = regexp.MustCompile(`\b[12]\d{6}\b`)
	bugTest   = regexp.MustCompile(`^TestBug(\d+)$`)
)

// bugs are those of the former implementation, by the numbers of its trackers, that
// documents have tables of.
var bugs = map[string][]string{
	"docs/pools.md": {
		"1854928", "1963677", "1963678", "1882083", "1892388", "1894212", "1916544", "1982478", "1945680", "1863212", "1899182",
		"1951443", "1856109", "1864327", "1951425", "1978701", "1904040", "1956767", "1728996",
	},
	"docs/services.md": {"1947809", "1923605", "1930220", "1939512", "1978112", "1960311", "1980957", "2019980", "2028307"},
}

// The documents name tests for each bug, and all of these are there.
func TestBugsHaveTheirTests(t *testing.T) {
	t.Chdir(root)
	tests, told := testsOfTree(t), map[string]bool{}
	for doc, numbers := range bugs {
		_, table, found := strings.Cut(read(t, doc), "\n## Bugs of the former implementation")
		if !found {
			t.Fatalf("%s has no table of bugs", doc)
		}
		toldOf(t, table, tests, told)
		for _, number := range numbers {
			if !told[number] {
				t.Errorf("%s names no test for bug %s", doc, number)
			}
		}
	}
	for name := range tests {
		if m := bugTest.FindStringSubmatch(name); m != nil && !told[m[1]] {
			t.Errorf("no document names %s", name)
		}
	}
}

// toldOf puts the numbers of bugs in a table into told, and checks that the tests
// that it names are there.
func toldOf(t *testing.T, table string, tests, told map[string]bool) {
	t.Helper()
	for _, row := range strings.Split(table, "\n") {
		if !strings.HasPrefix(row, "| ") || strings.HasPrefix(row, "| bug |") {
			continue
		}
		names := testName.FindAllStringSubmatch(row, -1)
		if len(names) == 0 {
			t.Errorf("no test is named in %q", row)
		}
		for _, m := range names {
			if !tests[m[1]] {
				t.Errorf("%s, named for %q, is not there", m[1], strings.TrimSpace(strings.Split(row, "|")[1]))
			}
		}
		for _, number := range bugNumber.FindAllString(row, -1) {
			told[number] = true
		}
	}
}

// testsOfTree returns the names of all tests of the module.
func testsOfTree(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			tests[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
