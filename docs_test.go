// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kuryr_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// docs/api.md names every field that there is.
func TestDocsNameEveryFieldOfTheAPI(t *testing.T) {
	doc := read(t, "docs/api.md")
	files, err := filepath.Glob("config/crd/openstack.org_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("definitions in config/crd: %v, %v", files, err)
	}
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal([]byte(read(t, file)), &crd); err != nil {
			t.Fatal(err)
		}
		properties := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
		for _, part := range []string{"spec", "status"} {
			for field := range properties[part].Properties {
				if !strings.Contains(doc, "`"+part+"."+field) {
					t.Errorf("docs/api.md does not name %s.%s of %s", part, field, crd.Spec.Names.Kind)
				}
			}
		}
	}
}

// docs/configuration.md has a row for every field of the sample.
func TestDocsNameEveryFieldOfTheConfiguration(t *testing.T) {
	doc := read(t, "docs/configuration.md")
	var sample map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "config/base/kuryr.yaml")), &sample); err != nil {
		t.Fatal(err)
	}
	var rows func(path string, fields map[string]any)
	rows = func(path string, fields map[string]any) {
		for name, value := range fields {
			if below, ok := value.(map[string]any); ok {
				rows(path+name+".", below)
			} else if !strings.Contains(doc, "\n| `"+path+name+"` |") {
				t.Errorf("docs/configuration.md has no row for %s%s", path, name)
			}
		}
	}
	rows("", sample)
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// Links between the documents lead to files that are there.
func TestLinksOfDocs(t *testing.T) {
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	roots, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range append(docs, roots...) {
		for _, m := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, m[1])
			}
		}
	}
}

var makeTarget = regexp.MustCompile("(?m)(?:^    |`)make ([a-z0-9-]+)")

// Targets of make that documents tell of exist.
func TestMakeTargetsOfDocs(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, doc := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/configuration.md"} {
		for _, m := range makeTarget.FindAllStringSubmatch(read(t, doc), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s tells of make %s, which is no target", doc, m[1])
			}
		}
	}
}
