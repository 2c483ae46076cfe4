// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package v1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kuryr-go/kuryr/internal/apitest"
)

// row is what kubectl get prints of one object: the header and the cells, with
// wide columns in parentheses and without the age.
func row(t *testing.T, resource, name string) string {
	t.Helper()
	apitest.Need(t)
	rest := kubernetes.NewForConfigOrDie(admin).RESTClient()
	raw, err := rest.Get().AbsPath("/apis/openstack.org/v1", resource, name).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := yaml.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	var cells []string
	for i, c := range table.ColumnDefinitions {
		if c.Name == "Age" {
			continue
		}
		cell := fmt.Sprintf("%s=%v", c.Name, table.Rows[0].Cells[i])
		if c.Priority > 0 {
			cell = "(" + cell + ")"
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, " ")
}

func TestColumns(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	two := `{metadata: {name: columns}, spec: {vif: {addresses: [
	  {ip: 10.0.0.5, prefixLength: 24}, {ip: "fd00::5", prefixLength: 64}]}}}`
	o := create(t, c, object(t, port, two))
	setStatus(t, c, o, `status: {phase: Bound, active: true, attachment: {containerID: c1, interface: eth0, since: "2026-01-02T03:04:05Z"}}`)
	want := "Name=columns Namespace=default Pod=web-0 Node=node-1 IP=10.0.0.5 MAC=fa:16:3e:00:00:01 Phase=Bound" +
		" (Other IP=fd00::5) (Pool=node-1-0123abcd) (Type=ovs) (Active=true) (Container=c1)"
	if got := row(t, "kuryrports", "columns"); got != want {
		t.Errorf("bound port:\ngot  %s\nwant %s", got, want)
	}
	create(t, c, object(t, port, `{metadata: {name: columns-free}, spec: {podRef: null}}`))
	want = "Name=columns-free Namespace=<nil> Pod=<nil> Node=node-1 IP=10.0.0.5 MAC=fa:16:3e:00:00:01 Phase=<nil>" +
		" (Other IP=<nil>) (Pool=node-1-0123abcd) (Type=ovs) (Active=<nil>) (Container=<nil>)"
	if got := row(t, "kuryrports", "columns-free"); got != want {
		t.Errorf("free port:\ngot  %s\nwant %s", got, want)
	}
	p := create(t, c, object(t, pool, `metadata: {name: columns}`))
	setStatus(t, c, p, `status: {available: 3, bound: 1, recycling: 2, total: 6, waitingPods: 4, conditions: [
	  {type: Ready, status: "False", reason: OverQuota, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]}`)
	want = "Name=columns Node=node-1 Available=3 Bound=1 Recycling=2 Waiting=4 Min=0 Max=10 Ready=False Reason=OverQuota"
	if got := row(t, "kuryrportpools", "columns"); got != want {
		t.Errorf("pool:\ngot  %s\nwant %s", got, want)
	}
	b := create(t, c, object(t, balancer, `metadata: {name: columns}`))
	setStatus(t, c, b, `status: {publicIP: {id: f, ip: 203.0.113.7, made: true}, loadBalancers: [
	  {id: l, name: default/columns, ip: 10.96.0.7, subnetID: services, provider: ovn, provisioningStatus: PENDING_UPDATE, operatingStatus: ONLINE}],
	  conditions: [{type: Ready, status: "False", reason: Pending, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]}`)
	want = "Name=columns VIP=10.96.0.7 Public-IP=203.0.113.7 Provider=ovn Provisioning=PENDING_UPDATE Operating=ONLINE Ready=False Reason=Pending"
	if got := row(t, "namespaces/default/kuryrloadbalancers", "columns"); got != want {
		t.Errorf("load balancer:\ngot  %s\nwant %s", got, want)
	}
	k := create(t, c, object(t, "{apiVersion: openstack.org/v1, kind: KuryrCluster}", `metadata: {name: default}`))
	setStatus(t, c, k, `status: {errors: 1, warnings: 2, unknown: 0, findings: [{name: NoRoom, severity: Error}], conditions: [
	  {type: Ready, status: "False", reason: Errors, message: m, lastTransitionTime: "2026-01-02T03:04:05Z"}]}`)
	want = "Name=default Ready=False Reason=Errors Serving=<nil> Errors=1 Warnings=2 Unknown=0 Checked=<nil> (Message=m)"
	if got := row(t, "kuryrclusters", "default"); got != want {
		t.Errorf("cluster:\ngot  %s\nwant %s", got, want)
	}
}

func setStatus(t *testing.T, c client.Client, o *unstructured.Unstructured, status string) {
	t.Helper()
	merge(o.Object, object(t, `{}`, status).Object)
	if err := c.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestSelectableFields(t *testing.T) {
	t.Parallel()
	c := connect(t, nil)
	for i, spec := range []string{
		`{nodeName: select-1, pool: select-a}`, `{nodeName: select-1, pool: select-b}`, `{nodeName: select-2, pool: select-b}`,
	} {
		o := create(t, c, object(t, port, fmt.Sprintf(`{metadata: {name: select-%d}, spec: %s}`, i, spec)))
		if i == 1 {
			setStatus(t, c, o, `status: {phase: Recycling}`)
		}
	}
	create(t, c, object(t, pool, `{metadata: {name: select-0}, spec: {key: {nodeName: select-1}}}`))
	for _, r := range []struct{ kind, field, value, want string }{
		{"KuryrPort", "spec.nodeName", "select-1", "select-0 select-1"},
		{"KuryrPort", "spec.nodeName", "select-2", "select-2"},
		{"KuryrPort", "spec.nodeName", "select-3", ""},
		{"KuryrPort", "spec.pool", "select-b", "select-1 select-2"},
		{"KuryrPort", "status.phase", "Recycling", "select-1"},
		{"KuryrPortPool", "spec.key.nodeName", "select-1", "select-0"},
	} {
		var l unstructured.UnstructuredList
		l.SetAPIVersion("openstack.org/v1")
		l.SetKind(r.kind + "List")
		if err := c.List(t.Context(), &l, client.MatchingFields{r.field: r.value}); err != nil {
			t.Errorf("List of %s with %s=%s: %v", r.kind, r.field, r.value, err)
		}
		var got []string
		for _, o := range l.Items {
			got = append(got, o.GetName())
		}
		slices.Sort(got)
		if strings.Join(got, " ") != r.want {
			t.Errorf("List of %s with %s=%s: got %v, want %s", r.kind, r.field, r.value, got, r.want)
		}
	}
}

func TestNamesOfResources(t *testing.T) {
	t.Parallel()
	apitest.Need(t)
	l, err := discovery.NewDiscoveryClientForConfigOrDie(admin).ServerResourcesForGroupVersion("openstack.org/v1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range l.APIResources {
		got = append(got, fmt.Sprintf("%s %s %v namespaced=%v", r.Name, r.Kind, r.ShortNames, r.Namespaced))
	}
	slices.Sort(got)
	want := []string{
		"kuryrclusters KuryrCluster [kc] namespaced=false",
		"kuryrclusters/status KuryrCluster [] namespaced=false",
		"kuryrloadbalancers KuryrLoadBalancer [klb] namespaced=true",
		"kuryrloadbalancers/status KuryrLoadBalancer [] namespaced=true",
		"kuryrnetworks KuryrNetwork [kns] namespaced=true",
		"kuryrnetworks/status KuryrNetwork [] namespaced=true",
		"kuryrportpools KuryrPortPool [kpp] namespaced=false",
		"kuryrportpools/status KuryrPortPool [] namespaced=false",
		"kuryrports KuryrPort [kp] namespaced=false",
		"kuryrports/status KuryrPort [] namespaced=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// kubectl explain has a text for every field. Needs no server.
func TestEveryFieldIsExplained(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../config/crd/openstack.org_*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("definitions in config/crd: %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(data, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			explained(t, crd.Spec.Names.Kind, *v.Schema.OpenAPIV3Schema)
		}
	}
}

func explained(t *testing.T, path string, s apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if s.Description == "" && !strings.HasSuffix(path, ".metadata") {
		t.Errorf("%s has no text", path)
	}
	for name, p := range s.Properties {
		explained(t, path+"."+name, p)
	}
	if s.Items != nil && s.Items.Schema != nil {
		for name, p := range s.Items.Schema.Properties {
			explained(t, path+"[]."+name, p)
		}
	}
}
