// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestFreePortsFollowTheirSubnet: the next pods have what somebody has changed in the pods' subnet
// or its network. Running pods keep what they have.
func TestFreePortsFollowTheirSubnet(t *testing.T) {
	b := idleBed(t)
	b.looking = 100 * time.Millisecond
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL = 2, metav1.Duration{Duration: time.Hour} })
	b.start()
	pod := b.pod("web")
	old := b.bound(pod)
	b.settled(3)
	calls := b.cloud.Calls(memory.CreatePorts)
	b.eventually("the subnet is asked for several times", func() bool { return b.cloud.Calls(memory.GetDetails) > 3 })
	if n := b.cloud.Calls(memory.CreatePorts); n != calls || b.cloud.Calls(memory.DeletePort) != 0 {
		t.Errorf("%d requests for ports and %d for deletions though nothing has changed", n-calls, b.cloud.Calls(memory.DeletePort))
	}
	b.cloud.AddSubnet(memory.Subnet{
		ID: subnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.9"), MTU: 1400,
	})
	like := func(p v1.KuryrPort) bool {
		return p.Spec.VIF.MTU == 1400 && p.Spec.VIF.Addresses[0].Gateway == "10.1.0.9"
	}
	b.eventually("the free ports are new ones", func() bool {
		all := slices.DeleteFunc(b.ports(), func(p v1.KuryrPort) bool { return p.Name == old.Name })
		return len(all) == 2 && !slices.ContainsFunc(all, func(p v1.KuryrPort) bool { return !like(p) })
	})
	if now := b.bound(pod); now.Name != old.Name || like(*now) {
		t.Errorf("the running pod has port %s like %+v, want %s as it was", now.Name, now.Spec.VIF, old.Name)
	}
	b.delete(pod)
	b.eventually("its port is not kept for another", func() bool {
		return len(b.ports()) == 2 && !slices.ContainsFunc(b.ports(), func(p v1.KuryrPort) bool { return !like(p) })
	})
}

// TestFullSubnetGrows: pods that find the subnet full get addresses of another subnet that is added
// to the settings. The pool stays, with its ports and its name. After the removal of that subnet no
// free port of it is left.
func TestFullSubnetGrows(t *testing.T) {
	const small, large = "5f1c5aac-0000-4000-8000-0000000000e1", "5f1c5aac-0000-4000-8000-0000000000e2"
	b := idleBed(t)
	b.cloud.AddSubnet(memory.Subnet{ID: small, NetworkID: network, Prefix: netip.MustParsePrefix("10.7.0.0/29"), MTU: 1442})
	b.cloud.AddSubnet(memory.Subnet{ID: large, NetworkID: network, Prefix: netip.MustParsePrefix("10.8.0.0/16"), MTU: 1442})
	b.set(func(s *settings.Settings) {
		s.Pods.SubnetIDs = []string{small}
		s.Pools.Min, s.Pools.TTL = 2, metav1.Duration{Duration: time.Hour}
	})
	b.start()
	var pods []*corev1.Pod
	for i := range 8 {
		pods = append(pods, b.pod(fmt.Sprint("web-", i)))
	}
	b.eventually("the subnet is full", func() bool { return b.cloud.Ports() == 6 })
	b.set(func(s *settings.Settings) { s.Pods.MoreSubnetIDs = map[string][]string{small: {large}} })
	in := map[string]int{}
	for _, pod := range pods {
		in[b.bound(pod).Spec.VIF.Addresses[0].SubnetID]++
	}
	if in[small] != 6 || in[large] != 2 {
		t.Errorf("pods have addresses of %v, want 6 of %s and 2 of %s", in, small, large)
	}
	b.settled(10)
	if n := len(b.pools()); n != 1 {
		t.Errorf("there are %d pools, want the one of before", n)
	}
	b.set(func(s *settings.Settings) { s.Pods.MoreSubnetIDs, s.Pools.Min = nil, 0 })
	b.eventually("the free ports of the other subnet go", func() bool { return b.free() == nil && b.cloud.Ports() == 8 })
}
