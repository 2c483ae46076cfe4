// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
)

// kubeconfig is of the API server that the tests share, and server a client of
// it; empty without one.
var (
	kubeconfig string
	server     client.WithWatch
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kubectl-kuryr")
	if err != nil {
		panic(err)
	}
	code := apitest.Run(m, func(env *envtest.Environment) (err error) {
		kubeconfig = filepath.Join(dir, "kubeconfig")
		if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
			return err
		}
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme} {
			if err := add(scheme); err != nil {
				return err
			}
		}
		server, err = client.NewWithWatch(env.Config, client.Options{Scheme: scheme})
		return err
	})
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// kuryr runs the command and returns what it printed.
func kuryr(t *testing.T, args ...string) (string, error) {
	t.Helper()
	apitest.Need(t)
	var out bytes.Buffer
	root := rootCommand(&tool{now: time.Now, pause: 20 * time.Millisecond})
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"--kubeconfig", kubeconfig}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// makePool makes a pool of node with free ports and bound ones.
func makePool(t *testing.T, name, node string, minimum, maximum int32, free, bound int) *v1.KuryrPortPool {
	t.Helper()
	apitest.Need(t)
	p := &v1.KuryrPortPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.KuryrPortPoolSpec{Key: v1.PoolKey{NodeName: node, SubnetIDs: []string{"sub"}}, Min: minimum, Max: maximum, Batch: 1},
	}
	create(t, p)
	for i := range free + bound {
		port := &v1.KuryrPort{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-port-%d", name, i)},
			Spec: v1.KuryrPortSpec{
				Pool: name, NodeName: node, NetworkID: "net",
				VIF: v1.VIF{Type: "ovs", MACAddress: "fa:16:3e:00:00:01", Addresses: []v1.Address{{IP: fmt.Sprintf("10.0.0.%d", i+1), PrefixLength: 24}}},
			},
		}
		if i >= free {
			port.Spec.PodRef = &v1.PodReference{Namespace: "default", Name: fmt.Sprintf("web-%d", i), UID: "u", Interface: "eth0"}
		}
		create(t, port)
	}
	p.Status = v1.KuryrPortPoolStatus{Available: int32(free), Bound: int32(bound), Total: int32(free + bound)}
	if err := server.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := server.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(server.Delete(context.WithoutCancel(t.Context()), o, client.GracePeriodSeconds(0))); err != nil {
			t.Error(err)
		}
	})
}

func portsLeft(t *testing.T, pool string) (free, bound int) {
	t.Helper()
	left, err := ports(t.Context(), server, pool)
	if err != nil {
		t.Fatal(err)
	}
	for i := range left {
		if left[i].Spec.PodRef == nil {
			free++
		} else {
			bound++
		}
	}
	return free, bound
}

// TestListsTellOfAFirstStart: a first start that waits is why there are no pools and no load balancers.
// The lists say so beside their output, and no longer once Kuryr serves.
func TestListsTellOfAFirstStart(t *testing.T) {
	apitest.Need(t)
	cluster := &v1.KuryrCluster{ObjectMeta: metav1.ObjectMeta{Name: v1.ClusterName}}
	create(t, cluster)
	for _, serving := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
		cluster.Status.Conditions = []metav1.Condition{{
			Type: v1.ConditionServing, Status: serving, Reason: v1.ReasonFirstStartWaits, Message: "PodSubnetMissing.", LastTransitionTime: metav1.Now(),
		}}
		if err := server.Status().Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"pools", "list"}, {"services", "list", "-A", "-o", "name"}} {
			out, err := kuryr(t, args...)
			if says := strings.Contains(out, "FirstStartWaits: PodSubnetMissing. All findings: kubectl describe kuryrclusters"); err != nil || says != (serving == metav1.ConditionFalse) {
				t.Errorf("%v while Serving is %s = %q, %v; want that it tells of the first start only if that is False", args, serving, out, err)
			}
		}
	}
}

func TestListNamesPools(t *testing.T) {
	if out, err := kuryr(t, "pools", "list"); err != nil || !strings.Contains(out, "There are no pools") {
		t.Errorf("list without pools: %q, %v", out, err)
	}
	makePool(t, "list-b", "node-b", 0, 0, 1, 0)
	makePool(t, "list-a", "node-a", 0, 0, 2, 1)
	out, err := kuryr(t, "pools", "list", "-o", "name")
	if want := "kuryrportpool.openstack.org/list-a\nkuryrportpool.openstack.org/list-b\n"; err != nil || out != want {
		t.Errorf("list -o name: %q, %v, want %q", out, err, want)
	}
	out, err = kuryr(t, "pools", "list", "--node", "node-b")
	if err != nil || strings.Contains(out, "list-a") || !strings.Contains(out, "list-b   node-b   1           0 ") {
		t.Errorf("list --node node-b: %v\n%s", err, out)
	}
}

// What list -o name prints is taken where a name is; a name of another kind is not.
func TestNamesWithTheirKind(t *testing.T) {
	makePool(t, "kind-1", "kind-node", 0, 0, 1, 0)
	for _, verb := range [][]string{{"show"}, {"fill", "--ports", "3"}, {"free"}} {
		for _, prefix := range []string{"kuryrportpool.openstack.org/", "kpp/"} {
			out, err := kuryr(t, append(append([]string{"pools"}, verb...), prefix+"kind-1")...)
			if err != nil || !strings.Contains(out, "kind-1") || verb[0] == "show" && !strings.Contains(out, "kind-1-port-0") {
				t.Errorf("%s %skind-1: %q, %v", verb[0], prefix, out, err)
			}
		}
		if out, err := kuryr(t, append(append([]string{"pools"}, verb...), "pod/kind-1")...); err == nil {
			t.Errorf("%s pod/kind-1: %q, want an error", verb[0], out)
		}
	}
	if free, _ := portsLeft(t, "kind-1"); free != 0 {
		t.Error("free kpp/kind-1 left a port")
	}
}

// The pool's Events are found: those of the controller, about pool, ports and
// pods of the node, and of nobody else.
func TestShowFindsPortsAndEvents(t *testing.T) {
	p := makePool(t, "show-1", "show-node", 0, 0, 1, 1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "waits"}, Spec: corev1.PodSpec{
		NodeName: "show-node", Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
	create(t, pod)
	for i, e := range []corev1.Event{
		{Reason: "OfThePod", ReportingController: reporter, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "waits", UID: pod.UID}},
		{Reason: "OfThePool", ReportingController: reporter, InvolvedObject: corev1.ObjectReference{Kind: "KuryrPortPool", Name: p.Name, UID: p.UID}},
		{Reason: "OfAnother", ReportingController: reporter, InvolvedObject: corev1.ObjectReference{Kind: "KuryrPortPool", Name: "other", UID: "another"}},
		{Reason: "BySomebodyElse", ReportingController: "kubelet", InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "waits", UID: pod.UID}},
	} {
		e.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("show-event-%d", i)}
		e.EventTime, e.ReportingInstance, e.Action, e.Type = metav1.NowMicro(), "i", "Act", "Warning"
		create(t, &e)
	}
	out, err := kuryr(t, "pools", "show", "show-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"show-1-port-0   10.0.0.1", "default/web-1", "OfThePod", "OfThePool", "pod/default/waits"} {
		if !strings.Contains(out, want) {
			t.Errorf("show does not say %q:\n%s", want, out)
		}
	}
	for _, not := range []string{"OfAnother", "BySomebodyElse"} {
		if strings.Contains(out, not) {
			t.Errorf("show tells of %s:\n%s", not, out)
		}
	}
}

func TestUnknownPool(t *testing.T) {
	makePool(t, "node-7-0123456789", "node-7", 0, 0, 1, 0)
	for _, verb := range [][]string{{"show"}, {"fill", "--ports", "3"}, {"free"}} {
		out, err := kuryr(t, append(append([]string{"pools"}, verb...), "node-7")...)
		if err == nil || !strings.Contains(err.Error(), `there is no pool "node-7"; 'kubectl kuryr pools list'`) {
			t.Errorf("%s node-7: %q, %v", verb[0], out, err)
		}
	}
	if free, _ := portsLeft(t, "node-7-0123456789"); free != 1 {
		t.Error("a mistyped name freed a pool")
	}
}

func TestFillAsks(t *testing.T) {
	makePool(t, "fill-1", "node-1", 1, 10, 2, 0)
	for _, r := range []struct{ ports, want, annotation string }{
		{"0", "", ""},
		{"11", "", ""},
		{"2", "pool fill-1 has 2 free already\n", ""},
		{"7", "pool fill-1: asked for 7 free ports, 2 are free\n", "7"},
	} {
		out, err := kuryr(t, "pools", "fill", "fill-1", "--ports", r.ports)
		if (err != nil) != (r.want == "") || out != r.want {
			t.Errorf("fill --ports %s: %q, %v, want %q", r.ports, out, err, r.want)
		}
		p, err := pool(t.Context(), server, "fill-1")
		if err != nil || p.Annotations[v1.FillAnnotation] != r.annotation {
			t.Errorf("after fill --ports %s: annotation %q, %v, want %q", r.ports, p.Annotations[v1.FillAnnotation], err, r.annotation)
		}
	}
}

// fill --wait tells how it goes and ends when the controller has taken the
// order away; here a test plays the controller, which meets a quota on its way.
func TestFillWaits(t *testing.T) {
	p := makePool(t, "fill-2", "node-2", 1, 0, 0, 0)
	ended := make(chan error, 1)
	go func() { ended <- playController(t.Context(), p.Name) }()
	out, err := kuryr(t, "pools", "fill", "fill-2", "--ports", "4", "--wait")
	if e := <-ended; e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Fatalf("fill --wait: %v\n%s", err, out)
	}
	for _, want := range []string{"asked for 4 free ports, 0 are free\n", "2 of 4 are free; OverQuota: 9 of 9 ports are used\n", "filled, 4 are free\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("fill --wait does not say %q:\n%s", want, out)
		}
	}
}

func playController(ctx context.Context, name string) error {
	if err := step(ctx, name, 2, true, false); err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond) // ten looks: fill is to see this step
	return step(ctx, name, 4, false, true)
}

// ordered waits until an order is on a pool.
func ordered(ctx context.Context, name string) (*v1.KuryrPortPool, error) {
	for {
		p, err := pool(ctx, server, name)
		if err != nil || p.Annotations[v1.FillAnnotation] != "" {
			return p, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// step waits for the order and then says how the pool stands; if it is done, a
// moment after the order is taken away, as the controller does.
func step(ctx context.Context, name string, free int32, quota, done bool) error {
	p, err := ordered(ctx, name)
	if err != nil {
		return err
	}
	if done {
		if err := ask(ctx, server, p, ""); err != nil {
			return err
		}
		time.Sleep(30 * time.Millisecond)
		if p, err = pool(ctx, server, name); err != nil {
			return err
		}
	}
	p.Status.Available = free
	is := metav1.ConditionFalse
	if quota {
		is = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1.ConditionOverQuota, Status: is, Reason: "OverQuota", Message: "9 of 9 ports are used"})
	return server.Status().Update(ctx, p)
}

func TestFillGivesUp(t *testing.T) {
	makePool(t, "fill-3", "node-3", 0, 0, 1, 0)
	_, err := kuryr(t, "pools", "fill", "fill-3", "--ports", "4", "--wait", "--timeout", "100ms")
	if err == nil || !strings.Contains(err.Error(), "pool fill-3 has 1 of 4 free after 100ms") {
		t.Errorf("fill without a controller: %v", err)
	}
}

// What is left when the order is gone says whether it was carried out.
func TestFillSeesItsOrderGo(t *testing.T) {
	for name, r := range map[string]struct {
		annotation  string
		free, bound int32
		err         string
	}{
		"taken-by-pods": {"", 1, 5, ""},
		"taken-back":    {"", 1, 2, "has 1 of 4 free, and the order is gone"},
		"another":       {"9", 1, 2, "has 1 of 4 free, and another user has replaced the order by one for 9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := makePool(t, "fill-"+name, "node-4", 1, 0, 0, 2)
			ended := make(chan error, 1)
			go func() { ended <- orderEnds(t.Context(), p.Name, r.annotation, r.free, r.bound) }()
			out, err := kuryr(t, "pools", "fill", p.Name, "--ports", "4", "--wait")
			if e := <-ended; e != nil {
				t.Fatal(e)
			}
			if r.err == "" && (err != nil || !strings.Contains(out, "filled, 1 are free\n")) {
				t.Errorf("fill --wait: %v\n%s", err, out)
			}
			if r.err != "" && (err == nil || !strings.Contains(err.Error(), r.err) || strings.Contains(out, "filled")) {
				t.Errorf("fill --wait: %v, want %q\n%s", err, r.err, out)
			}
		})
	}
}

// orderEnds waits for the order, says how the pool stands, and puts another
// annotation in the order's place.
func orderEnds(ctx context.Context, name, annotation string, free, bound int32) error {
	p, err := ordered(ctx, name)
	if err != nil {
		return err
	}
	p.Status.Available, p.Status.Bound = free, bound
	if err := server.Status().Update(ctx, p); err != nil {
		return err
	}
	return ask(ctx, server, p, annotation)
}

func TestFreeDeletesWhatIsFree(t *testing.T) {
	makePool(t, "free-1", "node-1", 2, 0, 12, 2)
	makePool(t, "free-2", "node-2", 0, 0, 1, 0)
	if _, err := kuryr(t, "pools", "fill", "free-1", "--ports", "20"); err != nil {
		t.Fatal(err)
	}
	out, err := kuryr(t, "pools", "free", "free-1")
	if want := "pool free-1: deleted 12 free ports; it fills up to 2 again (its min)\n"; err != nil || out != want {
		t.Errorf("free free-1: %q, %v, want %q", out, err, want)
	}
	if free, bound := portsLeft(t, "free-1"); free != 0 || bound != 2 {
		t.Errorf("after free: %d free and %d bound, want 0 and 2", free, bound)
	}
	if free, _ := portsLeft(t, "free-2"); free != 1 {
		t.Error("free of one pool freed another")
	}
	if p, err := pool(t.Context(), server, "free-1"); err != nil || p.Annotations[v1.FillAnnotation] != "" {
		t.Errorf("after free the pool is still to be filled: %v, %v", p.Annotations, err)
	}
	out, err = kuryr(t, "pools", "free", "--all")
	want := "pool free-1: deleted 0 free ports; it fills up to 2 again (its min)\n" +
		"pool free-2: deleted 1 free port; it stays empty until a pod needs a port\n"
	if err != nil || out != want {
		t.Errorf("free --all: %q, %v, want %q", out, err, want)
	}
	for _, args := range [][]string{{"pools", "free"}, {"pools", "free", "--all", "free-1"}} {
		if _, err := kuryr(t, args...); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// A port that a pod gets between the look and the deletion stays; one that only
// changes is deleted as it is then.
func TestFreeLeavesWhatAPodGets(t *testing.T) {
	makePool(t, "race-1", "node-1", 0, 0, 2, 0)
	meanwhile := interceptor.NewClient(server, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			port := &v1.KuryrPort{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), port); err != nil {
				return err
			}
			switch {
			case o.GetName() == "race-1-port-0":
				port.Spec.PodRef = &v1.PodReference{Namespace: "default", Name: "web-0", UID: "u", Interface: "eth0"}
			case port.Labels == nil:
				port.Labels = map[string]string{"seen": "yes"}
			}
			if err := c.Update(ctx, port); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
	})
	p, err := pool(t.Context(), server, "race-1")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := free(t.Context(), meanwhile, &out, p); err != nil {
		t.Error(err)
	}
	if want := "pool race-1: deleted 1 free port, left 1 that pods got meanwhile; it stays empty until a pod needs a port\n"; out.String() != want {
		t.Errorf("free: %q, want %q", &out, want)
	}
	if free, bound := portsLeft(t, "race-1"); free != 0 || bound != 1 {
		t.Errorf("after free: %d free and %d bound, want 0 and 1", free, bound)
	}
}

func TestCompletion(t *testing.T) {
	makePool(t, "complete-1", "node-1", 0, 0, 0, 0)
	makePool(t, "complete-2", "node-1", 0, 0, 0, 0)
	out, err := kuryr(t, cobra.ShellCompRequestCmd, "--kubeconfig", kubeconfig, "pools", "free", "complete-1", "")
	if err != nil || !strings.Contains(out, "complete-2\n") || strings.Contains(out, "complete-1\n") {
		t.Errorf("completion of a second pool: %v\n%s", err, out)
	}
}

func TestErrorsAreForPeople(t *testing.T) {
	for _, r := range []struct {
		err  error
		want string
	}{
		{&meta.NoKindMatchError{}, "Kuryr is not installed"},
		{apierrors.NewForbidden(v1.GroupVersion.WithResource("kuryrports").GroupResource(), "", nil), "docs/kubectl-kuryr.md"},
	} {
		if got := explain("listing pools", r.err); got == nil || !strings.Contains(got.Error(), r.want) {
			t.Errorf("explain(%v): got %v, want %q in it", r.err, got, r.want)
		}
	}
	var out bytes.Buffer
	root := rootCommand(&tool{now: time.Now, pause: time.Millisecond})
	root.SetOut(&out)
	root.SetArgs([]string{"--server", "http://127.0.0.1:1", "--kubeconfig", os.DevNull, "pools", "list"})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("without an API server: %v", err)
	}
}
