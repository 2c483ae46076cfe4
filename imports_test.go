// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package kuryr_test checks who imports whom, as ARCHITECTURE.md says.
package kuryr_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kuryr-go/kuryr"

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// rule says what a package may import. Patterns are import paths; one that ends
// in /... means what is below it too, and "std" the standard library.
type rule struct {
	packages []string // below the module; of one that ends in /... all that are there
	only     []string // direct imports: these and no others
	never    []string // direct imports: none of these
	links    []string // all it depends on: none of these
}

// What a planner must not import although the standard library has it: it would
// wait, look at the world or say something, instead of returning a plan.
var effects = []string{"context", "log/...", "net", "net/http/...", "os/...", "syscall"}

var kubernetesClients = []string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."}

// simulator must not share a mistake with the client it is there to test.
const simulator = "openstacksim"

const gophercloud = "github.com/gophercloud/gophercloud/..."

var rules = []rule{
	{
		packages: []string{"api/v1"},
		only:     []string{"std", "k8s.io/apimachinery/..."},
	},
	{
		packages: []string{"internal/sdn"},
		only:     []string{"std", module + "/api/v1"},
	},
	{
		packages: []string{"internal/sdn/tenants"},
		only:     []string{"std", module + "/api/v1", module + "/internal/sdn"},
	},
	{
		packages: []string{"internal/plan/..."},
		only: []string{
			"std", "k8s.io/api/...", "k8s.io/apimachinery/pkg/apis/...", "k8s.io/apimachinery/pkg/types", "k8s.io/apimachinery/pkg/api/meta",
			module + "/api/v1", module + "/internal/sdn", module + "/internal/plan/...",
		},
		never: effects,
	},
	{
		packages: []string{"internal/nft"},
		links:    append([]string{gophercloud}, kubernetesClients...),
	},
	{
		packages: []string{"internal/openstack/...", "internal/sdn/memory"},
		links:    kubernetesClients,
	},
	{
		packages: []string{"internal/openstack/session"},
		never:    []string{module + "/internal/openstack", module + "/internal/openstack/neutron", module + "/internal/openstack/octavia"},
	},
	{
		packages: []string{"internal/openstack/neutron"},
		never:    []string{module + "/internal/openstack", module + "/internal/openstack/octavia"},
	},
	{
		packages: []string{"internal/openstack/octavia"},
		never:    []string{module + "/internal/openstack", module + "/internal/openstack/neutron"},
	},
	{
		packages: []string{simulator + "/..."},
		only:     []string{"std", "go.yaml.in/yaml/v4", "github.com/spf13/cobra", "github.com/spf13/pflag", module + "/" + simulator + "/..."},
		links:    append([]string{gophercloud}, kubernetesClients...),
	},
	{
		packages: []string{simulator + "/internal/table"},
		only:     []string{"std"},
	},
	{
		packages: []string{simulator + "/dial"},
		only:     []string{"std", "go.yaml.in/yaml/v4"},
	},
	{
		packages: []string{simulator + "/internal/keystone", simulator + "/internal/neutron", simulator + "/internal/octavia", simulator + "/internal/lbaasv2"},
		never:    []string{module + "/" + simulator, module + "/" + simulator + "/dial", module + "/" + simulator + "/internal/recorded"},
	},
	{
		packages: []string{"cmd/...", "internal/..."},
		links:    []string{module + "/" + simulator + "/..."},
	},
	{
		packages: []string{"internal/controller/...", "internal/config", "internal/sdn/memory", "internal/preflight"},
		never:    []string{gophercloud},
	},
	{
		packages: []string{"internal/preflight"},
		only: []string{
			"std", "k8s.io/api/...", "k8s.io/apimachinery/...", "sigs.k8s.io/controller-runtime/pkg/client", module + "/api/v1",
			module + "/internal/config", module + "/internal/controller/settings", module + "/internal/plan/...", module + "/internal/sdn",
		},
	},
	{
		packages: []string{"internal/daemon"},
		never:    []string{module + "/internal/controller/...", module + "/internal/sdn/..."},
		links:    []string{gophercloud}, // no cloud on a node
	},
	{
		packages: []string{"internal/plug"},
		links:    []string{"k8s.io/...", "sigs.k8s.io/...", gophercloud, module + "/internal/sdn/...", module + "/api/..."},
	},
	{
		packages: []string{"internal/keylock"},
		only:     []string{"std"},
	},
	{
		packages: []string{"internal/conntrack"},
		only:     []string{"std", "github.com/vishvananda/netlink/nl", "golang.org/x/..."},
	},
	{
		packages: []string{"internal/cni", "cmd/kuryr-cni"},
		links: append([]string{
			gophercloud, "k8s.io/...", "sigs.k8s.io/...", "net/http/...", "github.com/vishvananda/netlink/...", "github.com/prometheus/...",
		}, kubernetesClients...),
	},
}

func TestImports(t *testing.T) {
	packages := list(t)
	for _, r := range rules {
		for _, name := range r.packages {
			of := matching(packages, name)
			if len(of) == 0 {
				t.Errorf("there is no package %s: a rule for nothing", name)
			}
			for _, p := range of {
				for _, fault := range r.faults(p, packages) {
					t.Errorf("%s %s", strings.TrimPrefix(p.ImportPath, module+"/"), fault)
				}
			}
		}
	}
}

// Below internal/controller each package is a domain, but for those that all share.
// Domains do not import each other: what one wants of another it declares, and
// internal/controller joins them. Where one is made for another they may.
func TestDomainsOfTheControllerAreApart(t *testing.T) {
	const controller = module + "/internal/controller"
	shared := []string{controller + "/kube", controller + "/outcome", controller + "/settings"}
	made := map[string][]string{
		controller + "/pools": {controller + "/supply", controller + "/sites"},
	}
	packages := list(t)
	for _, name := range shared {
		if _, there := packages[name]; !there {
			t.Errorf("there is no package %s: a rule for nothing", name)
		}
	}
	for _, p := range matching(packages, "internal/controller/...") {
		if p.ImportPath == controller {
			continue
		}
		for _, i := range p.Imports {
			if match([]string{controller + "/..."}, i) && !slices.Contains(shared, i) && !slices.Contains(made[p.ImportPath], i) {
				t.Errorf("%s imports %s: declare what it needs, and have internal/controller join them",
					strings.TrimPrefix(p.ImportPath, module+"/"), strings.TrimPrefix(i, module+"/"))
			}
		}
	}
}

// matching returns the packages of the module that a name of a rule stands for.
func matching(packages map[string]pkg, name string) (of []pkg) {
	for importPath, p := range packages {
		if match([]string{module + "/" + name}, importPath) {
			of = append(of, p)
		}
	}
	return of
}

// Nobody imports a command, nor anything of tests.
func TestNobodyImportsCommands(t *testing.T) {
	for _, p := range list(t) {
		for _, i := range p.Imports {
			if match([]string{module + "/cmd/..."}, i) {
				t.Errorf("%s imports the command %s", p.ImportPath, i)
			}
			if i == module+"/internal/apitest" || i == module+"/internal/nodetest" || i == module+"/internal/nodetest/frame" || i == module+"/internal/crashtest" {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, i)
			}
			if match([]string{module + "/test/..."}, i) && strings.HasPrefix(p.ImportPath, module+"/internal/") {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
}

// The backend's parts are its own, and one of them alone knows gophercloud.
func TestTheBackendKeepsItsParts(t *testing.T) {
	backend := module + "/internal/openstack"
	for _, p := range list(t) {
		if !match([]string{module + "/..."}, p.ImportPath) || match([]string{module + "/test/..."}, p.ImportPath) {
			continue
		}
		for _, i := range p.Imports {
			if strings.HasPrefix(i, backend+"/") && !match([]string{backend + "/..."}, p.ImportPath) {
				t.Errorf("%s imports %s, a part of %s", p.ImportPath, i, backend)
			}
			if match([]string{gophercloud}, i) && p.ImportPath != backend+"/session" {
				t.Errorf("%s imports %s, which is for %s/session", p.ImportPath, i, backend)
			}
		}
	}
}

// A package named for no subject collects everything.
func TestPackagesAreNamedForASubject(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "types", "interfaces", "misc", "base", "shared"}
	for _, p := range list(t) {
		if strings.HasPrefix(p.ImportPath, module) && slices.Contains(vague, path.Base(p.ImportPath)) {
			t.Errorf("%s: name the package for what it provides", p.ImportPath)
		}
	}
}

// The test itself has to see a breach.
func TestRulesSeeABreach(t *testing.T) {
	packages := map[string]pkg{"os": {Standard: true}, "example.com/x": {}, "k8s.io/client-go/rest": {}}
	p := pkg{Imports: []string{"os", "example.com/x"}, Deps: []string{"k8s.io/client-go/rest"}}
	r := rule{only: []string{"std"}, never: effects, links: kubernetesClients}
	if got := r.faults(p, packages); len(got) != 3 {
		t.Errorf("got %q, want three faults", got)
	}
	packages = map[string]pkg{module + "/a": {}, module + "/a/b": {}, module + "/ab": {}}
	if got := matching(packages, "a/..."); len(got) != 2 {
		t.Errorf("a/... stands for %v, want a and a/b", got)
	}
}

func (r rule) faults(p pkg, packages map[string]pkg) []string {
	var faults []string
	for _, i := range p.Imports {
		if r.only != nil && !match(r.only, i) && !(packages[i].Standard && slices.Contains(r.only, "std")) {
			faults = append(faults, "imports "+i+": it may import only "+strings.Join(r.only, ", "))
		}
		if match(r.never, i) {
			faults = append(faults, "imports "+i+", which it must not")
		}
	}
	for _, d := range p.Deps {
		if match(r.links, d) {
			faults = append(faults, "links "+d+", which it must not; `go list -deps` and `go mod why` tell through whom")
		}
	}
	return faults
}

func match(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		parent, below := strings.CutSuffix(pattern, "/...")
		return importPath == parent || below && strings.HasPrefix(importPath, parent+"/")
	})
}

// list returns the packages of this module, of the simulator, and all that they depend on.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	lookAtSources(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", "./...", module+"/"+simulator+"/...")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	packages := map[string]pkg{}
	for d := json.NewDecoder(out); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	return packages
}

// lookAtSources tells `go test` what this test depends on. It does not see what
// go list reads, and would answer from its cache after another package changed.
func lookAtSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err == nil && (filepath.Ext(file) == ".go" || filepath.Base(file) == "go.mod") {
			_, err = os.Stat(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
