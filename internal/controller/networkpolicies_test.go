// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// TestNetworkPoliciesAreNotEnforced: each NetworkPolicy, including earlier ones, gets one Event for
// each generation. Neither a change of its labels nor a new process sends another.
func TestNetworkPoliciesAreNotEnforced(t *testing.T) {
	b := idleBed(t)
	early := b.policy("early")
	b.start()
	b.mentions("the Event", b.eventOn("early", v1.ReasonNotEnforced), "does not enforce NetworkPolicies", "pods.securityGroups")
	late := b.policy("late")
	b.eventOn("late", v1.ReasonNotEnforced)
	b.label(early, "a", "b")
	b.stop()
	b.start()
	b.never("it is said again", func() bool { return len(b.notEnforced(early))+len(b.notEnforced(late)) > 2 })
	if err := b.client.Patch(t.Context(), late, mergePatch(t, map[string]any{"spec": map[string]any{"policyTypes": []string{"Egress"}}})); err != nil {
		t.Fatal(err)
	}
	b.eventually("it is said of the new generation", func() bool { return len(b.notEnforced(late)) == 2 })
	for _, e := range b.notEnforced(early) {
		if e.Regarding.Kind != "NetworkPolicy" || e.Regarding.UID != early.UID || e.Type != "Warning" {
			t.Errorf("the Event is %+v", e)
		}
	}
}

// TestNetworkPoliciesForbidden: with a ClusterRole of an earlier release the controller serves
// pods. It tries to list NetworkPolicies until it may.
func TestNetworkPoliciesForbidden(t *testing.T) {
	o := newOlder(t)
	o.install()
	o.grant(func(r rbacv1.PolicyRule) bool { return !slices.Contains(r.Resources, "networkpolicies") })
	o.launchWithout()
	policy := o.policy("policy")
	o.serves("web-0")
	o.eventually("NetworkPolicies are asked for", func() bool { return len(o.asked.about("networkpolicies")) > 0 })
	o.grant(everything)
	o.eventually("it is said", func() bool { return len(o.notEnforced(policy)) == 1 })
	for _, q := range o.asked.about("networkpolicies") {
		if !strings.HasPrefix(q, "GET ") {
			t.Errorf("asked %s", q)
		}
	}
}

// policy creates a NetworkPolicy that admits no traffic.
func (b *bed) policy(name string) *networkingv1.NetworkPolicy {
	b.t.Helper()
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
	b.create(policy)
	return policy
}

// notEnforced returns a NetworkPolicy's Events that say that it is not enforced.
func (b *bed) notEnforced(policy *networkingv1.NetworkPolicy) []eventsv1.Event {
	b.t.Helper()
	var list eventsv1.EventList
	if err := b.client.List(b.t.Context(), &list); err != nil {
		b.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.UID != policy.UID || e.Reason != v1.ReasonNotEnforced
	})
}
