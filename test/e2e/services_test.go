// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// withServices is onBed for tests that make Services: in the end none is left in
// Kubernetes, nor anything of them in the cloud, and no process of Kuryr's controller
// has ended.
func withServices(t testing.TB) *fixture {
	t.Helper()
	f := onBed(t)
	f.needsOctavia(t)
	f.unbroken(t)
	f.leavesNoServices(t)
	return f
}

// needsOctavia skips the test on a bed without Octavia (KURYR_BED_CLOUD=ovs).
func (f *fixture) needsOctavia(t testing.TB) {
	t.Helper()
	if f.Octavia == nil {
		t.Skip("SKIPPED: the bed's cloud has no Octavia, and so no Services")
	}
}

// hasServices returns whether Services can be made, and otherwise logs that the test leaves them out.
func (f *fixture) hasServices(t testing.TB) bool {
	t.Helper()
	if f.Octavia == nil {
		t.Log("LEFT OUT: Services, as the bed's cloud has no Octavia")
	}
	return f.Octavia != nil
}

// leavesNoServices deletes the test's Services at its end, and checks that nothing of
// them is left.
func (f *fixture) leavesNoServices(t testing.TB) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if t.Failed() {
			f.dumpServices(ctx, t)
		}
		if err := f.Client.DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace(f.namespace)); err != nil {
			t.Errorf("deleting the Services: %v", err)
		}
		began := time.Now()
		if err := cluster.Until(ctx, func() error { return f.cloudRests(ctx) }); err != nil {
			t.Errorf("after the Services were deleted: %v", err)
		}
		t.Logf("nothing of the Services is left after %.1f s", time.Since(began).Seconds())
	})
}

// cloudRests says what load balancers, floating IPs and VIPs belong to no
// KuryrLoadBalancer, or are missing; and which objects of the test are still there.
func (f *fixture) cloudRests(ctx context.Context) error {
	var services corev1.ServiceList
	var balancers v1.KuryrLoadBalancerList
	if err := f.Client.List(ctx, &services, client.InNamespace(f.namespace)); err != nil {
		return err
	}
	if err := f.Client.List(ctx, &balancers); err != nil {
		return err
	}
	if n := len(services.Items); n > 0 {
		return fmt.Errorf("%d Services are still there", n)
	}
	own, public := map[string]bool{}, map[string]bool{}
	for _, b := range balancers.Items {
		if b.Namespace == f.namespace {
			return fmt.Errorf("KuryrLoadBalancer %s is still there", b.Name)
		}
		for _, lb := range b.Status.LoadBalancers {
			own[lb.ID] = true
		}
		if ip := b.Status.PublicIP; ip != nil && ip.Made {
			public[ip.ID] = true
		}
	}
	return f.cloudHas(ctx, own, public)
}

// cloudHas says how the cluster's load balancers and floating IPs in the cloud
// differ from those wanted.
func (f *fixture) cloudHas(ctx context.Context, own, public map[string]bool) error {
	id, err := f.clusterID(ctx)
	if err != nil {
		return err
	}
	lbs, err := f.LoadBalancers(ctx, id)
	if err != nil {
		return err
	}
	if got, want := sorted(lbs), sorted(own); !slices.Equal(got, want) {
		return fmt.Errorf("Octavia has load balancers %v, want %v", got, want)
	}
	ips, err := f.FloatingIPs(ctx, id)
	if err != nil {
		return err
	}
	if got, want := sorted(ips), sorted(public); !slices.Equal(got, want) {
		return fmt.Errorf("Neutron has floating IPs %v, want %v", got, want)
	}
	vips, err := f.VIPs(ctx)
	if err != nil {
		return err
	}
	if got, want := sorted(vips), sorted(own); !slices.Equal(got, want) {
		return fmt.Errorf("Neutron has VIPs of load balancers %v, want of %v", got, want)
	}
	return nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// clusterID is the mark of what is this cluster's in the cloud.
func (f *fixture) clusterID(ctx context.Context) (string, error) {
	var system corev1.Namespace
	err := f.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system)
	return string(system.UID), err
}

func (f *fixture) dumpServices(ctx context.Context, t testing.TB) {
	var balancers v1.KuryrLoadBalancerList
	if err := f.Client.List(ctx, &balancers, client.InNamespace(f.namespace)); err != nil {
		t.Logf("listing KuryrLoadBalancers: %v", err)
	}
	for _, b := range balancers.Items {
		t.Logf("KuryrLoadBalancer %s: spec %+v, status %+v", b.Name, b.Spec, b.Status)
	}
}

// servers has n pods of Template behind the label app=name, spread over the nodes,
// and waits until they are ready and no others are left.
func (f *fixture) servers(t testing.TB, name string, n int, change ...func(*corev1.PodSpec)) []*corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = f.namespace, name
	replicas := int32(n)
	d.Spec = appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: cluster.Template(labels, "")}
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
	}}
	for _, c := range change {
		c(&d.Spec.Template.Spec)
	}
	err := f.Client.Create(t.Context(), d)
	if err == nil { // its pods come again as long as it is there
		t.Cleanup(func() { _ = f.Client.Delete(context.Background(), d) }) // the namespace takes it along otherwise
	}
	if apierrors.IsAlreadyExists(err) {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, n))
		err = f.Client.Patch(t.Context(), d, patch)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	eventually(t, func() error {
		pods, err = f.labelled(t.Context(), labels)
		if err == nil && len(pods) != n {
			err = fmt.Errorf("%s has %d pods, want %d", name, len(pods), n)
		}
		return err
	})
	return pods
}

// labelled returns the pods of a label, all of which have an address.
func (f *fixture) labelled(ctx context.Context, labels map[string]string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := f.Client.List(ctx, &list, client.InNamespace(f.namespace), client.MatchingLabels(labels)); err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i, p := range list.Items {
		if p.Status.PodIP == "" || p.Status.Phase != corev1.PodRunning {
			return nil, fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
		}
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

func names(pods []*corev1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// at returns where pods serve on a port, sorted.
func at(pods []*corev1.Pod, port int) []string {
	var all []string
	for _, p := range pods {
		all = append(all, fmt.Sprintf("%s:%d", p.Status.PodIP, port))
	}
	slices.Sort(all)
	return all
}

// service makes a Service before the pods of app=name: port 80 of TCP and of UDP.
func (f *fixture) service(t testing.TB, name string, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	t.Helper()
	svc := &corev1.Service{}
	svc.Namespace, svc.Name = f.namespace, name
	svc.Spec = corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)},
		{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, TargetPort: intstr.FromInt32(8081)},
	}}
	for _, c := range change {
		c(&svc.Spec)
	}
	if err := f.Client.Create(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	return svc
}

// becomes changes a Service, which is read back.
func (f *fixture) becomes(t testing.TB, svc *corev1.Service, change func(*corev1.Service)) {
	t.Helper()
	eventually(t, func() error { // Kuryr and Kubernetes write it, too
		if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
			return err
		}
		change(svc)
		return f.Client.Update(t.Context(), svc)
	})
}

// realised waits until the cloud has what a Service asks for, and returns its
// KuryrLoadBalancer.
func (f *fixture) realised(t testing.TB, svc *corev1.Service) *v1.KuryrLoadBalancer {
	t.Helper()
	klb := &v1.KuryrLoadBalancer{}
	eventually(t, func() error {
		klb = &v1.KuryrLoadBalancer{}
		if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(svc), klb); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != klb.Generation || len(klb.Status.LoadBalancers) == 0 {
			return fmt.Errorf("KuryrLoadBalancer %s of generation %d is not there: %+v", klb.Name, klb.Generation, ready)
		}
		return nil
	})
	return klb
}

// members waits until Octavia has just these members, as IP:port, behind a port of
// a Service, as <protocol>:<port>, and returns their IDs.
func (f *fixture) members(t testing.TB, svc *corev1.Service, port string, want []string) map[string]string {
	t.Helper()
	var ids map[string]string
	eventually(t, func() error {
		klb := &v1.KuryrLoadBalancer{}
		if err := f.Client.Get(t.Context(), client.ObjectKeyFromObject(svc), klb); err != nil {
			return err
		}
		if len(klb.Status.LoadBalancers) == 0 {
			return fmt.Errorf("KuryrLoadBalancer %s names no load balancer", klb.Name)
		}
		all, err := f.Listeners(t.Context(), klb.Status.LoadBalancers[0].ID)
		if err != nil {
			return err
		}
		listener, there := all[port]
		if !there {
			return fmt.Errorf("load balancer %s listens on %v, want %s", klb.Status.LoadBalancers[0].ID, sorted(all), port)
		}
		got, by, err := f.Members(t.Context(), listener.DefaultPoolID)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%s of %s has members %v, want %v", port, svc.Name, got, want)
		}
		ids = by
		return err
	})
	return ids
}

// asker runs a shell's script somewhere, and returns what it printed.
type asker func(ctx context.Context, script string) (string, error)

func (f *fixture) inPod(pod *corev1.Pod) asker {
	return func(ctx context.Context, script string) (string, error) {
		return f.Exec(ctx, pod.Namespace, pod.Name, "sh", "-c", script)
	}
}

func (f *fixture) byNode(node string) asker {
	return func(ctx context.Context, script string) (string, error) {
		return f.OnNode(ctx, node, "sh", "-c", script)
	}
}

// outside is the machine, which is neither a node nor on a network of the cloud's.
func outside(ctx context.Context, script string) (string, error) {
	return cluster.OnMachine(ctx, "sh", "-c", script)
}

// get is a script that asks for a page, and says so if there is no answer.
func get(url string) string {
	return "curl -sS -m3 --noproxy '*' '" + url + "' 2>&1 || true; echo;"
}

// send is a script that sends a word by UDP.
func send(word, ip string, port int) string {
	return fmt.Sprintf("echo %s | nc -u -w1 %s %d; echo;", word, ip, port)
}

// answers waits until a script that is run times times, at once, has just these
// answers, whatever their order, and no other.
func (a asker) answers(t testing.TB, script string, times int, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
		out, err := a(t.Context(), fmt.Sprintf("for i in $(seq %d); do (out=$(%s); echo \"$out\") & done; wait", times, script))
		if err != nil {
			return err
		}
		got := strings.Split(out, "\n")
		got = slices.DeleteFunc(got, func(s string) bool { return strings.TrimSpace(s) == "" })
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			return fmt.Errorf("%q answers %q, want %q", script, got, want)
		}
		return nil
	})
}

// all waits until all of a Service's pods answer at an address.
func (a asker) all(t testing.TB, address string, pods []*corev1.Pod) {
	t.Helper()
	a.answers(t, get("http://"+inURL(address)+"/hostname"), 10*len(pods), names(pods)...)
}

// inURL returns a host or an address as URLs have it: of IPv6 in brackets.
func inURL(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		return "[" + host + "]"
	}
	return host
}
