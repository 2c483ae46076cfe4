// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

// readiness is a part of the cloud that belongs to the test, made by `kuryr preflight --make`, and a
// configuration for it in which nothing is wrong. What is broken there harms nobody else.
type readiness struct {
	*fixture
	kuryr string // the command
	dir   string // of configuration files

	project, network, pods, services, group, router, other, pool, given string
	document                                                            object
}

// finding is what `kuryr preflight -o json` prints of one.
type finding struct {
	Name, Severity, Object, Message string
	Remedy                          []string
}

// preflight runs the command with a configuration, and returns what it prints, and the exit code.
func (r *readiness) preflight(t testing.TB, document object, args ...string) (string, int) {
	t.Helper()
	text, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.dir, "kuryr.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, said strings.Builder
	cmd := exec.CommandContext(t.Context(), r.kuryr, append([]string{"preflight", "--config", file}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if out.Len() == 0 {
		t.Errorf("kuryr preflight %v printed nothing, and said %s", args, &said)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// findings makes the checks, and compares the exit code with what they find.
func (r *readiness) findings(t testing.TB, document object) []finding {
	t.Helper()
	out, code := r.preflight(t, document, "-o", "json", "--timeout", "30s")
	var report struct{ Findings []finding }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("kuryr preflight -o json: %v\n%s", err, out)
	}
	has := func(severity string) bool {
		return slices.ContainsFunc(report.Findings, func(f finding) bool { return f.Severity == severity })
	}
	want := 0
	if has("Unknown") {
		want = 2
	}
	if has("Error") {
		want = 1
	}
	if code != want {
		t.Errorf("kuryr preflight: exit code %d, want %d with %+v", code, want, report.Findings)
	}
	return report.Findings
}

// changed is the configuration with a change. A field is named as in pods.subnetIDs.
func (r *readiness) changed(t testing.TB, fields object) object {
	t.Helper()
	text, err := json.Marshal(r.document)
	if err != nil {
		t.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	for path, value := range fields {
		section, field, nested := strings.Cut(path, ".")
		if !nested {
			out[section] = value
			continue
		}
		if out[section] == nil {
			out[section] = object{}
		}
		out[section].(object)[field] = value
	}
	return out
}

// neutron sends a request to Neutron, and returns the answer.
func (f *fixture) neutron(t testing.TB, method, path string, body object) object {
	t.Helper()
	return request(t, f.Neutron, method, f.Neutron.ResourceBaseURL()+path, body)
}

func request(t testing.TB, c *gophercloud.ServiceClient, method, url string, body object) object {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also at the end of a test
	defer cancel()
	var out object
	options := &gophercloud.RequestOpts{OkCodes: []int{200, 201, 202, 204}}
	if body != nil {
		options.JSONBody = body
	}
	if method != http.MethodDelete {
		options.JSONResponse = &out
	}
	if _, err := c.Request(ctx, method, url, options); err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return out
}

// made makes an object of Neutron, and returns its ID.
func (f *fixture) made(t testing.TB, one string, fields object) string {
	t.Helper()
	out, _ := f.neutron(t, http.MethodPost, strings.ReplaceAll(one, "_", "-")+"s", object{one: fields})[one].(object)
	id, _ := out["id"].(string)
	return id
}

func (f *fixture) put(t testing.TB, one, id string, fields object) {
	t.Helper()
	f.neutron(t, http.MethodPut, one+"s/"+id, object{one: fields})
}

// iface adds or removes an interface of a router.
func (f *fixture) iface(t testing.TB, verb, router string, what object) {
	t.Helper()
	f.neutron(t, http.MethodPut, "routers/"+router+"/"+verb+"_router_interface", what)
}

// all returns the objects of a kind of Neutron for which a query holds.
func (f *fixture) all(t testing.TB, kind, query string) []object {
	t.Helper()
	list, _ := f.neutron(t, http.MethodGet, kind+"?"+query, nil)[strings.ReplaceAll(kind, "-", "_")].([]any)
	out := make([]object, 0, len(list))
	for _, o := range list {
		out = append(out, o.(object))
	}
	return out
}

// wipe deletes what the test has in the cloud, also that of a run before.
func (r *readiness) wipe(t testing.TB) {
	t.Helper()
	for _, name := range []string{"preflight", "preflight-other"} {
		for _, router := range r.all(t, "routers", "name="+name) {
			id := router["id"].(string)
			for _, p := range r.all(t, "ports", "device_owner=network:router_interface&device_id="+id) {
				r.iface(t, "remove", id, object{"port_id": p["id"]})
			}
			r.neutron(t, http.MethodDelete, "routers/"+id, nil)
		}
	}
	for _, name := range []string{"kuryr-pods", "kuryr-services", "preflight"} {
		for _, network := range r.all(t, "networks", "name="+name) {
			id := network["id"].(string)
			for _, p := range r.all(t, "ports", "network_id="+id) {
				if p["device_owner"] != "network:distributed" {
					r.neutron(t, http.MethodDelete, "ports/"+p["id"].(string), nil)
				}
			}
			r.neutron(t, http.MethodDelete, "networks/"+id, nil)
		}
	}
	for kind, name := range map[string]string{"security-groups": "kuryr-pods", "subnetpools": "preflight"} {
		for _, o := range r.all(t, kind, "name="+name) {
			r.neutron(t, http.MethodDelete, kind+"/"+o["id"].(string), nil)
		}
	}
}

var listed = regexp.MustCompile(`(?m)^  (subnetIDs|securityGroupIDs): \[([^\]]+)\]`)

// ready has `kuryr preflight --make` make the networks of a cluster, on a router of the test's own.
func ready(t *testing.T) *readiness {
	t.Helper()
	r := &readiness{fixture: onBed(t), kuryr: build(t, "kuryr"), dir: t.TempDir(), project: os.Getenv("PROJECT")}
	r.needsOctavia(t)
	r.wipe(t)
	t.Cleanup(func() { r.wipe(t) })
	// What is broken on purpose in the cluster is for nobody to act on.
	t.Cleanup(func() { r.scaleController(t, 1) })
	r.scaleController(t, 0)
	r.router = r.made(t, "router", object{"name": "preflight", "external_gateway_info": object{"network_id": os.Getenv("EXT_NET"), "enable_snat": false}})
	r.other = r.made(t, "router", object{"name": "preflight-other"})
	r.document = object{
		"apiVersion": "kuryr.openstack.org/v1alpha1", "kind": "KuryrConfiguration", "neutron": object{"cloud": "kuryr"},
		"pods":  object{},
		"pools": object{"min": 0, "batch": 1},
		"services": object{
			"nodeSubnetIDs": []string{os.Getenv("NODE_SUBNET")}, "externalNetworkID": os.Getenv("EXT_NET"), "provider": "ovn",
		},
	}
	first := []string{"--make", "--router", r.router, "--pods-range", "10.130.0.0/16"}
	if out, code := r.preflight(t, r.document, append(first, "--dry-run")...); code != 1 || !strings.Contains(out, "would be made") {
		t.Errorf("--make --dry-run: exit code %d\n%s", code, out)
	}
	if left := r.all(t, "networks", "name=kuryr-pods"); len(left) > 0 {
		t.Errorf("the dry run made %v", left)
	}
	out, code := r.preflight(t, r.document, first...)
	t.Logf("$ kuryr preflight %s\n%s", strings.Join(first, " "), out)
	lines := listed.FindAllStringSubmatch(out, -1)
	if code != 0 || len(lines) != 3 {
		t.Fatalf("--make: exit code %d, and %d lines for the configuration, want 0 and 3", code, len(lines))
	}
	r.pods, r.group, r.services = lines[0][2], lines[1][2], lines[2][2]
	subnet := func(id string) object { return r.neutron(t, http.MethodGet, "subnets/"+id, nil)["subnet"].(object) }
	r.network = subnet(r.pods)["network_id"].(string)
	if ifaces := must(r.RouterInterfaces(t.Context(), r.router))(t); len(ifaces) != 2 || ifaces[r.pods] == "" || ifaces[r.services] == "" {
		t.Errorf("the router has interfaces in %v, want those of pods and of cluster IPs", ifaces)
	}
	if again, code := r.preflight(t, r.document, first...); code != 0 || strings.Contains(again, ": made") {
		t.Errorf("--make again: exit code %d, want that all exists\n%s", code, again)
	}
	r.document = r.changed(t, object{"pods.subnetIDs": []string{r.pods}, "pods.securityGroupIDs": []string{r.group}, "services.subnetIDs": []string{r.services}})
	r.pool = r.made(t, "subnetpool", object{"name": "preflight", "prefixes": []string{"10.176.0.0/24"}, "default_prefixlen": 25, "min_prefixlen": 25})
	r.given = r.made(t, "subnet", object{ // on no router
		"network_id": r.made(t, "network", object{"name": "preflight"}), "ip_version": 4, "cidr": "10.172.9.0/24",
	})
	return r
}

// quota sets a quota of the project for the rest of the test: more than is used.
func (r *readiness) quota(t testing.TB, kind string, more int) {
	t.Helper()
	used := r.neutron(t, http.MethodGet, "quotas/"+r.project+"/details.json", nil)["quota"].(object)[kind].(object)["used"].(json.Number)
	n := int(must(used.Int64())(t)) + more
	was := r.neutron(t, http.MethodGet, "quotas/"+r.project, nil)["quota"].(object)[kind]
	t.Cleanup(func() { r.neutron(t, http.MethodPut, "quotas/"+r.project, object{"quota": object{kind: was}}) })
	// Neutron of 2025.1 refuses a limit below the use otherwise.
	r.neutron(t, http.MethodPut, "quotas/"+r.project, object{"quota": object{kind: n, "force": true}})
}

// reads are commands of a remedy that only show something, or that a person has to go on with.
var reads = regexp.MustCompile(`^openstack .*\b(list|show)\b|^kubectl |^ssh |^chronyc `)

// remedy runs the commands of a finding that change something, with words filled in as by a person.
func (r *readiness) remedy(t testing.TB, f finding, fill map[string]string) {
	t.Helper()
	for _, command := range f.Remedy {
		if reads.MatchString(command) {
			continue
		}
		for word, value := range fill {
			command = strings.ReplaceAll(command, word, value)
		}
		r.shell(t.Context(), t, command)
	}
}

// shell runs a command as a person would, with the credential of the project's administrator or, for
// quotas and projects, the cloud's.
func (r *readiness) shell(ctx context.Context, t testing.TB, command string) {
	t.Helper()
	cloud := "kuryr"
	if strings.Contains(command, "quota set") || strings.Contains(command, "project set") {
		cloud = "admin"
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = append(os.Environ(), "OS_CLOUD="+cloud)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("$ %s: %v\n%s", command, err, out)
	}
}

// TestPreflightFindings breaks on purpose, one after the other, what each finding is about, in the
// real cloud or in the configuration. The finding has its name, its severity and a remedy. Where the
// remedy is commands, these mend it.
func TestPreflightFindings(t *testing.T) {
	long(t)
	r := ready(t)
	if found := r.findings(t, r.document); len(found) > 0 {
		t.Errorf("nothing is broken yet, and preflight finds %+v", found)
	}
	var all struct{ Passed []string } // each check, as nothing is broken yet
	out, _ := r.preflight(t, r.document, "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, c := range broken {
		_, name, _ := strings.Cut(c.want, " ")
		tested[name] = true
		t.Run(strings.ReplaceAll(c.want, " ", ""), func(t *testing.T) { r.finds(t, c) })
	}
	for _, name := range all.Passed {
		if reason, not := notOnBed[name]; not == tested[name] {
			t.Errorf("%s is in the table: %v, and is said not to be broken on the bed: %q", name, tested[name], reason)
		}
	}
	r.several(t)
}

// finds breaks something, looks for the finding, and mends what is broken.
func (r *readiness) finds(t *testing.T, c breakage) {
	if c.breaks != nil {
		c.breaks(t, r)
	}
	var fields object
	if c.config != nil {
		fields = c.config(r)
	}
	document := r.changed(t, fields)
	began := time.Now()
	found := r.findings(t, document)
	severity, name, _ := strings.Cut(c.want, " ")
	is := func(f finding) bool { return f.Name == name && f.Severity == severity }
	i := slices.IndexFunc(found, is)
	if i < 0 {
		t.Fatalf("preflight finds %+v, want %s", found, c.want)
	}
	f := found[i]
	t.Logf("found in %s: %s, %s: %s %q", time.Since(began).Round(100*time.Millisecond), f.Name, f.Object, f.Message, f.Remedy)
	if f.Object == "" || f.Message == "" || len(f.Remedy) == 0 && !c.wordsOnly {
		t.Errorf("%+v lacks an object, a message or a remedy", f)
	}
	if !c.mends {
		return
	}
	r.remedy(t, f, map[string]string{"ROUTER": r.router, "FIRST": "10.97.0.1", "LAST": "10.97.255.253", "CIDR": "10.177.0.0/16"})
	if after := r.findings(t, document); slices.ContainsFunc(after, is) {
		t.Errorf("after the remedy %q preflight still finds %+v", f.Remedy, after)
	}
}

// several prints what a person sees of several findings.
func (r *readiness) several(t *testing.T) {
	r.iface(t, "remove", r.router, object{"subnet_id": r.pods})
	r.put(t, "router", r.router, object{"external_gateway_info": object{}})
	document := r.changed(t, object{"services.externalSubnetID": missingID, "node.mtu": 1400, "pods.securityGroupIDs": []string{os.Getenv("TENANT_A_SG")}})
	out, code := r.preflight(t, document)
	t.Logf("$ kuryr preflight\n%s", out)
	for _, name := range []string{"PodSubnetNotRouted", "RouterWithoutGateway", "PublicSubnetMissing", "SecurityGroupRuleMissing", "MTUMismatch"} {
		if !strings.Contains(out, "\n  "+name+": ") {
			t.Errorf("preflight does not print %s", name)
		}
	}
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}
