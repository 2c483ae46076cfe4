// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
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
