// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kuryr-go/kuryr/test/cluster"
)

// BenchmarkPodStart measures, on the bed, how long it takes from a pod's
// creation until it is seen running: alone, and thirty at once on two nodes.
func BenchmarkPodStart(b *testing.B) {
	if os.Getenv("KURYR_E2E") == "" {
		b.Skip("no test bed: run hack/demo/demo.sh up, and set KURYR_E2E")
	}
	for _, n := range []int{1, 30} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var times []time.Duration
			for round := 0; b.Loop(); round++ {
				times = append(times, startPods(b, fmt.Sprintf("bench-%d-%d", n, round), n)...)
			}
			slices.Sort(times)
			for _, p := range []int{50, 100} {
				b.ReportMetric(times[(len(times)-1)*p/100].Seconds(), fmt.Sprintf("p%d-s", p))
			}
			b.ReportMetric(0, "ns/op") // would mix in the deletion
		})
	}
}

// startPods makes n pods in a namespace of their own and returns how long each
// took to run.
func startPods(b *testing.B, namespace string, n int) []time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := cluster.Connect(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := c.EnsureNamespace(ctx, namespace); err != nil {
		b.Fatal(err)
	}
	if err := cluster.Until(ctx, func() error { // pods wait for it otherwise
		_, err := c.Kube.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", getOptions)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	created := map[string]time.Time{}
	for i := range n {
		name := fmt.Sprintf("p%02d", i)
		created[name] = time.Now()
		pod := &corev1.Pod{Spec: cluster.Template(nil, nodes[i%len(nodes)]).Spec}
		pod.Namespace, pod.Name = namespace, name
		if err := c.Client.Create(ctx, pod); err != nil {
			b.Fatal(err)
		}
	}
	started, err := c.Follow(ctx, namespace, nil, n)
	if err != nil {
		b.Fatal(err)
	}
	var times []time.Duration
	for _, s := range started {
		times = append(times, s.Running.Sub(created[s.Pod.Name]))
	}
	space := &corev1.Namespace{}
	space.Name = namespace
	if err := c.Client.Delete(ctx, space); err != nil {
		b.Fatal(err)
	}
	if err := cluster.Until(ctx, func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(space), space); err != nil {
			return client.IgnoreNotFound(err)
		}
		return errNotYet
	}); err != nil {
		b.Fatal(err)
	}
	return times
}
