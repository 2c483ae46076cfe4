// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// Sixty pods come and go while daemons and controller are killed again and
// again. No address is ever in two living pods, each pod gets to run, and in the
// end nothing is left over. KURYR_CHURN says for how long; otherwise a minute. With -short
// thirty pods, for 20 s: on a machine where Neutron needs two seconds of a core for a port, sixty wait
// longer than kubelet and the test do.
func TestChurnUnderFire(t *testing.T) {
	f := onBed(t)
	span, slots := time.Minute, 60
	if testing.Short() {
		span, slots = 20*time.Second, 30
	}
	if text := os.Getenv("KURYR_CHURN"); text != "" {
		span = must(time.ParseDuration(text))(t)
	}
	f.pools(t, map[string]any{"min": 5, "max": 40, "batch": 10, "ttl": "5m", "cooldown": "2s"})
	began := time.Now()
	ctx, stop := context.WithDeadline(t.Context(), began.Add(span))
	defer stop()

	c := &churn{fixture: f, t: t}
	var work sync.WaitGroup
	for slot := range slots {
		work.Go(func() { c.slot(ctx, slot) })
	}
	work.Go(func() { c.kill(ctx) })
	work.Go(func() { c.watch(ctx) })
	work.Wait()
	t.Logf("%d pods came and went in %s, %d times a process of Kuryr's was killed; the slowest pod ran after %.1f s",
		c.pods, time.Since(began).Round(time.Second), c.kills, c.slowest.Seconds())

	var left corev1.PodList
	if err := f.Client.List(t.Context(), &left, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}
	var pods []*corev1.Pod
	for i := range left.Items {
		pods = append(pods, &left.Items[i])
	}
	f.delete(t, pods...)
	f.pools(t, map[string]any{"min": 0, "batch": 1, "ttl": "0s"})
	// What the killed controllers had asked for is found port by port, and all are
	// deleted: Neutron takes half a second for each, and more while it is busy.
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	if err := cluster.Until(ctx, func() error { return f.rests(ctx) }); err != nil {
		t.Error(err)
	}
}

// churn is what happens in the meantime.
type churn struct {
	*fixture
	t *testing.T

	mu      sync.Mutex
	pods    int
	kills   int
	slowest time.Duration
}

// slot has one pod after the other, of the same name.
func (c *churn) slot(ctx context.Context, n int) {
	name, node := fmt.Sprintf("slot-%02d", n), nodes[n%len(nodes)]
	for ctx.Err() == nil {
		began := time.Now()
		// What has begun is seen to its end: only then it is known whether the pod got to run.
		one, cancel := context.WithTimeout(c.t.Context(), 2*patience)
		err := c.life(one, name, node, began)
		cancel()
		if err != nil {
			c.t.Errorf("%s on %s: %v", name, node, err)
			return
		}
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Millisecond)
	}
}

// life makes a pod, waits until it runs, lets it live for a moment and deletes it.
func (c *churn) life(ctx context.Context, name, node string, began time.Time) error {
	pod, err := c.Pod(ctx, c.namespace, name, node)
	if err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	now := &corev1.Pod{}
	err = cluster.Until(ctx, func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return err
		}
		if now.Status.Phase != corev1.PodRunning || now.Status.PodIP == "" {
			return fmt.Errorf("the pod is %s", now.Status.Phase)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.pods++
	c.slowest = max(c.slowest, time.Since(began))
	c.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(5_000)) * time.Millisecond)
	if err := c.Client.Delete(ctx, pod); err != nil {
		return fmt.Errorf("deleting it: %w", err)
	}
	return cluster.Until(ctx, func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("the pod is still there, %s after it was made", time.Since(began).Round(time.Second))
	})
}

// kill ends a daemon or the controller every few seconds, by SIGKILL. Then its
// pod is deleted: kubelet starts a container that ends again and again later and
// later (10 s, 20 s, ... 5 min), and that is not what is to be seen here.
func (c *churn) kill(ctx context.Context) {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
		own := c.kuryrPods(ctx, c.t)
		if len(own) == 0 || ctx.Err() != nil {
			continue
		}
		victim := own[n%len(own)]
		what := "daemon"
		if strings.HasPrefix(victim.Name, "kuryr-controller") {
			what = "controller"
		}
		if _, err := c.OnNode(ctx, victim.Spec.NodeName, "pkill", "-KILL", "-f", "^/usr/local/bin/kuryr "+what); err != nil {
			continue // it is about to start
		}
		if err := c.Client.Delete(ctx, &victim, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
			c.t.Errorf("deleting pod %s: %v", victim.Name, err)
		}
		c.mu.Lock()
		c.kills++
		c.mu.Unlock()
	}
}

// watch looks all the time whether two living pods have one address or port.
func (c *churn) watch(ctx context.Context) {
	for ctx.Err() == nil {
		var pods corev1.PodList
		var ports v1.KuryrPortList
		if c.Client.List(ctx, &pods, client.InNamespace(c.namespace)) != nil || c.Client.List(ctx, &ports) != nil {
			continue // the test's end, or the API server is busy
		}
		holder := map[string]string{}
		for _, pod := range pods.Items {
			ip := pod.Status.PodIP
			if ip == "" || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
				continue
			}
			if other := holder[ip]; other != "" {
				c.t.Errorf("pods %s and %s both have %s", other, pod.Name, ip)
			}
			holder[ip] = pod.Name
		}
		held := map[string]string{}
		for _, port := range ports.Items {
			if ref := port.Spec.PodRef; ref != nil && port.DeletionTimestamp == nil {
				if other := held[string(ref.UID)]; other != "" {
					c.t.Errorf("pod %s has ports %s and %s", ref.Name, other, port.Name)
				}
				held[string(ref.UID)] = port.Name
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
}
