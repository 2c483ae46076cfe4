// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// long skips a test with -short: .ci/run has no time for it.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED with -short: make e2e runs it")
	}
}

// withNetworks is onBed for a test whose namespace has a network of its own: with it
// everything goes that it has in the cloud.
func withNetworks(t testing.TB, change ...func(*corev1.Namespace)) *fixture {
	t.Helper()
	if os.Getenv("KURYR_BED_KIND") == "sim" {
		t.Skip("SKIPPED: the bed's OpenStack is simulated, and has neither tenants nor packets")
	}
	f := onBedWith(t, change...)
	f.unbroken(t)
	t.Cleanup(func() { f.ends(t) })
	return f
}

// beside is a namespace beside that of the test, which goes with it.
func (f *fixture) beside(t testing.TB, name string, change ...func(*corev1.Namespace)) *fixture {
	t.Helper()
	other := &fixture{Cluster: f.Cluster, namespace: f.namespace + "-" + name}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := f.EnsureNamespace(ctx, other.namespace, change...); err != nil {
		t.Fatal(err)
	}
	f.others = append(f.others, other)
	return other
}

// mode has a namespace choose its mode, and project its project.
func mode(m v1.NetworkMode) func(*corev1.Namespace) {
	return chooses(v1.NetworkModeAnnotation, string(m))
}

func project(id string) func(*corev1.Namespace) { return chooses(v1.ProjectAnnotation, id) }

func chooses(annotation, value string) func(*corev1.Namespace) {
	return func(n *corev1.Namespace) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, annotation, value) }
}

// annotate changes an annotation of the test's namespace; "" removes it.
func (f *fixture) annotate(t testing.TB, name, value string) {
	t.Helper()
	namespace := &corev1.Namespace{}
	namespace.Name = f.namespace
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, name, value)
	if value == "" {
		patch = fmt.Appendf(nil, `{"metadata": {"annotations": {%q: null}}}`, name)
	}
	if err := f.Client.Patch(t.Context(), namespace, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}

// network waits until the namespace's KuryrNetwork is ready, and returns it.
func (f *fixture) network(t testing.TB) *v1.KuryrNetwork {
	t.Helper()
	kns := &v1.KuryrNetwork{}
	eventually(t, func() error {
		*kns = v1.KuryrNetwork{}
		if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: f.namespace}, kns); err != nil {
			return err
		}
		if kns.DeletionTimestamp != nil || !meta.IsStatusConditionTrue(kns.Status.Conditions, v1.ConditionReady) {
			return fmt.Errorf("KuryrNetwork %s is not ready: %+v", kns.Name, kns.Status.Conditions)
		}
		return nil
	})
	return kns
}

// knows reports whether the namespace has a KuryrNetwork.
func (f *fixture) knows(t testing.TB) bool {
	t.Helper()
	err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: f.namespace}, &v1.KuryrNetwork{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// unknown waits until the namespace has no KuryrNetwork, and Neutron none for it.
func (f *fixture) unknown(t testing.TB) {
	t.Helper()
	eventually(t, func() error {
		if f.knows(t) {
			return fmt.Errorf("KuryrNetwork %s is still there", f.namespace)
		}
		return f.networksRest(t.Context())
	})
}

// plans waits until the KuryrNetwork's condition Planned has a status and names one of
// wants.
func (f *fixture) plans(t testing.TB, status metav1.ConditionStatus, wants ...string) {
	t.Helper()
	f.networkSays(t, "Planned", status, wants...)
}

// networkSays is plans for a condition; of "" any will do.
func (f *fixture) networkSays(t testing.TB, condition string, status metav1.ConditionStatus, wants ...string) {
	t.Helper()
	eventually(t, func() error {
		var kns v1.KuryrNetwork
		if err := f.Client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: f.namespace}, &kns); err != nil {
			return err
		}
		for _, c := range kns.Status.Conditions {
			text := c.Reason + ": " + c.Message
			if strings.HasSuffix(c.Type, condition) && c.Status == status &&
				slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(text, want) }) {
				t.Logf("KuryrNetwork %s: %s=%s %s", kns.Name, c.Type, c.Status, text)
				return nil
			}
		}
		return fmt.Errorf("KuryrNetwork %s says %+v, want %s=%s that names one of %q", kns.Name, kns.Status.Conditions, condition, status, wants)
	})
}

// told waits for an Event of Kuryr's on the namespace, or on its KuryrNetwork, that
// names one of wants.
func (f *fixture) told(t testing.TB, wants ...string) {
	t.Helper()
	var seen []string
	eventually(t, func() error {
		seen = seen[:0]
		for _, namespace := range []string{f.namespace, metav1.NamespaceDefault} { // of what is in no namespace
			var events corev1.EventList
			if err := f.Client.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
				return err
			}
			for _, e := range events.Items {
				if e.InvolvedObject.Name != f.namespace || e.ReportingController != "kuryr-controller" {
					continue
				}
				text := e.Reason + ": " + e.Message
				seen = append(seen, text)
				if slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(text, want) }) {
					t.Logf("event on %s %s: %s", e.InvolvedObject.Kind, f.namespace, text)
					return nil
				}
			}
		}
		return fmt.Errorf("no event on namespace or network %s names one of %q, only %q", f.namespace, wants, seen)
	})
}

// ends deletes the namespace and those beside it, and checks that Kubernetes is rid of
// them within two minutes, and the cloud of what they had there.
func (f *fixture) ends(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	all := append(slices.Clone(f.others), f)
	f.others = nil
	began := time.Now()
	for _, own := range all {
		if t.Failed() {
			own.dump(ctx, t)
			own.dumpServices(ctx, t)
		}
		if err := own.deleteNamespace(ctx); err != nil {
			t.Errorf("deleting namespace %s: %v", own.namespace, err)
		}
	}
	if t.Failed() {
		f.dumpNetworks(ctx, t)
	}
	err := cluster.Until(ctx, func() error {
		for _, own := range all {
			if err := errors.Join(own.namespaceGone(ctx), own.cloudRests(ctx)); err != nil {
				return err
			}
		}
		return f.networksRest(ctx)
	})
	if err != nil {
		f.dumpNetworks(context.Background(), t)
		t.Errorf("after namespace %s was deleted: %v", f.namespace, err)
		return
	}
	t.Logf("nothing is left of namespace %s after %.1f s", f.namespace, time.Since(began).Seconds())
}

// networksRest says which networks, subnets and routers of the cluster in the cloud belong
// to no KuryrNetwork, or are missing.
func (f *fixture) networksRest(ctx context.Context) error {
	id, err := f.clusterID(ctx)
	if err != nil {
		return err
	}
	var list v1.KuryrNetworkList
	if err := f.Client.List(ctx, &list); err != nil {
		return err
	}
	networks, subnets, routers := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, kns := range list.Items {
		if kns.Spec.Mode != v1.NetworkNamespace && kns.Spec.Mode != v1.NetworkFlat {
			continue
		}
		if kns.Status.NetworkID != "" {
			networks[kns.Status.NetworkID] = true
		}
		for _, s := range kns.Status.Subnets {
			subnets[s.ID] = true
		}
		if kns.Spec.Router != nil && kns.Status.RouterID != "" {
			routers[kns.Status.RouterID] = true
		}
	}
	inCloud, err := f.Networks(ctx, id)
	if err != nil {
		return err
	}
	if got, want := sorted(inCloud), sorted(networks); !slices.Equal(got, want) {
		return fmt.Errorf("Neutron has networks %v, want %v", got, want)
	}
	subnetsInCloud, err := f.Subnets(ctx, id)
	if err != nil {
		return err
	}
	if got, want := sorted(subnetsInCloud), sorted(subnets); !slices.Equal(got, want) {
		return fmt.Errorf("Neutron has subnets %v, want %v", got, want)
	}
	routersInCloud, err := f.Routers(ctx, id)
	if err != nil {
		return err
	}
	if got, want := sorted(routersInCloud), sorted(routers); !slices.Equal(got, want) {
		return fmt.Errorf("Neutron has routers %v, want %v", got, want)
	}
	return nil
}

func (f *fixture) dumpNetworks(ctx context.Context, t testing.TB) {
	var list v1.KuryrNetworkList
	if err := f.Client.List(ctx, &list); err != nil {
		t.Logf("listing KuryrNetworks: %v", err)
	}
	for _, kns := range list.Items {
		t.Logf("KuryrNetwork %s (deleted %v): spec %+v, status %+v", kns.Name, kns.DeletionTimestamp, kns.Spec, kns.Status)
	}
}

// check is something to be tried until it is so.
type check struct {
	what string
	try  func(ctx context.Context) error
}

// all tries checks at the same time until all of them are so.
func all(t testing.TB, checks ...check) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var wg sync.WaitGroup
	faults := make([]error, len(checks))
	for i, c := range checks {
		wg.Go(func() {
			if err := cluster.Until(ctx, func() error { return c.try(ctx) }); err != nil {
				faults[i] = fmt.Errorf("%s: %w", c.what, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(faults...); err != nil {
		t.Fatal(err)
	}
}

// is is a check that a script is answered by want.
func (a asker) is(what, script, want string) check {
	return check{what, func(ctx context.Context) error {
		got, err := a(ctx, script)
		if err == nil && strings.TrimSpace(got) != want {
			err = fmt.Errorf("%q: got %q, want %q", script, got, want)
		}
		return err
	}}
}

// between checks ICMP, TCP and UDP from one pod to another, of any namespace.
func (f *fixture) between(from, to *corev1.Pod) check {
	var script, want string
	for _, ip := range to.Status.PodIPs {
		host := ip.IP
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		script += "ping -c1 -W1 " + ip.IP + " >/dev/null && echo ICMP; curl -sS -g -m3 --noproxy '*' http://" + host + ":8080/hostname; echo; " +
			"echo hostname | nc -u -w1 " + ip.IP + " 8081; echo; "
		want += "ICMP\n" + to.Name + "\n" + to.Name + "\n"
	}
	what := fmt.Sprintf("pod %s/%s on %s to %s/%s on %s", from.Namespace, from.Name, from.Spec.NodeName, to.Namespace, to.Name, to.Spec.NodeName)
	return f.inPod(from).is(what, script, strings.TrimSpace(want))
}

// apart is a check that one pod does not reach another.
func (f *fixture) apart(from, to *corev1.Pod) check {
	what := fmt.Sprintf("pod %s/%s apart from %s/%s", from.Namespace, from.Name, to.Namespace, to.Name)
	script := "ping -c2 -W1 " + to.Status.PodIP + " >/dev/null && echo ICMP; " +
		"curl -sS -m2 --noproxy '*' http://" + to.Status.PodIP + ":8080/hostname 2>/dev/null && echo; true"
	return f.inPod(from).is(what, script, "")
}

// works checks all ways of pods on two nodes: to each other and back, to a pod of
// another namespace and back, and to their surroundings.
func (f *fixture) works(t testing.TB, pods []*corev1.Pod, other *corev1.Pod) {
	t.Helper()
	a, b, c := pods[0], pods[1], pods[2]
	if a.Spec.NodeName == b.Spec.NodeName || a.Spec.NodeName != c.Spec.NodeName {
		t.Fatalf("pods are on %s, %s and %s, want two on one node", a.Spec.NodeName, b.Spec.NodeName, c.Spec.NodeName)
	}
	checks := []check{
		f.between(a, b), f.between(b, a), f.between(a, c), f.between(c, a),
		f.between(a, other), f.between(b, other), f.between(other, a), f.between(other, b),
	}
	all(t, append(checks, f.surroundings(t, a, b)...)...)
}

// surroundings are checks of pods and nodes with each other, by ping both ways, and of
// pods with cluster DNS, the API server and an address outside of the cloud. Without Octavia
// cluster IPs, and so cluster DNS, are left out.
func (f *fixture) surroundings(t testing.TB, pods ...*corev1.Pod) []check {
	t.Helper()
	checks := f.routed(t, pods...)
	if f.Octavia == nil {
		return checks
	}
	for _, pod := range pods {
		checks = append(checks, f.inPod(pod).is("pod "+pod.Namespace+"/"+pod.Name+" to the API server by its cluster IP",
			"curl -sSk -m3 --noproxy '*' https://10.96.0.1/readyz", "ok"))
	}
	return checks
}

// routed are the surroundings of pods behind any router. The API server answers pods
// behind another router than the VIP's by its own address, which they did not ask.
func (f *fixture) routed(t testing.TB, pods ...*corev1.Pod) []check {
	t.Helper()
	api, _, _ := strings.Cut(os.Getenv("KUBERNETES_API"), ":")
	outside := netip.MustParsePrefix(os.Getenv("EXT_CIDR")).Masked().Addr().Next() // br-ex, beyond the router
	var checks []check
	for _, pod := range pods {
		from, name := f.inPod(pod), pod.Namespace+"/"+pod.Name
		for _, node := range nodes {
			ping := "ping -c1 -W1 %s >/dev/null && echo ok"
			checks = append(checks,
				f.byNode(node).is("node "+node+" to pod "+name, fmt.Sprintf(ping, pod.Status.PodIP), "ok"),
				from.is("pod "+name+" to node "+node, fmt.Sprintf(ping, f.nodeIP(t, node)), "ok"))
		}
		checks = append(checks,
			from.is("pod "+name+" to the API server", "curl -sSk -m3 --noproxy '*' https://"+api+":6443/readyz", "ok"),
			from.is("pod "+name+" to the outside", "ping -c1 -W1 "+outside.String()+" >/dev/null && echo ok", "ok"))
		if f.Octavia != nil {
			checks = append(checks,
				from.is("pod "+name+" to cluster DNS", "getent hosts kubernetes.default.svc.cluster.local | cut -d' ' -f1", "10.96.0.1"))
		}
	}
	return checks
}
