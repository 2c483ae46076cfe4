// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// TestFreedAddress: Kubernetes frees a cluster IP as soon as its Service becomes an ExternalName or
// single stack. The next Service with that cluster IP has its load balancer once the old one is
// gone. It does not wait for the pause after a taken address.
func TestFreedAddress(t *testing.T) {
	for name, leave := range map[string]func(b *bed){
		"deleted": func(b *bed) { b.delete(b.klb("old")) },
		"moved": func(b *bed) {
			b.respec("old", func(s *v1.KuryrLoadBalancerSpec) { s.VIPs[0].IP = "10.96.0.11" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := balancerBed(t)
			b.unhurried = true // a taken address is tried again after 30 s
			b.start()
			b.balancer("old")
			b.realised("old")
			b.balancer("next")
			ready := func() string {
				if c := meta.FindStatusCondition(b.klb("next").Status.Conditions, v1.ConditionReady); c != nil {
					return c.Reason
				}
				return ""
			}
			b.eventually("the address is taken", func() bool { return ready() == v1.ReasonConflict })
			leave(b)
			b.eventuallyIn(15*time.Second, "it has its load balancer", func() bool { return ready() == v1.ReasonReady })
		})
	}
}
