// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// roleFiles have the roles of both service accounts, which have their names.
var roleFiles = []string{"../../config/base/controller-roles.yaml", "../../config/base/daemon-rbac.yaml"}

// unused are permissions that the tests do not use, and why Kuryr has them.
var unused = map[string]string{
	"kuryr-controller create openstack.org/kuryrloadbalancers": byApply,
	"kuryr-controller create openstack.org/kuryrnetworks":      byApply,
}

const byApply = "a server-side apply that makes an object needs it, and is logged as a patch only"

// grant is a verb that a service account may use on a resource: in all namespaces, or in Kuryr's own.
type grant struct {
	account, verb, resource string // the resource with its group, and its subresource
	own                     bool
}

func (g grant) String() string {
	return strings.Join([]string{g.account, g.verb, g.resource}, " ") + map[bool]string{true: " in " + kuryrNamespace}[g.own]
}

// resourceName returns the name of a resource as grants have it.
func resourceName(group, resource, sub string) string {
	return strings.TrimSuffix(cmp.Or(group, "core")+"/"+resource+"/"+sub, "/")
}

// grantsOf returns what the roles in files grant.
func grantsOf(files ...string) (map[grant]bool, error) {
	all := map[grant]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			var role rbacv1.ClusterRole // a Role has the same fields
			if err := d.Decode(&role); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, r := range role.Rules {
				for _, group := range r.APIGroups {
					for _, resource := range r.Resources {
						for _, verb := range r.Verbs {
							all[grant{role.Name, verb, resourceName(group, resource, ""), role.Kind == "Role"}] = true
						}
					}
				}
			}
		}
	}
	return all, nil
}

// auditEvent is what is read of a line of the API server's audit log.
type auditEvent struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef *struct{ APIGroup, Resource, Subresource, Namespace string }
	// Annotations say how the request was authorized. A status of 403 may also be an admission policy's.
	Annotations map[string]string
}

// audit is what a log says of grants.
type audit struct {
	events  int
	used    map[grant]bool
	narrow  map[grant]bool  // of all namespaces, and used in Kuryr's own
	refused map[string]bool // requests that no role grants
}

// read adds the events of a log. The API server may have been killed amid a line.
func (a *audit) read(log io.Reader, granted map[grant]bool) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		a.events++
		account, found := strings.CutPrefix(e.User.Username, "system:serviceaccount:"+kuryrNamespace+":")
		if !found || e.ObjectRef == nil { // a path that is no resource, as /apis, is everybody's
			continue
		}
		r := e.ObjectRef
		own := grant{account, e.Verb, resourceName(r.APIGroup, r.Resource, r.Subresource), true}
		everywhere := own
		everywhere.own = false
		switch forbidden := e.Annotations["authorization.k8s.io/decision"] == "forbid"; {
		case forbidden && strings.Contains(e.Annotations["authorization.k8s.io/reason"], fmt.Sprintf(".rbac.authorization.k8s.io %q not found", account)):
			// An API server that begins has bindings before it has their roles.
		case forbidden:
			a.refused[fmt.Sprintf("%s in %q", everywhere, r.Namespace)] = true
		case r.Namespace != kuryrNamespace:
			a.used[everywhere] = true
		case granted[own]:
			a.used[own] = true
		default:
			a.narrow[everywhere] = true
		}
	}
	return lines.Err()
}

// faults returns what is wrong with the grants. Only a whole run shows what is not used.
func (a *audit) faults(granted map[grant]bool, because map[string]string, whole bool) (faults []string) {
	for request := range a.refused {
		faults = append(faults, "refused: "+request)
	}
	for g := range granted {
		switch {
		case !whole || a.used[g] || because[g.String()] != "":
		case a.narrow[g]:
			faults = append(faults, "granted everywhere, and used in "+kuryrNamespace+" only: "+g.String())
		default:
			faults = append(faults, "granted, and not used: "+g.String())
		}
	}
	return slices.Sorted(slices.Values(faults))
}

func readAudit(files []string, granted map[grant]bool) (*audit, error) {
	a := &audit{used: map[grant]bool{}, narrow: map[grant]bool{}, refused: map[string]bool{}}
	for _, file := range files {
		log, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		err = a.read(log, granted)
		_ = log.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return a, nil
}

// Kuryr's service accounts may do what they did in the tests before this one, and nothing else.
func TestPermissionsAreUsed(t *testing.T) {
	onBed(t)
	granted, err := grantsOf(roleFiles...)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(os.Getenv("KURYR_BED"), "log", "audit*.log"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := readAudit(files, granted)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.used) == 0 {
		t.Fatalf("no request of Kuryr's is among %d events of the files %q: is the bed of before it had an audit log? hack/bed/bed down, and up", a.events, files)
	}
	whole := os.Getenv("KURYR_E2E_WHOLE") != ""
	for _, fault := range a.faults(granted, unused, whole) {
		t.Error(fault)
	}
	if !whole {
		t.Skip("SKIPPED: the rest, what is granted and not used: only some of the tests ran before (hack/e2e.sh)")
	}
	for _, g := range slices.SortedFunc(maps.Keys(a.used), func(a, b grant) int { return cmp.Compare(a.String(), b.String()) }) {
		if why := unused[g.String()]; why != "" {
			t.Logf("used, although the table says that it is not: %s (%s)", g, why)
		}
	}
}

// The table of unused permissions has only what the roles grant.
func TestUnusedPermissionsAreGranted(t *testing.T) {
	granted, err := grantsOf(roleFiles...)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for g := range granted {
		names[g.String()] = true
	}
	for _, some := range []string{"kuryr-controller patch core/pods/status", "kuryr-controller update coordination.k8s.io/leases in kuryr-system", "kuryr-daemon watch openstack.org/kuryrports"} {
		if !names[some] {
			t.Errorf("the roles do not grant %q", some)
		}
	}
	for name := range unused {
		if !names[name] {
			t.Errorf("no role grants %q, which is in the table", name)
		}
	}
}

// TestAudit: testdata/audit.log is from a kube-apiserver 1.37 with the bed's policy. Its roles are
// testdata/audit-roles.yaml.
func TestAudit(t *testing.T) {
	granted, err := grantsOf("testdata/audit-roles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	a, err := readAudit([]string{"testdata/audit.log"}, granted)
	if err != nil {
		t.Fatal(err)
	}
	refused := []string{
		`refused: kuryr-controller delete core/nodes in ""`,
		`refused: kuryr-controller update coordination.k8s.io/leases in "default"`,
		`refused: kuryr-daemon get core/pods in "default"`,
	}
	if diff := gocmp.Diff(refused, a.faults(granted, nil, false)); diff != "" {
		t.Errorf("of a part of the tests (-want +got):\n%s", diff)
	}
	because := map[string]string{"kuryr-controller patch core/pods/status": "a reason"}
	whole := slices.Concat([]string{
		"granted everywhere, and used in kuryr-system only: kuryr-controller create core/configmaps",
		"granted, and not used: kuryr-controller create coordination.k8s.io/leases in kuryr-system",
		"granted, and not used: kuryr-daemon list core/services",
	}, refused)
	if diff := gocmp.Diff(whole, a.faults(granted, because, true)); diff != "" {
		t.Errorf("of a whole run (-want +got):\n%s", diff)
	}
}
