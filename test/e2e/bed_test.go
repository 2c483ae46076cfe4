// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Kuryr on a real Kubernetes and a real OpenStack: the test
// bed, with Kuryr deployed on it as hack/demo/deploy.sh does. hack/e2e.sh brings
// all of that up and runs these tests; without the bed they are skipped.
//
// The tests run one after another: several of them stop or break something.
package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kuryr-go/kuryr/test/cluster"
)

const (
	kuryrNamespace = cluster.KuryrNamespace
	patience       = 90 * time.Second // of a step; far above what it takes
)

// nodes are those of the bed: as many as KURYR_BED_NODES says, or two.
var nodes = func() (names []string) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("KURYR_BED_NODES"), "2"))
	if err != nil {
		panic("KURYR_BED_NODES: " + err.Error())
	}
	for i := range n {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	return names
}()

// fixture is a namespace of a test's own, emptied at its end.
type fixture struct {
	*cluster.Cluster
	namespace string
	others    []*fixture // beside it, by beside
	killed    int32      // how often the test has killed the controller
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // controller-runtime complains without one
	os.Exit(m.Run())
}

// onBed connects to the bed, or skips the test.
func onBed(t testing.TB) *fixture {
	t.Helper()
	return onBedWith(t)
}

// onBedWith is onBed for a namespace that is changed before it is made.
func onBedWith(t testing.TB, change ...func(*corev1.Namespace)) *fixture {
	t.Helper()
	if os.Getenv("KURYR_E2E") == "" {
		t.Skip("no test bed: run `make e2e`, which brings one up and sets KURYR_E2E")
	}
	c, err := cluster.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Cluster: c, namespace: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.EnsureNamespace(ctx, f.namespace, change...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.clean(t) })
	return f
}

// clean deletes the test's namespace, and waits until its pods are gone: what the
// next test counts is to be its own. The namespace takes five seconds more.
func (f *fixture) clean(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if t.Failed() {
		f.dump(ctx, t)
	}
	if err := f.deletePods(ctx); err != nil {
		t.Errorf("deleting the pods of namespace %s: %v", f.namespace, err)
	}
	namespace := &corev1.Namespace{}
	namespace.Name = f.namespace
	if err := client.IgnoreNotFound(f.Client.Delete(ctx, namespace)); err != nil {
		t.Errorf("deleting namespace %s: %v", f.namespace, err)
	}
}

// deletePods deletes the pods of the test's namespace, and waits until they are gone.
func (f *fixture) deletePods(ctx context.Context) error {
	if err := f.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(f.namespace)); err != nil {
		return err
	}
	return cluster.Until(ctx, func() error {
		var left corev1.PodList
		if err := f.Client.List(ctx, &left, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		if n := len(left.Items); n > 0 {
			return fmt.Errorf("%d pods are still there", n)
		}
		return nil
	})
}

// dump logs what a person would look at first.
func (f *fixture) dump(ctx context.Context, t testing.TB) {
	var events corev1.EventList
	if err := f.Client.List(ctx, &events, client.InNamespace(f.namespace)); err != nil {
		t.Logf("listing events: %v", err)
	}
	for _, e := range events.Items {
		t.Logf("event: %s/%s %s %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Type, e.Reason, e.Message)
	}
	for _, pod := range f.kuryrPods(ctx, t) {
		lines := int64(40)
		text, err := f.Kube.CoreV1().Pods(kuryrNamespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
		t.Logf("log of %s on %s (%v):\n%s", pod.Name, pod.Spec.NodeName, err, text)
	}
}

// pods makes one pod a name and waits until all run. The nodes take turns.
func (f *fixture) pods(t testing.TB, names ...string) []*corev1.Pod {
	t.Helper()
	var pods []*corev1.Pod
	for i, name := range names {
		pod, err := f.Pod(t.Context(), f.namespace, name, nodes[i%len(nodes)])
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	for i := range pods {
		pods[i] = f.running(t, pods[i].Name)
	}
	return pods
}

// running waits until a pod runs, and returns it.
func (f *fixture) running(t testing.TB, name string) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pod := &corev1.Pod{}
	err := cluster.Until(ctx, func() error {
		if err := f.Client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
			return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// delete deletes pods and waits until Kubernetes has none of them.
func (f *fixture) delete(t testing.TB, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if err := client.IgnoreNotFound(f.Client.Delete(t.Context(), pod)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		var left corev1.PodList
		if err := f.Client.List(t.Context(), &left, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		for _, pod := range pods {
			for _, l := range left.Items {
				if l.UID == pod.UID {
					return fmt.Errorf("pod %s is still there", l.Name)
				}
			}
		}
		return nil
	})
}

// eventually fails the test unless check succeeds within patience.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := cluster.Until(ctx, check); err != nil {
		t.Fatal(err)
	}
}

// event waits for an event of Kuryr's on an object of the test's namespace whose
// text holds want.
func (f *fixture) event(t testing.TB, object string, wants ...string) {
	t.Helper()
	var seen []string
	eventually(t, func() error {
		var events corev1.EventList
		if err := f.Client.List(t.Context(), &events, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		seen = seen[:0]
		for _, e := range events.Items {
			if e.InvolvedObject.Name != object || e.ReportingController != "kuryr-controller" {
				continue
			}
			seen = append(seen, e.Reason+": "+e.Message)
			if slices.ContainsFunc(wants, func(want string) bool { return strings.Contains(e.Reason+": "+e.Message, want) }) {
				t.Logf("event on %s: %s: %s", object, e.Reason, e.Message)
				return nil
			}
		}
		return fmt.Errorf("no event on %s says one of %q, only %q", object, wants, seen)
	})
}

// kuryrPods returns Kuryr's own pods. An error fails the test, unless ctx has ended.
func (f *fixture) kuryrPods(ctx context.Context, t testing.TB) []corev1.Pod {
	var pods corev1.PodList
	if err := f.Client.List(ctx, &pods, client.InNamespace(kuryrNamespace)); err != nil && ctx.Err() == nil {
		t.Errorf("listing Kuryr's pods: %v", err)
	}
	return pods.Items
}

// must returns v, or ends the test if err says so.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
