// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/test/cluster"
)

// BenchmarkPodStart measures, on the bed, how long it takes from a pod's
// creation until it is seen running, and from its deletion until it is gone:
// alone, and thirty at once on two nodes. Once with a port of Neutron made for
// each pod, once with ports kept ready, and once with the reference plugins
// (bridge and host-local) in Kuryr's place.
func BenchmarkPodStart(b *testing.B) {
	for _, network := range []struct {
		name  string
		setUp func(f *fixture, b *testing.B)
	}{
		{"cold", func(*fixture, *testing.B) {}},
		{"warm", (*fixture).warm},
		{"reference", (*fixture).reference},
	} {
		b.Run(network.name, func(b *testing.B) {
			for _, n := range []int{1, 30} {
				b.Run(fmt.Sprint(n), func(b *testing.B) {
					f := onBed(b)
					network.setUp(f, b)
					f.starts(b, n)
				})
			}
		})
	}
}

// starts makes n pods and deletes them, once for each round.
func (f *fixture) starts(b *testing.B, n int) {
	var start, end []time.Duration
	for round := 0; b.Loop(); round++ {
		started, ended := f.round(b, round, n)
		start, end = append(start, started...), append(end, ended)
	}
	report(b, start, end)
}

func report(b *testing.B, start, end []time.Duration) {
	slices.Sort(start)
	slices.Sort(end)
	for _, p := range []int{50, 100} {
		b.ReportMetric(start[(len(start)-1)*p/100].Seconds(), fmt.Sprintf("p%d-s", p))
	}
	b.ReportMetric(end[(len(end)-1)/2].Seconds(), "gone-s")
	b.ReportMetric(0, "ns/op") // would mix in what lies between
}

// BenchmarkServiceStart measures, on the bed, how long it takes from a Service's creation until
// its cluster IP answers a pod, and from its deletion until it is gone: alone, and ten at once. Each
// has two ports and two endpoints.
func BenchmarkServiceStart(b *testing.B) {
	for _, n := range []int{1, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := withServices(b)
			f.servers(b, "web", 2)
			from := f.inPod(f.on(b, "n2", "client"))
			var start, end []time.Duration
			for round := 0; b.Loop(); round++ {
				start = append(start, f.answer(b, from, round, n)...)
				began := time.Now()
				if err := f.Client.DeleteAllOf(b.Context(), &corev1.Service{}, client.InNamespace(f.namespace)); err != nil {
					b.Fatal(err)
				}
				eventually(b, func() error {
					var left corev1.ServiceList
					err := f.Client.List(b.Context(), &left, client.InNamespace(f.namespace))
					if err == nil && len(left.Items) > 0 {
						err = fmt.Errorf("%d Services are still there", len(left.Items))
					}
					return err
				})
				end = append(end, time.Since(began))
			}
			report(b, start, end)
		})
	}
}

// answer makes n Services and returns how long each took to answer.
func (f *fixture) answer(b *testing.B, from asker, round, n int) []time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	var asking sync.WaitGroup
	took := make([]time.Duration, n)
	for i := range n {
		began := time.Now()
		svc := f.service(b, fmt.Sprintf("web-%d-%d", round, i), func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "web"} })
		asking.Go(func() {
			script := "until curl -sf -m1 --noproxy '*' http://" + inURL(svc.Spec.ClusterIP) + "/hostname; do sleep 0.1; done"
			if _, err := from(ctx, script); err != nil {
				b.Errorf("asking Service %s: %v", svc.Name, err)
			}
			took[i] = time.Since(began)
		})
	}
	asking.Wait()
	return took
}

// warm keeps ports ready for thirty pods on two nodes.
func (f *fixture) warm(b *testing.B) {
	f.pools(b, map[string]any{"min": 20, "batch": 10, "ttl": "1h", "cooldown": "0s"})
	var first []*corev1.Pod
	for _, node := range nodes {
		first = append(first, f.on(b, node, "first-"+node))
	}
	f.delete(b, first...)
	eventually(b, func() error {
		for _, node := range nodes {
			if n := len(f.free(b, node)); n < 20 {
				return fmt.Errorf("%s has %d free ports, want 20", node, n)
			}
		}
		return nil
	})
	// What is left after the pods is enough: OpenStack, which has the same cores
	// here, does not make ports while the pods start.
	f.pools(b, map[string]any{"min": 5, "batch": 10, "ttl": "1h", "cooldown": "0s"})
	time.Sleep(3 * time.Second) // the daemons plug them
}

// referencePlugins come before Kuryr in the order of names.
const referencePlugins = `{"cniVersion": "1.0.0", "name": "reference", "plugins": [
  {"type": "bridge", "bridge": "ref0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// reference has the nodes use the reference plugins, and Kuryr's controller stand still.
func (f *fixture) reference(b *testing.B) {
	const file = "/etc/cni/net.d/00-reference.conflist"
	f.scaleController(b, 0)
	for i, node := range nodes {
		must(f.OnNode(b.Context(), node, "sh", "-c", "cat >"+file+" <<'JSON'\n"+fmt.Sprintf(referencePlugins, i)+"\nJSON"))(b)
	}
	b.Cleanup(func() {
		for _, node := range nodes {
			if _, err := f.OnNode(context.Background(), node, "sh", "-c", "rm -f "+file+"; ip link del ref0; rm -rf /var/lib/cni/networks/reference"); err != nil {
				b.Error(err)
			}
		}
		time.Sleep(2 * time.Second)
		f.scaleController(b, 1)
	})
	time.Sleep(2 * time.Second) // containerd sees it
}

// round makes n pods and returns how long each took to run, and then how long
// all took to go.
func (f *fixture) round(b *testing.B, round, n int) (start []time.Duration, end time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 3*time.Minute)
	defer cancel()
	if err := cluster.Until(ctx, func() error { // pods wait for it otherwise
		_, err := f.Kube.CoreV1().ServiceAccounts(f.namespace).Get(ctx, "default", getOptions)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	labels := map[string]string{"round": fmt.Sprint(round)}
	created := map[string]time.Time{}
	for i := range n {
		name := fmt.Sprintf("p%d-%02d", round, i)
		pod := &corev1.Pod{Spec: cluster.Template(nil, nodes[i%len(nodes)]).Spec}
		pod.Namespace, pod.Name, pod.Labels = f.namespace, name, labels
		created[name] = time.Now()
		if err := f.Client.Create(ctx, pod); err != nil {
			b.Fatal(err)
		}
	}
	started, err := f.Follow(ctx, f.namespace, labels, n)
	if err != nil {
		b.Fatal(err)
	}
	var pods []*corev1.Pod
	for _, s := range started {
		start = append(start, s.Running.Sub(created[s.Pod.Name]))
		pods = append(pods, s.Pod)
	}
	// Kubelet deals with a change of a pod only after it has looked at the
	// containers anew since the last one, once a second. The annotation is a change
	// at the pod's start, so pods deleted within two seconds of it take one second
	// longer: that is not what is measured.
	time.Sleep(3 * time.Second)
	began := time.Now()
	f.delete(b, pods...)
	return start, time.Since(began)
}
