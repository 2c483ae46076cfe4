// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// startController runs a controller with pools of two free ports until the test
// ends, and returns its cloud. With services it makes load balancers, too.
func startController(t *testing.T, services bool) *memory.Cloud {
	t.Helper()
	apitest.Need(t)
	ctrl.SetLogger(logr.Discard())
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Cache: kube.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	cloud := memory.New(memory.Subnet{ID: "sub", NetworkID: "net", Prefix: netip.MustParsePrefix("10.1.0.0/16"), MTU: 1442})
	set := *config.New()
	set.Pods.SubnetIDs = []string{"sub"}
	set.Pools.Min, set.Pools.TTL, set.Pools.Cooldown = 2, metav1.Duration{Duration: time.Hour}, metav1.Duration{}
	backend := cloud.Backend("cluster")
	options := controller.Options{Ports: backend, Visibility: backend, Capacity: backend}
	if services {
		cloud.AddSubnet(memory.Subnet{ID: "vips", NetworkID: "net", Prefix: netip.MustParsePrefix(apitest.ClusterIPs), MTU: 1442})
		cloud.AddSubnet(memory.Subnet{ID: "public", NetworkID: "outside", Prefix: netip.MustParsePrefix("203.0.113.0/24"), External: true})
		options.LoadBalancers, options.FloatingIPs, options.Subnets = backend, backend, backend
		set.Services.SubnetIDs, set.Services.ExternalNetworkID = []string{"vips"}, "outside"
	}
	options.Settings = settings.NewLive(set)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	if err := controller.Setup(ctx, mgr, options); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended with: %v", err)
		}
	})
	return cloud
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so after 30s: " + what)
		}
	}
}

// With a real controller: a pool that a pod has made is filled, once, and freed,
// and fills up to its min again. The pod keeps its port.
func TestPoolsOfAController(t *testing.T) {
	cloud := startController(t, false)
	create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	create(t, pod)
	var p v1.KuryrPortPool
	free := func(n int32) func() bool {
		return func() bool {
			all, err := pools(t.Context(), server, "worker")
			if err != nil || len(all) != 1 {
				return false
			}
			p = all[0]
			return p.Status.Available == n && p.Status.Bound == 1
		}
	}
	eventually(t, "the pool has two free ports", free(2))
	out, err := kuryr(t, "pools", "fill", p.Name, "--ports", "7", "--wait")
	if err != nil || !strings.Contains(out, "pool "+p.Name+": filled") {
		t.Fatalf("fill: %v\n%s", err, out)
	}
	eventually(t, "seven are free, and the order is forgotten", func() bool {
		return free(7)() && p.Annotations[v1.FillAnnotation] == ""
	})
	out, err = kuryr(t, "pools", "free", p.Name)
	if want := "pool " + p.Name + ": deleted 7 free ports; it fills up to 2 again (its min)\n"; err != nil || out != want {
		t.Errorf("free: %q, %v, want %q", out, err, want)
	}
	eventually(t, "two are free again, and the others gone from the cloud", func() bool { return free(2)() && cloud.Ports() == 3 })
	if out, err = kuryr(t, "pools", "show", p.Name); err != nil || !strings.Contains(out, "default/web") || !strings.Contains(out, "min 2, max none, batch 10") {
		t.Errorf("show: %v\n%s", err, out)
	}
	for _, o := range []func() error{
		func() error { return server.Delete(t.Context(), pod, client.GracePeriodSeconds(0)) },
		func() error {
			return server.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}})
		},
	} {
		if err := o(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "nothing is left of a node that is gone", func() bool {
		all, err := pools(t.Context(), server, "")
		return err == nil && len(all) == 0 && cloud.Ports() == 0
	})
}
