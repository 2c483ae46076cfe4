// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func TestIsReady(t *testing.T) {
	for _, c := range []struct {
		name       string
		conditions []metav1.Condition
		want       bool
	}{
		{"nothing said", nil, false},
		{"ready", []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}}, true},
		{"not ready", []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: 2}}, false},
		{"the generation before", []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 1}}, false},
		{"something else", []metav1.Condition{{Type: v1.ConditionSupported, Status: metav1.ConditionTrue, ObservedGeneration: 2}}, false},
	} {
		klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		klb.Status.Conditions = c.conditions
		if got := balancer.IsReady(klb); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestNamed(t *testing.T) {
	klb := &v1.KuryrLoadBalancer{}
	// The second load balancer does not exist yet.
	klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: "a"}, {IP: "10.0.0.1"}, {ID: "b"}}
	if got := balancer.Named(klb); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v, want a and b", got)
	}
}

// TestStatusFollowsTheSpec: load balancers are in the order of the addresses; those at no address come
// last, by ID.
func TestStatusFollowsTheSpec(t *testing.T) {
	vip := func(ip string) v1.VIPAddress { return v1.VIPAddress{IP: ip, SubnetID: "s"} }
	lb := func(id, ip string) sdn.LoadBalancer { return sdn.LoadBalancer{ID: id, VIP: vip(ip)} }
	have := []sdn.LoadBalancer{lb("f", "10.96.0.99"), lb("a", "fd00::10"), lb("e", "10.96.0.98"), lb("b", "10.96.0.10")}
	s := balancer.Status(have, []v1.VIPAddress{vip("10.96.0.10"), vip("FD00::10")})
	var ids []string
	for _, lb := range s.LoadBalancers {
		ids = append(ids, lb.ID)
	}
	if got := strings.Join(ids, " "); got != "b a e f" {
		t.Errorf("load balancers %s, want b a e f", got)
	}
}

// TestKind: steps of which the cloud most likely does all or none are of one kind.
func TestKind(t *testing.T) {
	change := func(add, remove int) balancer.Step {
		return balancer.ChangeMembers{Below: balancer.Below{LoadBalancerID: "lb"}, PoolID: "p", Add: make([]sdn.Member, add), Remove: make([]sdn.Member, remove)}
	}
	for _, tc := range []struct {
		a, b balancer.Step
		want bool
	}{
		{change(2, 0), change(3, 1), true}, {change(2, 0), change(1, 1), false}, {change(1, 1), change(0, 2), true},
		{change(1, 0), balancer.FailOver{ID: "lb"}, false}, {balancer.FailOver{ID: "lb"}, balancer.FailOver{ID: "other"}, false},
	} {
		if got := balancer.Kind(tc.a) == balancer.Kind(tc.b); got != tc.want {
			t.Errorf("%s and %s: %t", tc.a, tc.b, got)
		}
	}
	if kind := balancer.Kind(change(2, 0)); !strings.HasSuffix(kind, " adds") {
		t.Errorf("a step that adds is of kind %q", kind)
	}
}
