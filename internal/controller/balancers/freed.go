// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Freed applies the KuryrLoadBalancers that want one of these addresses and do not have it, now
// that another load balancer there is deleted. When a Service becomes an ExternalName,
// Kubernetes gives its cluster IP to a new Service before the old load balancer is deleted. The
// new Service would retry its address only after a pause.
func (r *Reconciler) Freed(ctx context.Context, ips ...string) {
	if len(ips) == 0 {
		return
	}
	r.wakeAll(ctx, func(klb *v1.KuryrLoadBalancer) bool {
		has := vipsOf(klb.Status.LoadBalancers)
		return slices.ContainsFunc(klb.Spec.VIPs, func(v v1.VIPAddress) bool { return slices.Contains(ips, v.IP) && !slices.Contains(has, v.IP) })
	})
}

// vipsOf returns the VIPs of load balancers.
func vipsOf(all []v1.LoadBalancerStatus) []string {
	var ips []string
	for _, lb := range all {
		ips = append(ips, lb.IP)
	}
	return ips
}

// freedSince calls Freed for the addresses that the status had before and has no more.
func (v *visit) freedSince(ctx context.Context, before []v1.LoadBalancerStatus) {
	has := vipsOf(v.klb.Status.LoadBalancers)
	v.Freed(ctx, slices.DeleteFunc(vipsOf(before), func(ip string) bool { return slices.Contains(has, ip) })...)
}

// addressesOf returns the VIPs that a KuryrLoadBalancer asks for, and those that it has.
func addressesOf(klb *v1.KuryrLoadBalancer) []string {
	ips := vipsOf(klb.Status.LoadBalancers)
	for _, vip := range klb.Spec.VIPs {
		ips = append(ips, vip.IP)
	}
	return ips
}
