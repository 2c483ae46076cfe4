// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// TestBug1978112: addresses with leading zeros, which old API servers have accepted, equal those
// without.
func TestBug1978112(t *testing.T) {
	in := crowd(1, 0)
	in.Service.Spec.Type = corev1.ServiceTypeLoadBalancer
	in.Service.Spec.ClusterIP, in.Service.Spec.ClusterIPs = "010.096.000.007", []string{"010.096.000.007"}
	in.Service.Spec.LoadBalancerIP = "203.000.113.007"
	in.Service.Spec.LoadBalancerSourceRanges = []string{"192.000.002.000/24"}
	in.Slices = crowd(1, 1).Slices
	in.Slices[0].Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"010.001.000.009"}}}
	s := service.Plan(in).Spec
	if len(s.VIPs) != 1 || s.VIPs[0].IP != "10.96.0.7" || s.PublicIP.Address != "203.0.113.7" || len(s.Listeners[0].Members) != 1 ||
		s.Listeners[0].Members[0].IP != "10.1.0.9" || s.SourceRanges[2] != "192.0.2.0/24" {
		t.Errorf("Plan: %+v", s)
	}
	for text, want := range map[string]string{"0.0.0.0": "0.0.0.0", "000.0.00.01": "0.0.0.1", "fd00::09": "fd00::9", "::ffff:10.0.0.1": "10.0.0.1"} {
		if got, err := service.ParseAddr(text); err != nil || got.String() != want {
			t.Errorf("ParseAddr(%q) = %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "1.2.3", "1..2.3", "256.0.0.1", "1.2.3.4/24"} {
		if got, err := service.ParseAddr(text); err == nil {
			t.Errorf("ParseAddr(%q) = %v, want an error", text, got)
		}
	}
}
