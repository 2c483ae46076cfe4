// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests_test deploys the manifests of this folder on a real API
// server and checks what their service accounts may do there.
package manifests_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// deployed is an API server that has config/example; nil if there is none.
var deployed *rest.Config

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return m.Run()
	}
	env := &envtest.Environment{}
	cfg, err := env.Start()
	defer func() { _ = env.Stop() }()
	if err == nil {
		cfg.QPS, cfg.Burst = 1000, 1000
		err = deploy(cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploying config/example on the API server of KUBEBUILDER_ASSETS:", err)
		return 1
	}
	deployed = cfg
	return m.Run()
}

// deploy applies config/example as `kubectl apply --server-side -k` does.
func deploy(cfg *rest.Config) error {
	objects, err := build("example")
	if err != nil {
		return err
	}
	for _, o := range objects {
		// A kind that the server learns of in this loop is known a moment later.
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			c, err := client.New(cfg, client.Options{}) // a fresh one, which knows all kinds
			if err != nil {
				return err
			}
			err = c.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

// build runs kustomize, which kubectl has built in. The files are looked at here
// too: `go test` does not see what kubectl reads, and would answer from its cache.
func build(folder string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob("*/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
	}
	kubectl := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "kustomize", folder)
	kubectl.Stderr = os.Stderr
	out, err := kubectl.Output()
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(o); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what kustomize made of %s: %w", folder, err)
		}
		objects = append(objects, o)
	}
}

func as(t *testing.T, impersonate rest.ImpersonationConfig) client.Client {
	t.Helper()
	if deployed == nil {
		t.Skip("SKIPPED: needs kube-apiserver, etcd and kubectl in the folder that KUBEBUILDER_ASSETS names; 'make envtest' builds them and says so")
	}
	cfg := rest.CopyConfig(deployed)
	cfg.Impersonate = impersonate
	c, err := client.New(cfg, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serviceAccount(name string) rest.ImpersonationConfig {
	return rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kuryr-system:" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kuryr-system", "system:authenticated"},
	}
}

// daemonOf is the daemon with the token of its pod on node.
func daemonOf(node string) rest.ImpersonationConfig {
	user := serviceAccount("kuryr-daemon")
	user.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	return user
}

// TestImagesCannotBePulled: the manifests name no image that somebody could offer. A node
// without it would run it as root, with all the node's devices.
func TestImagesCannotBePulled(t *testing.T) {
	for _, name := range []string{"kuryr-controller", "kuryr-daemon"} {
		image := containerOf(t, name).Image
		if registry, _, _ := strings.Cut(image, "/"); !strings.HasSuffix(registry, ".invalid") { // RFC 6761
			t.Errorf("image %s: %s may be a registry of anybody's", image, registry)
		}
	}
}

// TestPortsOfManifests: what the manifests' processes listen on is on the loopback, as
// nobody has to say who he is there, and is declared, so that the scheduler gives the node
// no pod whose host port would take what is sent there.
func TestPortsOfManifests(t *testing.T) {
	for name, ports := range map[string][]int32{"kuryr-controller": {8082, 9654, 16401}, "kuryr-daemon": {8090, 9655}} {
		t.Run(name, func(t *testing.T) {
			c := containerOf(t, name)
			for _, port := range ports {
				if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port }) {
					t.Errorf("port %d is not declared", port)
				}
				var at []string
				for _, arg := range c.Args {
					if _, address, ok := strings.Cut(arg, "-bind-address="); ok && strings.HasSuffix(address, fmt.Sprint(":", port)) {
						at = append(at, address)
					}
				}
				if want := fmt.Sprint("127.0.0.1:", port); !slices.Equal(at, []string{want}) {
					t.Errorf("it listens on %q, want %s", at, want)
				}
			}
		})
	}
}

// TestReplicas: the manifests run two controllers. A drain of nodes takes one of them at a time, and each gets
// the time that `kuryr controller` takes to end. No node runs two: see TestPortsOfManifests.
func TestReplicas(t *testing.T) {
	admin := as(t, rest.ImpersonationConfig{})
	key := client.ObjectKey{Namespace: "kuryr-system", Name: "kuryr-controller"}
	var d appsv1.Deployment
	var budget policyv1.PodDisruptionBudget
	for _, o := range []client.Object{&d, &budget} {
		if err := admin.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
	}
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas != 2 || *pod.TerminationGracePeriodSeconds < 90 || d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 0 {
		t.Errorf("%d replicas, %d s to end, %s more in an update; want 2, 90, 0", *d.Spec.Replicas, *pod.TerminationGracePeriodSeconds, d.Spec.Strategy.RollingUpdate.MaxSurge)
	}
	if diff := cmp.Diff(d.Spec.Selector, budget.Spec.Selector); diff != "" || budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the budget of disruptions has %s unavailable of (-deployment +budget):\n%s", budget.Spec.MaxUnavailable, diff)
	}
	if !pod.HostNetwork || len(pod.Containers[0].Ports) == 0 {
		t.Error("the pods have no ports of their nodes, which would keep two of them off one node")
	}
}

// TestBindingDriversOfNodes: with the component of config/drivers, as docs/binding-drivers.md
// names it, the daemon has the node's root folder where it runs binding drivers.
func TestBindingDriversOfNodes(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay := t.TempDir()
	config, err := filepath.Rel(overlay, here)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%[1]s/default]\ncomponents: [%[1]s/drivers]\n", config)
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := containerIn(t, overlay, "kuryr-daemon")
	if !slices.Contains(c.Args, "--host-root=/host") {
		t.Errorf("the daemon's arguments are %q", c.Args)
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "host" && m.MountPath == "/host" }) {
		t.Errorf("the daemon's mounts are %v", c.VolumeMounts)
	}
}

// TestAnotherNamespace: where the overlay names another namespace, policy and bindings are
// about controller and daemon there.
func TestAnotherNamespace(t *testing.T) {
	as(t, rest.ImpersonationConfig{}) // or skip: there is no kubectl either
	for _, namespace := range []string{"kuryr-system", "elsewhere"} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(".")); err != nil {
			t.Fatal(err)
		}
		overlay := filepath.Join(folder, "example")
		file := filepath.Join(overlay, "kustomization.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte("\nnamespace: kuryr-system\n"), []byte("\nnamespace: "+namespace+"\n"), 1)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		objects, err := build(overlay)
		if err != nil {
			t.Fatal(err)
		}
		want := "request.userInfo.username == 'system:serviceaccount:" + namespace + ":kuryr-daemon'"
		for _, o := range objects {
			switch o.GetKind() {
			case "ValidatingAdmissionPolicy":
				conditions, _, err := unstructured.NestedSlice(o.Object, "spec", "matchConditions")
				if err != nil || len(conditions) != 1 || conditions[0].(map[string]any)["expression"] != want {
					t.Errorf("in namespace %s the policy is about %v (%v), want %s", namespace, conditions, err, want)
				}
			case "RoleBinding", "ClusterRoleBinding":
				subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
				if err != nil || len(subjects) != 1 || subjects[0].(map[string]any)["namespace"] != namespace {
					t.Errorf("in namespace %s the %s %s is for %v (%v)", namespace, o.GetKind(), o.GetName(), subjects, err)
				}
			}
		}
	}
}

// containerOf returns the container of a workload of the manifests.
func containerOf(t *testing.T, workload string) corev1.Container {
	t.Helper()
	return containerIn(t, "default", workload)
}

func containerIn(t *testing.T, folder, workload string) corev1.Container {
	t.Helper()
	as(t, rest.ImpersonationConfig{}) // or skip: there is no kubectl either
	objects, err := build(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetName() != workload || o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
			continue
		}
		var w struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		data, err := o.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(data, &w)
		}
		if err != nil {
			t.Fatal(err)
		}
		return w.Spec.Template.Spec.Containers[0]
	}
	t.Fatalf("the manifests have no %s", workload)
	return corev1.Container{}
}

// What each service account may do, to the last verb.
func TestRights(t *testing.T) {
	daemon, controller := as(t, daemonOf("node-1")), as(t, serviceAccount("kuryr-controller"))
	for _, r := range []struct {
		who     client.Client
		name    string
		what    string // group/resource[/subresource] [namespace/][name]
		verbs   string
		allowed bool
	}{
		{daemon, "daemon", "openstack.org/kuryrports", "list watch", true},
		{daemon, "daemon", "openstack.org/kuryrports/status", "patch", true},
		{daemon, "daemon", "openstack.org/kuryrports", "get create update patch delete", false},
		{daemon, "daemon", "openstack.org/kuryrportpools", "get list patch", false},
		{daemon, "daemon", "/pods", "get list watch patch", false},
		{daemon, "daemon", "/nodes", "get list patch", false},
		{daemon, "daemon", "/secrets kuryr-system/kuryr-cloud", "get list", false},
		{daemon, "daemon", "/configmaps kuryr-system/kuryr-config", "get update", false},
		{controller, "controller", "openstack.org/kuryrports", "get list watch create patch delete", true},
		{controller, "controller", "openstack.org/kuryrports/status", "patch", true},
		{controller, "controller", "openstack.org/kuryrportpools", "list watch create patch delete", true},
		{controller, "controller", "openstack.org/kuryrportpools/status", "patch", true},
		{controller, "controller", "openstack.org/kuryrloadbalancers", "get list watch create patch delete", true},
		{controller, "controller", "openstack.org/kuryrloadbalancers/status", "patch", true},
		{controller, "controller", "openstack.org/kuryrclusters", "get create", true},
		{controller, "controller", "openstack.org/kuryrclusters", "list watch update patch delete", false},
		{controller, "controller", "openstack.org/kuryrclusters/status", "patch", true},
		{controller, "controller", "networking.k8s.io/servicecidrs", "list", true},
		{controller, "controller", "networking.k8s.io/servicecidrs", "get create update patch delete", false},
		{daemon, "daemon", "openstack.org/kuryrclusters", "get list patch", false},
		{controller, "controller", "/services", "get list watch", true},
		{controller, "controller", "/services", "create update patch delete", false},
		{controller, "controller", "/services kuryr-system/", "create patch delete", true}, // that hold cluster IPs
		{controller, "controller", "/services default/", "create update patch delete", false},
		{controller, "controller", "/services/status", "patch", true},
		{controller, "controller", "discovery.k8s.io/endpointslices", "list watch", true},
		{controller, "controller", "discovery.k8s.io/endpointslices", "get create patch delete", false},
		{daemon, "daemon", "/services", "list watch", true},
		{daemon, "daemon", "discovery.k8s.io/endpointslices", "list watch", true},
		{daemon, "daemon", "/services", "get create update patch delete", false},
		{daemon, "daemon", "discovery.k8s.io/endpointslices", "get create update patch delete", false},
		{controller, "controller", "openstack.org/kuryrnetworks", "get list watch create patch delete", true},
		{controller, "controller", "openstack.org/kuryrnetworks/status", "patch", true},
		{daemon, "daemon", "openstack.org/kuryrloadbalancers", "get list patch", false},
		{controller, "controller", "/pods", "get list watch", true},
		{controller, "controller", "/pods/status", "patch", true},
		{controller, "controller", "/pods", "create update patch delete", false},
		{controller, "controller", "/nodes", "list watch", true},
		{controller, "controller", "/nodes", "get patch update delete", false},
		{controller, "controller", "/namespaces kube-system", "get list watch", true},
		{controller, "controller", "/namespaces default", "create update patch delete", false},
		{controller, "controller", "networking.k8s.io/networkpolicies default/", "list watch", true},
		{controller, "controller", "networking.k8s.io/networkpolicies default/", "get create update patch delete", false},
		{controller, "controller", "events.k8s.io/events default/", "create patch", true},
		{controller, "controller", "coordination.k8s.io/leases kuryr-system/", "get list watch create update patch delete", true},
		{controller, "controller", "coordination.k8s.io/leases kube-system/", "get list watch create update patch delete", false},
		{controller, "controller", "/secrets kuryr-system/kuryr-cloud", "get list", false},
	} {
		for _, verb := range strings.Fields(r.verbs) {
			if got := may(t, r.who, verb, r.what); got != r.allowed {
				t.Errorf("may the %s %s %s? got %v, want %v", r.name, verb, r.what, got, r.allowed)
			}
		}
	}
}

// TestControllerChangesNoSpec: the controller's token annotates a pod and holds a Service,
// and what they are to be it cannot change: neither by the objects nor by their status.
func TestControllerChangesNoSpec(t *testing.T) {
	admin, controller := as(t, rest.ImpersonationConfig{}), as(t, serviceAccount("kuryr-controller"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "privileged"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "trusted"}}},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "held"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	for _, o := range []client.Object{account, pod, svc} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	hold := `{"metadata":{"annotations":{"openstack.org/kuryr-vif":"[]"},"finalizers":["kuryr.openstack.org/service-finalizer"]}}`
	spec := `{"spec":{"containers":[{"name":"c","image":"evil"}],"externalIPs":["203.0.113.9"]}}`
	release := `{"metadata":{"finalizers":null}}`
	for _, body := range []string{hold, spec, release} {
		for _, o := range []client.Object{pod, svc} {
			patch := client.RawPatch(types.MergePatchType, []byte(body))
			if err := controller.Patch(t.Context(), o.DeepCopyObject().(client.Object), patch); !apierrors.IsForbidden(err) {
				t.Errorf("the controller patches %T with %s: %v, want it forbidden", o, body, err)
			}
			got := o.DeepCopyObject().(client.Object)
			if err := controller.Status().Patch(t.Context(), got, patch); err != nil {
				t.Errorf("the controller patches the status of %T with %s: %v", o, body, err)
			}
			if held := len(got.GetFinalizers()) == 1; held != (body != release) {
				t.Errorf("%T after %s by its status: finalizers %v", o, body, got.GetFinalizers())
			}
		}
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.Spec.Containers[0].Image != "trusted" {
		t.Errorf("the pod's image is %q (%v)", pod.Spec.Containers[0].Image, err)
	}
	if pod.Annotations["openstack.org/kuryr-vif"] != "[]" {
		t.Errorf("the pod's annotations are %v", pod.Annotations)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil || len(svc.Spec.ExternalIPs) > 0 {
		t.Errorf("the Service's external IPs are %v (%v)", svc.Spec.ExternalIPs, err)
	}
}

// TestView: who may view a namespace, sees its KuryrLoadBalancers and no more of Kuryr's.
func TestView(t *testing.T) {
	admin, alice := as(t, rest.ImpersonationConfig{}), as(t, rest.ImpersonationConfig{UserName: "alice"})
	aggregate(t, admin, "view")
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "alice"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "alice"}},
	}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !may(t, alice, "get", "/services default/") && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond) // the API server's authorizer follows by a watch
	}
	for _, r := range []struct {
		what, verbs string
		allowed     bool
	}{
		{"openstack.org/kuryrloadbalancers default/", "get list watch", true},
		{"openstack.org/kuryrloadbalancers default/", "create update patch delete", false},
		{"openstack.org/kuryrloadbalancers/status default/", "patch", false},
		{"openstack.org/kuryrnetworks default/", "get list watch", true},
		{"openstack.org/kuryrnetworks default/", "create update patch delete", false},
		{"openstack.org/kuryrloadbalancers kube-system/", "get list", false},
		{"openstack.org/kuryrports", "get list", false},
	} {
		for _, verb := range strings.Fields(r.verbs) {
			if got := may(t, alice, verb, r.what); got != r.allowed {
				t.Errorf("may who views default %s %s? got %v, want %v", verb, r.what, got, r.allowed)
			}
		}
	}
}

// aggregate gives a ClusterRole the rules of those that its selectors name, as
// Kubernetes' controller manager does.
func aggregate(t *testing.T, admin client.Client, name string) {
	t.Helper()
	var role rbacv1.ClusterRole
	if err := admin.Get(t.Context(), types.NamespacedName{Name: name}, &role); err != nil {
		t.Fatal(err)
	}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			t.Fatal(err)
		}
		var list rbacv1.ClusterRoleList
		if err := admin.List(t.Context(), &list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
			t.Fatal(err)
		}
		for _, r := range list.Items {
			role.Rules = append(role.Rules, r.Rules...)
		}
	}
	if err := admin.Update(t.Context(), &role); err != nil {
		t.Fatal(err)
	}
}

func may(t *testing.T, who client.Client, verb, what string) bool {
	t.Helper()
	resource, object, _ := strings.Cut(what, " ")
	parts := append(strings.Split(resource, "/"), "")
	attributes := &authorizationv1.ResourceAttributes{Verb: verb, Group: parts[0], Resource: parts[1], Subresource: parts[2]}
	if namespace, name, namespaced := strings.Cut(object, "/"); namespaced {
		attributes.Namespace, attributes.Name = namespace, name
	} else {
		attributes.Name = object
	}
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
	}
	if err := who.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

const (
	attach = `{"status":{"attachment":{"containerID":"c","interface":"eth0","since":"2026-01-02T03:04:05Z"}}}`
	detach = `{"status":{"attachment":null}}`
)

// A daemon reports where ports of its own node are plugged, and nothing else.
func TestDaemonPolicy(t *testing.T) {
	admin := as(t, rest.ImpersonationConfig{})
	own, other := makePort(t, admin, "node-1"), makePort(t, admin, "node-2")
	awaitPolicy(t, as(t, daemonOf("node-1")), other)
	report := func(user rest.ImpersonationConfig, port *unstructured.Unstructured, status string) error {
		return as(t, user).Status().Patch(t.Context(), port.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(status)))
	}
	// Twice: on a status that was never written, and on one that is full.
	for round, before := range []string{`{}`, `{"status":{"phase":"Bound","active":true,"appliedSecurityGroupIDs":["a"]}}`} {
		if err := report(rest.ImpersonationConfig{}, own, before); err != nil {
			t.Fatal(err)
		}
		for name, r := range map[string]struct {
			user    rest.ImpersonationConfig
			port    *unstructured.Unstructured
			status  string
			refused string
		}{
			"attach":         {daemonOf("node-1"), own, attach, ""},
			"detach":         {daemonOf("node-1"), own, detach, ""},
			"other node":     {daemonOf("node-1"), other, attach, "a daemon reports on KuryrPorts of its own node only: this one is of node node-2, and the token is of node node-1"},
			"no node":        {serviceAccount("kuryr-daemon"), own, attach, "the token is of none: use the token of the pod"},
			"phase":          {daemonOf("node-1"), own, `{"status":{"phase":"Failed"}}`, "of a KuryrPort's status a daemon writes the attachment only"},
			"active":         {daemonOf("node-1"), own, `{"status":{"active":false}}`, "writes the attachment only"},
			"activeFor":      {daemonOf("node-1"), own, `{"status":{"activeFor":"c"}}`, "writes the attachment only"},
			"groups":         {daemonOf("node-1"), own, `{"status":{"appliedSecurityGroupIDs":["b"]}}`, "writes the attachment only"},
			"conditions":     {daemonOf("node-1"), own, `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`, "writes the attachment only"},
			"the controller": {serviceAccount("kuryr-controller"), own, before, ""},
		} {
			err := report(r.user, r.port, r.status)
			switch {
			case r.refused == "" && err != nil:
				t.Errorf("round %d, %s: %v", round, name, err)
			case r.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), r.refused)):
				t.Errorf("round %d, %s: got %v, want it forbidden with %q", round, name, err, r.refused)
			}
		}
	}
}

func makePort(t *testing.T, c client.Client, node string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	text := `{"apiVersion": "openstack.org/v1", "kind": "KuryrPort", "metadata": {"name": "policy-` + node + `"},
	  "spec": {"pool": "p", "nodeName": "` + node + `", "networkID": "n", "vif": {"type": "ovs", "macAddress": "fa:16:3e:00:00:01",
	    "addresses": [{"ip": "10.0.0.5", "prefixLength": 24}]}}}`
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// awaitPolicy waits until the API server has taken up the policy, which is some
// time after it has accepted it.
func awaitPolicy(t *testing.T, daemon client.Client, otherNodes *unstructured.Unstructured) {
	t.Helper()
	for t.Context().Err() == nil {
		err := daemon.Status().Patch(t.Context(), otherNodes.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(detach)))
		if apierrors.IsForbidden(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
