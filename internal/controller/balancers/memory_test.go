// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// TestRecallsThatThereIsNoAddress: a new process knows from a settled status that an internal Service has
// no floating IP, and need not ask Neutron. It asks if the status is not settled for this generation: a
// process that was stopped may have made one.
func TestRecallsThatThereIsNoAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.KuryrLoadBalancer)
		want   bool
	}{
		"settled":            {func(*v1.KuryrLoadBalancer) {}, true},
		"new":                {func(o *v1.KuryrLoadBalancer) { o.Status = v1.KuryrLoadBalancerStatus{} }, false},
		"another generation": {func(o *v1.KuryrLoadBalancer) { o.Generation = 3 }, false},
		"in progress":        {func(o *v1.KuryrLoadBalancer) { o.Status.Conditions[1].Status = metav1.ConditionTrue }, false},
		"wants one":          {func(o *v1.KuryrLoadBalancer) { o.Spec.PublicIP = &v1.PublicIPSpec{NetworkID: "public"} }, false},
		"has one":            {func(o *v1.KuryrLoadBalancer) { o.Status.PublicIP = &v1.PublicIPStatus{ID: "f", NetworkID: "public"} }, false},
	} {
		klb := settled()
		tc.change(klb)
		var all memories
		if got := all.of(klb).noAddress; got != tc.want {
			t.Errorf("%s: noAddress is %t, want %t", name, got, tc.want)
		}
	}
}

// TestForgets: only the end of an object that was reconciled makes room for others. A check may be
// requested of one that is long gone.
func TestForgets(t *testing.T) {
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	req := kube.RequestOf(klb)
	var all memories
	all.of(klb)
	if !all.forget(req) {
		t.Error("an object that was reconciled is not known")
	}
	all.ask(req, checkRequest{check: true})
	if all.forget(req) {
		t.Error("an object is known because a check was requested")
	}
}

// TestRecallsTheAddress: a new process takes the floating IP from a status that is settled, and asks the
// cloud otherwise.
func TestRecallsTheAddress(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.KuryrLoadBalancer)
		want   bool
	}{
		"settled":            {func(*v1.KuryrLoadBalancer) {}, true},
		"another generation": {func(o *v1.KuryrLoadBalancer) { o.Generation = 3 }, false},
		"in progress":        {func(o *v1.KuryrLoadBalancer) { o.Status.Conditions[1].Status = metav1.ConditionTrue }, false},
		"an older status":    {func(o *v1.KuryrLoadBalancer) { o.Status.PublicIP.NetworkID = "" }, false},
		"no load balancer":   {func(o *v1.KuryrLoadBalancer) { o.Status.LoadBalancers = nil }, false},
		"has none":           {func(o *v1.KuryrLoadBalancer) { o.Status.PublicIP = nil }, false},
	} {
		klb := settled()
		klb.Spec.PublicIP = &v1.PublicIPSpec{NetworkID: "public"}
		klb.Status.PublicIP = &v1.PublicIPStatus{ID: "f", IP: "203.0.113.80", NetworkID: "public"}
		klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: "lb", PortID: "port"}}
		tc.change(klb)
		var all memories
		if got := all.of(klb).placed; got != tc.want {
			t.Errorf("%s: placed is %t, want %t", name, got, tc.want)
		}
	}
}
