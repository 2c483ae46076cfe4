// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
)

// TestBefore: a floating IP that several KuryrLoadBalancers ask for stays with the one that has
// it, and else belongs to the oldest one.
func TestBefore(t *testing.T) {
	const ip = "203.0.113.5"
	at := func(name string, age int64, change ...func(*v1.KuryrLoadBalancer)) *v1.KuryrLoadBalancer {
		klb := &v1.KuryrLoadBalancer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Time{Time: time.Unix(1000-age, 0)}},
			Spec:       v1.KuryrLoadBalancerSpec{PublicIP: &v1.PublicIPSpec{NetworkID: outsideNet, Address: ip}},
		}
		for _, f := range change {
			f(klb)
		}
		return klb
	}
	has := func(k *v1.KuryrLoadBalancer) { k.Status.PublicIP = &v1.PublicIPStatus{ID: "f", IP: ip} }
	any := func(k *v1.KuryrLoadBalancer) { k.Spec.PublicIP.Address = "" }
	private := func(k *v1.KuryrLoadBalancer) { k.Spec.PublicIP = nil }
	gone := func(k *v1.KuryrLoadBalancer) { k.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	held := func(k *v1.KuryrLoadBalancer) { k.Status.WithheldPublicIP = ip }
	for _, tc := range []struct {
		name   string
		klb    *v1.KuryrLoadBalancer
		others []*v1.KuryrLoadBalancer
		want   string
	}{
		{"nobody else asks", at("web", 1), []*v1.KuryrLoadBalancer{at("other", 9, any), at("web", 1)}, ""},
		{"it asks for none", at("web", 1, any), []*v1.KuryrLoadBalancer{at("other", 9)}, ""},
		{"the older one first", at("web", 1), []*v1.KuryrLoadBalancer{at("b", 5), at("a", 9), at("c", 7)}, "a"},
		{"it is the oldest", at("web", 9), []*v1.KuryrLoadBalancer{at("b", 5)}, ""},
		{"of one age, by name", at("web", 5), []*v1.KuryrLoadBalancer{at("b", 5), at("x", 5)}, "b"},
		{"who has it", at("web", 9), []*v1.KuryrLoadBalancer{at("a", 10), at("b", 5, has)}, "b"},
		{"who has it, and asks for another by now", at("web", 9), []*v1.KuryrLoadBalancer{at("b", 5, has, any)}, "b"},
		{"who had it", at("web", 9), []*v1.KuryrLoadBalancer{at("b", 5, held)}, "b"},
		{"who has it and goes", at("web", 9), []*v1.KuryrLoadBalancer{at("b", 5, has, gone)}, ""},
		{"who has it and is to be public no more", at("web", 9), []*v1.KuryrLoadBalancer{at("b", 5, has, private)}, ""},
		{"it has it", at("web", 1, has), []*v1.KuryrLoadBalancer{at("a", 9)}, ""},
		{"both are said to have it", at("web", 1, has), []*v1.KuryrLoadBalancer{at("a", 9, has)}, "a"},
	} {
		got := ""
		if k := balancer.Before(tc.klb, tc.others); k != nil {
			got = k.Name
		}
		if got != tc.want {
			t.Errorf("%s: before it comes %q, want %q", tc.name, got, tc.want)
		}
	}
}
