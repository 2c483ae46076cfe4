// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
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
	t.Chdir(root)
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
	t.Chdir(root)
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

// optionsOf returns the options of an old kuryr.conf that the first column of a table's row
// has: `[section] option` and further ones of the section, or `[section]` for all of it.
func optionsOf(cell string) (all []string) {
	section := ""
	for _, m := range span.FindAllStringSubmatch(cell, -1) {
		option := m[1]
		if strings.HasPrefix(option, "[") {
			section, option, _ = strings.Cut(option, " ")
		}
		all = append(all, strings.TrimSpace(section+" "+option))
	}
	return all
}

// docs/migrating.md says of each option of the old configuration what becomes of it.
func TestDocsNameEveryOptionOfTheOldConfiguration(t *testing.T) {
	t.Chdir(root)
	_, table, found := strings.Cut(read(t, "docs/migrating.md"), "\n| `kuryr.conf` |")
	if !found {
		t.Fatal("docs/migrating.md has no table of kuryr.conf")
	}
	told := map[string]bool{}
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		for _, option := range optionsOf(strings.Split(row+"||", "|")[1]) {
			told[option] = true
		}
	}
	options, section := 0, ""
	for line := range strings.Lines(read(t, "internal/repotest/testdata/kuryr.conf.options")) {
		for i, word := range strings.Fields(line) {
			switch {
			case word == "#":
				section = ""
			case i == 0:
				section = word
			case section != "":
				options++
				if !told[section] && !told[section+" "+word] {
					t.Errorf("docs/migrating.md has no row for %s %s of kuryr.conf", section, word)
				}
			}
		}
	}
	if options < 100 {
		t.Errorf("internal/repotest/testdata/kuryr.conf.options has %d options, want 100 or more", options)
	}
}

// section returns what a document has between a line that begins with from, and to.
func section(t *testing.T, doc, from, to string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, doc), "\n"+from)
	text, _, ended := strings.Cut(text, to)
	if !found || !ended {
		t.Fatalf("%s has no text from %q to %q", doc, from, to)
	}
	return text
}

// Who goes back to the version without Services removes what it refuses.
func TestDocsOfGoingBackNameEveryNewSection(t *testing.T) {
	t.Chdir(root)
	text := section(t, "docs/services-howto.md", "**Going back**", "\nGoing back to a version **with**")
	var sample map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "config/base/kuryr.yaml")), &sample); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"apiVersion", "kind", "clusterID", "neutron", "pods", "nodes", "pools", "orphans", "node"} {
		delete(sample, old)
	}
	sample["nodes[].subnetIDs"] = nil
	delete(sample, "services") // step 1 has removed it
	for name := range sample {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/services-howto.md, Going back, does not name %s, which the old version refuses", name)
		}
	}
}

// Before the controller is deleted, nothing with one of its finalizers is left.
func TestDocsOfRemovalNameEveryKindWithAFinalizer(t *testing.T) {
	t.Chdir(root)
	text := section(t, "docs/configuration.md", "## Taking it away", "**Files on each node**")
	for finalizer, kind := range map[string]string{
		v1.PortFinalizer: "kuryrports", v1.NetworkFinalizer: "kuryrnetworks", v1.LoadBalancerFinalizer: "kuryrloadbalancers",
	} {
		if !regexp.MustCompile(`kubectl get [a-z,]*\b` + kind + `\b[a-z,]* -A\n\n   Afterwards`).MatchString(text) {
			t.Errorf("docs/configuration.md, Taking it away: the last look does not show %s, which %s keeps", kind, finalizer)
		}
	}
}

// The documents agree on what a running controller follows.
func TestDocsAgreeOnWhatIsFollowed(t *testing.T) {
	t.Chdir(root)
	named := regexp.MustCompile("`?([a-z]+)`?(?:,| and| while)")
	var want map[string]bool
	for _, of := range []struct{ doc, from, to string }{
		{"docs/configuration.md", "**What is followed while running.** The controller follows", "A changed"},
		{"docs/decisions.md", "| The controller follows changes of", "|"},
		{"config/base/kuryr.yaml", "# The controller takes changes of", "it runs"},
	} {
		text := strings.NewReplacer("\n", " ", "#", "", "`.", "`,").Replace(section(t, of.doc, of.from, of.to))
		got := map[string]bool{}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			got[m[1]] = true
		}
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) < 8 {
			t.Errorf("%s on what the controller follows (-docs/configuration.md +it):\n%s", of.doc, diff)
		}
	}
}

// docs/preflight.md names the findings that a first start waits for, and no others.
func TestDocsHolding(t *testing.T) {
	t.Chdir(root)
	_, text, _ := strings.Cut(read(t, "docs/preflight.md"), "## A first start")
	_, text, _ = strings.Cut(text, ":\n\n")
	text, _, _ = strings.Cut(text, ".\n")
	var named []string
	for _, name := range strings.Split(text, ",") {
		named = append(named, strings.Trim(name, "` \n"))
	}
	if diff := cmp.Diff(preflight.Holding(), named); diff != "" {
		t.Errorf("docs/preflight.md (-findings of the code +list):\n%s", diff)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// Links between the documents lead to files that are there.
func TestLinksOfDocs(t *testing.T) {
	t.Chdir(root)
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
	t.Chdir(root)
	makefile := read(t, "Makefile")
	for _, doc := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/configuration.md"} {
		for _, m := range makeTarget.FindAllStringSubmatch(read(t, doc), -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s tells of make %s, which is no target", doc, m[1])
			}
		}
	}
}

// deployment is a command of a document that deploys: a copy, or what kubectl
// applies or deletes.
var deployment = regexp.MustCompile("(?m)(?:^    |`)((cp -r config/\\S+|kubectl (?:apply|delete) [^`\n#]*-k) ([^\\s`]+))")

// deploy runs a document's commands on a copy of config, with what kubectl would
// apply printed instead, and returns that and the copy's overlay.
func deploy(t *testing.T, doc string) (rendered []string, dir string) {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kubectl in the folder that KUBEBUILDER_ASSETS names; 'make test' builds it and says so")
	}
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "config"), os.DirFS("config")); err != nil {
		t.Fatal(err)
	}
	// A cluster of who runs the test is not what the commands meet.
	if err := os.RemoveAll(filepath.Join(root, "config/mycluster")); err != nil {
		t.Fatal(err)
	}
	for _, m := range deployment.FindAllStringSubmatch(read(t, doc), -1) {
		if strings.HasPrefix(m[1], "cp ") {
			cp := exec.CommandContext(t.Context(), "cp", strings.Fields(m[1])[1:]...)
			cp.Dir = root
			if out, err := cp.CombinedOutput(); err != nil {
				t.Fatalf("%s says: %s: %v\n%s", doc, m[1], err, out)
			}
			if dir = m[3]; !strings.Contains(read(t, ".gitignore"), "\n/"+dir+"/\n") {
				t.Errorf("%s has a password put into %s, which Git does not ignore", doc, dir)
			}
			continue
		}
		rendered = append(rendered, kustomize(t, filepath.Join(root, m[3])))
	}
	return rendered, filepath.Join(root, dir)
}

func kustomize(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", dir)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v\n%s", dir, err, &complaint)
	}
	return string(out)
}

// The commands of the documents deploy Kuryr, as they stand there.
func TestDeploymentOfDocs(t *testing.T) {
	t.Chdir(root)
	for doc, want := range map[string]int{"README.md": 1, "docs/configuration.md": 2} {
		rendered, _ := deploy(t, doc)
		if len(rendered) != want {
			t.Errorf("%s tells of %d times that kubectl gets manifests, want %d", doc, len(rendered), want)
		}
		for _, text := range rendered {
			for _, part := range []string{"kind: CustomResourceDefinition", "name: kuryr-controller", "name: kuryr-daemon", "name: kuryr-cloud", "cloud: mycloud"} {
				if !strings.Contains(text, part) {
					t.Errorf("what %s deploys has no %s", doc, part)
				}
			}
		}
	}
}

var patches = regexp.MustCompile("(?s)```yaml\n(patches:\n.*?)```")

// The patches of docs/configuration.md do what they are said to do.
func TestPatchesOfDocs(t *testing.T) {
	t.Chdir(root)
	_, dir := deploy(t, "docs/configuration.md")
	m := patches.FindStringSubmatch(read(t, "docs/configuration.md"))
	if m == nil {
		t.Fatal("docs/configuration.md has no patches")
	}
	file := filepath.Join(dir, "kustomization.yaml")
	if err := os.WriteFile(file, []byte(read(t, file)+m[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	text := kustomize(t, dir)
	for _, port := range []string{"9654", "9655"} {
		general, loopback := strings.Index(text, "=:"+port), strings.Index(text, "=127.0.0.1:"+port)
		if loopback < 0 || general < loopback {
			t.Errorf("metrics on port %s: want the general address after the loopback's", port)
		}
	}
}

// TestDialsOfDocs: each dial that the simulator's documentation shows is one.
func TestDialsOfDocs(t *testing.T) {
	t.Chdir(root)
	text := read(t, "docs/openstack-sim.md")
	blocks := strings.Split(text, "```yaml\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("docs/openstack-sim.md shows no dials")
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if _, err := dial.Parse([]byte(b)); err != nil {
			t.Errorf("%v\n%s", err, b)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		for rest := line; ; {
			_, after, found := strings.Cut(rest, "--dial '")
			if !found {
				break
			}
			var one string
			one, rest, _ = strings.Cut(after, "'")
			if _, err := (&dial.Set{}).Add(one); err != nil {
				t.Errorf("--dial '%s': %v", one, err)
			}
		}
	}
}
