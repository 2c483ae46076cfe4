// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	checks "github.com/kuryr-go/kuryr/internal/plan/preflight"
	"github.com/kuryr-go/kuryr/openstacksim"
)

var update = flag.Bool("update", false, "write what kuryr preflight prints as the example of docs/preflight.md")

// newPreflightBed returns a cluster of two nodes, without Kuryr's kinds, and an OpenStack. Pods and Services have a subnet
// each, and a router without ports: whoever installed it forgot these. Neutron knows one of the
// nodes, and external names no network.
func newPreflightBed(t *testing.T) (b *adoptBed, router string, subnets []string) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	b = &adoptBed{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), config: filepath.Join(t.TempDir(), "kuryr.yaml")}
	b.startCluster()
	b.sim = openstacksim.Start(t, func(o *openstacksim.Options) { o.Hosts = []string{"metal"} })
	b.logIn()
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", b.sim.CloudsFile(t))
	pods, services := b.make("network", map[string]any{"name": "pods"}), b.make("network", map[string]any{"name": "services"})
	subnets = []string{
		b.make("subnet", map[string]any{"name": "pods", "network_id": pods, "cidr": "10.1.0.0/16", "ip_version": 4}),
		b.make("subnet", map[string]any{
			"name": "services", "network_id": services, "cidr": "10.0.0.0/16", "ip_version": 4, "enable_dhcp": false, "gateway_ip": "10.0.255.254",
			"allocation_pools": []any{map[string]any{"start": "10.0.255.1", "end": "10.0.255.253"}},
		}),
	}
	router = b.make("router", map[string]any{"name": "kuryr"})
	b.group = b.make("security-group", map[string]any{"name": "pods"})
	b.configure(subnets, "6a9c1d7e-0000-4000-8000-00000000beef")
	return b, router, subnets
}

// configure writes the configuration.
func (b *adoptBed) configure(subnets []string, external string) {
	b.t.Helper()
	text := fmt.Appendf(nil, "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\nclusterID: here\n"+
		"pods: {subnetIDs: [%s], securityGroupIDs: [%s]}\npools: {min: 1}\nservices: {subnetIDs: [%s], externalNetworkID: %s}\n",
		subnets[0], b.group, subnets[1], external)
	b.must(os.WriteFile(b.config, text, 0o600))
}

// preflight runs the command. It returns what it prints, and the exit code.
func (b *adoptBed) preflight(more ...string) (out, complaint string, code int) {
	b.t.Helper()
	var printed, said bytes.Buffer
	root := rootCommand()
	root.SetOut(&printed)
	root.SetErr(&logs)
	root.SetArgs(append([]string{"preflight", "--kubeconfig", b.kubeconfig, "--config", b.config}, more...))
	if err := root.ExecuteContext(b.t.Context()); err != nil {
		code = report(&said, err)
	}
	return printed.String(), said.String(), code
}

// found returns the names of findings with their severities.
func (b *adoptBed) found() (names []string) {
	b.t.Helper()
	out, complaint, _ := b.preflight("-o", "json")
	var report struct {
		Findings []struct{ Name, Severity string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		b.t.Fatalf("preflight -o json: %v\n%s%s", err, out, complaint)
	}
	for _, f := range report.Findings {
		names = append(names, f.Severity+" "+f.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestPreflight: the command finds what is missing in the cloud, also what it prints stands in the
// documentation. When everything is repaired, it finds nothing. Without a cloud the checks are not
// made.
func TestPreflight(t *testing.T) {
	b, router, subnets := newPreflightBed(t)
	out, complaint, code := b.preflight()
	if code != exitFindings || complaint != "" {
		t.Errorf("exit code %d, %q on stderr; want %d and nothing", code, complaint, exitFindings)
	}
	example(t, out)
	for _, want := range []string{"Error PublicNetworkMissing", "Error PodSubnetNotRouted", "Error ServiceSubnetNotRouted", "Error NodeAgentDown"} {
		if got := b.found(); !slices.Contains(got, want) {
			t.Errorf("findings %v, want %s", got, want)
		}
	}
	// A person follows the remedies.
	public := b.make("network", map[string]any{"name": "public", "router:external": true})
	b.make("subnet", map[string]any{"network_id": public, "cidr": "203.0.113.0/24", "ip_version": 4})
	b.configure(subnets, public)
	for _, subnet := range subnets {
		b.ask(http.MethodPut, "/networking/v2.0/routers/"+router+"/add_router_interface", map[string]any{"subnet_id": subnet}, &struct{}{})
	}
	b.ask(http.MethodPut, "/networking/v2.0/routers/"+router, map[string]any{"router": map[string]any{"external_gateway_info": map[string]any{"network_id": public}}}, &struct{}{})
	b.must(b.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}))
	for _, f := range b.found() {
		if strings.HasPrefix(f, string(checks.Error)) {
			t.Errorf("after the repair: %s", f)
		}
	}
	if out, complaint, code := b.preflight(); code != 0 || complaint != "" {
		t.Errorf("after the repair: exit code %d, %q on stderr\n%s", code, complaint, out)
	}
	b.sim.Close()
	t.Setenv("OS_CLIENT_CONFIG_FILE", filepath.Join(t.TempDir(), "clouds.yaml"))
	b.must(os.WriteFile(os.Getenv("OS_CLIENT_CONFIG_FILE"), []byte("clouds: {kuryr: {auth: {auth_url: 'http://127.0.0.1:1/v3', username: u, password: p, project_name: p, user_domain_name: Default, project_domain_name: Default}}}\n"), 0o600))
	out, _, code = b.preflight()
	if code != exitNotChecked || !strings.Contains(out, checks.CloudUnavailable) {
		t.Errorf("without a cloud: exit code %d, want %d and %s:\n%s", code, exitNotChecked, checks.CloudUnavailable, out)
	}
}

// example compares what the command printed with the example of the documentation.
func example(t *testing.T, out string) {
	t.Helper()
	const file = "../../docs/preflight.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "```text\n$ kuryr preflight\n", "```\n"
	head, rest, ok := strings.Cut(string(data), begin)
	was, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no block that begins with %q", file, begin)
	}
	if was == out {
		return
	}
	if !*update {
		t.Errorf("kuryr preflight prints (go test ./cmd/kuryr -run TestPreflight -update writes it into %s):\n%s\nthe example is\n%s", file, out, was)
		return
	}
	if err := os.WriteFile(file, []byte(head+begin+out+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestPreflightExits: exit codes of the command, and what it prints for them.
func TestPreflightExits(t *testing.T) {
	warning, failure, unknown := checks.Finding{Severity: checks.Warning}, checks.Finding{Severity: checks.Error}, checks.Finding{Severity: checks.Unknown}
	for _, tc := range []struct {
		findings []checks.Finding
		want     int
	}{
		{nil, 0},
		{[]checks.Finding{warning}, 0},
		{[]checks.Finding{warning, unknown}, exitNotChecked},
		{[]checks.Finding{unknown, failure, warning}, exitFindings},
	} {
		if got := exitCode(checks.Report{Findings: tc.findings}); got != tc.want {
			t.Errorf("exit code with %v = %d, want %d", tc.findings, got, tc.want)
		}
	}
	b := &adoptBed{t: t}
	for args, want := range map[string]string{
		"-o xml":                       `kuryr: --output is "xml": write text or json` + "\n",
		"--config /nowhere/kuryr.yaml": "kuryr: --config: reading configuration: open /nowhere/kuryr.yaml: no such file or directory\n",
		"--nothing":                    "kuryr: unknown flag: --nothing\n",
		"surplus":                      `kuryr: unknown command "surplus" for "kuryr preflight"` + "\n",
	} {
		out, complaint, code := b.preflight(strings.Fields(args)...)
		if out != "" || complaint != want || code != exitNotChecked {
			t.Errorf("preflight %s: exit code %d, stdout %q, stderr %q; want %d, nothing, %q", args, code, out, complaint, exitNotChecked, want)
		}
	}
	var said bytes.Buffer
	if code := report(&said, errors.New("broken")); code != 1 || said.String() != "kuryr: broken\n" {
		t.Errorf("another command's error: exit code %d, %q", code, &said)
	}
}
