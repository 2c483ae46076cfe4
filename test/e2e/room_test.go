// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/test/cluster"
)

// A subnet has two addresses and both are used: the next pod and its pool say so
// with numbers, and the pod runs once one of the others is gone, on another node.
func TestSubnetExhausted(t *testing.T) {
	f := onBed(t)
	f.unbroken(t)
	subnet := f.smallSubnet(t)
	f.configure(t, func(pods map[string]any) { pods["subnetIDs"] = []string{subnet.ID} })
	first, second := f.inSubnet(t, subnet), f.on(t, "n2", "second")
	pool := must(f.KuryrPortOf(t.Context(), first))(t).Spec.Pool

	must(f.Pod(t.Context(), f.namespace, "last", "n1"))(t)
	full := "2 of 2 addresses of subnet " + subnet.ID + " are used"
	f.event(t, "last", "SubnetExhausted: The pod waits for a port: "+full)
	f.poolSays(t, pool, v1.ConditionSubnetExhausted, metav1.ConditionTrue, full)
	f.poolSays(t, pool, v1.ConditionOverQuota, metav1.ConditionFalse, "")
	f.delete(t, second)
	last := f.running(t, "last")
	f.reaches(t, first, last)
	f.poolSays(t, pool, v1.ConditionSubnetExhausted, metav1.ConditionFalse, "")
}

// smallSubnet makes a subnet of two addresses on the pods' network, which goes
// with the test's pods.
func (f *fixture) smallSubnet(t testing.TB) *subnets.Subnet {
	t.Helper()
	none := ""
	subnet := must(subnets.Create(t.Context(), f.Neutron, subnets.CreateOpts{
		NetworkID: os.Getenv("POD_NET"), Name: f.namespace, CIDR: "10.129.0.0/29", IPVersion: gophercloud.IPv4,
		GatewayIP: &none, EnableDHCP: gophercloud.Disabled,
		AllocationPools: []subnets.AllocationPool{{Start: "10.129.0.2", End: "10.129.0.3"}},
	}).Extract())(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.deletePods(ctx); err != nil {
			t.Error(err)
		}
		// Its last port goes a moment after its pod.
		if err := cluster.Until(ctx, func() error { return subnets.Delete(ctx, f.Neutron, subnet.ID).ExtractErr() }); err != nil {
			t.Errorf("deleting subnet %s: %v", subnet.ID, err)
		}
	})
	return subnet
}

// inSubnet makes pods on n1 until one has an address of the subnet: the
// controller sees a change of the configuration when kubelet has written it.
func (f *fixture) inSubnet(t testing.TB, subnet *subnets.Subnet) *corev1.Pod {
	t.Helper()
	prefix := netip.MustParsePrefix(subnet.CIDR)
	var pod *corev1.Pod
	eventually(t, func() error {
		pod = f.on(t, "n1", "first")
		if prefix.Contains(netip.MustParseAddr(pod.Status.PodIP)) {
			return nil
		}
		f.delete(t, pod)
		return fmt.Errorf("the pod has %s, want an address of %s", pod.Status.PodIP, subnet.CIDR)
	})
	return pod
}

// poolSays waits until a pool has a condition whose message holds want.
func (f *fixture) poolSays(t testing.TB, name, condition string, status metav1.ConditionStatus, want string) {
	t.Helper()
	eventually(t, func() error {
		var pool v1.KuryrPortPool
		if err := f.Client.Get(t.Context(), client.ObjectKey{Name: name}, &pool); err != nil {
			return err
		}
		c := meta.FindStatusCondition(pool.Status.Conditions, condition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, want) {
			return fmt.Errorf("pool %s says %+v, want %s=%s with %q", name, pool.Status.Conditions, condition, status, want)
		}
		t.Logf("pool %s: %s=%s %s: %s", name, c.Type, c.Status, c.Reason, c.Message)
		return nil
	})
}

// The quota is used up while a pool has free ports: it gives them up, below its
// min, for pods that wait on another node. It says why it is not refilled, and is
// when there is room.
func TestIdlePoolGivesPortsUp(t *testing.T) {
	f := onBed(t)
	f.unbroken(t)
	f.atRest(t) // what still goes would make room
	keep := func(n int) {
		f.pools(t, map[string]any{"min": 0, "batch": 3, "ttl": "1h", "overrides": []any{map[string]any{
			"nodeSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelHostname: "n1"}}, "min": n,
		}}})
	}
	keep(3)
	idle := f.on(t, "n1", "idle")
	pool := must(f.KuryrPortOf(t.Context(), idle))(t).Spec.Pool
	f.keeps(t, "n1", 3)
	restore := f.useUpQuota(t)

	for _, name := range []string{"a", "b"} {
		must(f.Pod(t.Context(), f.namespace, name, "n2"))(t)
	}
	f.running(t, "a")
	f.running(t, "b")
	f.event(t, "b", " ports of the project are used")
	// Neutron counts a port that it makes twice for a moment, and may refuse another
	// that there is room for: then one more is given up.
	if free := f.free(t, "n1"); len(free) > 1 {
		t.Errorf("n1 has free ports %q while two pods have got theirs, want one at most of three", free)
	}
	f.poolSays(t, pool, v1.ConditionOverQuota, metav1.ConditionTrue, " ports of the project are used")
	restore()
	keep(4) // a change has it look at once, and not within a minute
	f.keeps(t, "n1", 4)
	f.poolSays(t, pool, v1.ConditionOverQuota, metav1.ConditionFalse, "")
}
