// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestRoutesLeftOut: a host route that pods do not get is named in the condition of the pool and in
// an Event of one pod, and not in an Event of each pod.
func TestRoutesLeftOut(t *testing.T) {
	b := idleBed(t)
	b.cloud.AddSubnet(memory.Subnet{
		ID: subnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("10.1.0.1"), MTU: 1442,
		Routes: []v1.Route{{Destination: "198.51.100.0/24", Gateway: "0.0.0.0"}, {Destination: "203.0.113.0/24", Gateway: "224.0.0.1"}},
	})
	b.start()
	first := b.bound(b.pod("first"))
	if len(first.Spec.VIF.Routes) != 2 {
		t.Errorf("KuryrPort %s has routes %v, want both of the subnet", first.Name, first.Spec.VIF.Routes)
	}
	if note := b.eventOn("first", v1.ReasonRoutesLeftOut); !hasWords(note, "203.0.113.0/24", "224.0.0.1") || hasWords(note, "198.51.100.0/24") {
		t.Errorf("the Event says %q, want it to name the route to 203.0.113.0/24 alone", note)
	}
	b.bound(b.pod("second"))
	b.eventually("the pool's condition names the route", func() bool {
		pools := b.pools()
		ready := meta.FindStatusCondition(pools[0].Status.Conditions, v1.ConditionReady)
		return pools[0].Status.Bound == 2 && meta.IsStatusConditionTrue(pools[0].Status.Conditions, v1.ConditionReady) && hasWords(ready.Message, "203.0.113.0/24")
	})
	told := b.told()
	if n := told["Pod/first "+v1.ReasonRoutesLeftOut] + told["Pod/second "+v1.ReasonRoutesLeftOut]; n != 1 {
		t.Errorf("two pods of one pool have %d Events about routes, want 1", n)
	}
}
