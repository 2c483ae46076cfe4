// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr-go/kuryr/openstacksim"
	"github.com/kuryr-go/kuryr/openstacksim/dial"
)

const exampleConfig = "apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\nclusterID: here\n" +
	"pods: {subnetIDs: [00000000-0000-0000-0000-000000000000], securityGroupIDs: [00000000-0000-0000-0000-000000000000]}\n"

// lines are the lines for the configuration that --make prints.
var lines = regexp.MustCompile(`(?s)\n(pods:\n  subnetIDs: .*?)\n\n`)

// TestPreflightMake: in a project with nothing but a router and a public network, --make makes what
// a first start needs. With the lines that it prints, the checks find no error. Repeated, also after
// a refused request, it makes nothing twice.
func TestPreflightMake(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("SKIPPED: needs kube-apiserver and etcd in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	b := &adoptBed{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), config: filepath.Join(t.TempDir(), "kuryr.yaml")}
	b.startCluster()
	b.must(b.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "vm"}}))
	b.sim = openstacksim.Start(t, func(o *openstacksim.Options) { o.Hosts = []string{"metal"} })
	b.logIn()
	t.Setenv("OS_CLOUD", "kuryr")
	t.Setenv("OS_CLIENT_CONFIG_FILE", b.sim.CloudsFile(t))
	b.must(os.WriteFile(b.config, []byte(exampleConfig), 0o600))

	if _, said, code := b.preflight("--make"); code != exitNotChecked || !strings.Contains(said, "--router") {
		t.Errorf("--make without a router: exit code %d, %q", code, said)
	}
	public := b.make("network", map[string]any{"name": "public", "router:external": true})
	b.make("subnet", map[string]any{"network_id": public, "cidr": "203.0.113.0/24", "ip_version": 4})
	for _, kind := range []string{"network", "security-group"} { // of another project; everybody may write such a name and description
		b.make(kind, map[string]any{"name": "kuryr-pods", "description": "made by kuryr preflight for cluster here", "project_id": "0123456789abcdef0123456789abcdef"})
	}
	router := b.make("router", map[string]any{"name": "kuryr", "external_gateway_info": map[string]any{"network_id": public}})

	out, said, code := b.preflight("--make", "--dry-run")
	if code != exitFindings || said != "" || !strings.Contains(out, "subnet kuryr-services 10.0.0.0/23: would be made") || b.sim.Count(http.MethodPost, "networks") != 2 ||
		!strings.Contains(out, "network kuryr-pods: would be made") || !strings.Contains(out, "security group kuryr-pods: would be made") {
		t.Errorf("--make --dry-run: exit code %d, %q\n%s", code, said, out)
	}
	// The cloud refuses in the middle. The next run goes on.
	b.must(b.sim.Dial("network POST /v2.0/security-group-rules: 503"))
	if out, said, code := b.preflight("--make"); code != exitNotChecked || !strings.Contains(said, "security group rule") || !strings.Contains(out, "made") {
		t.Errorf("--make on a cloud that refuses rules: exit code %d, %q\n%s", code, said, out)
	}
	b.sim.SetDials(&dial.Set{})
	out, said, code = b.preflight("--make")
	if code != 0 || said != "" || !strings.Contains(out, "network kuryr-pods: exists") || !strings.Contains(out, "security group rule 192.168.0.8/32: made") {
		t.Errorf("--make again: exit code %d, %q\n%s", code, said, out)
	}
	made := b.sim.Count(http.MethodPost, "networks")
	out, _, code = b.preflight("--make")
	if code != 0 || strings.Contains(out, ": made") || b.sim.Count(http.MethodPost, "networks") != made {
		t.Errorf("--make a third time: exit code %d\n%s", code, out)
	}
	m := lines.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("--make prints no lines for the configuration:\n%s", out)
	}
	b.must(os.WriteFile(b.config, []byte("apiVersion: kuryr.openstack.org/v1alpha1\nkind: KuryrConfiguration\nclusterID: here\n"+m[1]+"\n"), 0o600))
	if out, said, code := b.preflight(); code != 0 || strings.Contains(out, "Warnings:") {
		t.Errorf("the checks with what --make printed: exit code %d, %q\n%s", code, said, out)
	}
	for _, args := range [][]string{{"--dry-run"}, {"--router", router}, {"--make", "-o", "json"}, {"--make", "--pods-range", "10.0.0.0"}, {"--make", "--pods-range", "10.0.0.0/8,11.0.0.0/8"}} {
		if _, said, code := b.preflight(args...); code != exitNotChecked || said == "" {
			t.Errorf("preflight %v: exit code %d, %q; want a complaint", args, code, said)
		}
	}
	b.must(os.WriteFile(b.config, []byte(exampleConfig), 0o600))
	if _, said, code := b.preflight("--make", "--pods-range", "192.168.0.0/16"); code != exitNotChecked || !strings.Contains(said, "of node metal") {
		t.Errorf("--make with a range of the nodes: exit code %d, %q", code, said)
	}
	if _, said, code := b.preflight("--make", "--pods-range", "10.0.0.0/16"); code != exitNotChecked || !strings.Contains(said, "cluster IPs") {
		t.Errorf("--make with a range of Services: exit code %d, %q", code, said)
	}
}
