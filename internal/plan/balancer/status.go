// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Status returns what a KuryrLoadBalancer's status says of the load balancers in the cloud. The
// caller adds the floating IP and the conditions. Load balancers are sorted by the order of
// vips, then by ID.
func Status(have []sdn.LoadBalancer, vips []v1.VIPAddress) v1.KuryrLoadBalancerStatus {
	have = slices.Clone(have)
	place := func(lb sdn.LoadBalancer) int {
		if i := slices.IndexFunc(vips, func(vip v1.VIPAddress) bool { return at(&lb, vip) }); i >= 0 {
			return i
		}
		return len(vips)
	}
	slices.SortFunc(have, func(a, b sdn.LoadBalancer) int {
		return cmp.Or(place(a)-place(b), cmp.Compare(a.ID, b.ID))
	})
	var s v1.KuryrLoadBalancerStatus
	for i := range have {
		lb := &have[i]
		s.LoadBalancers = append(s.LoadBalancers, v1.LoadBalancerStatus{
			ID: lb.ID, Name: lb.Name, IP: lb.VIP.IP, SubnetID: lb.VIP.SubnetID, PortID: lb.VIPPortID, ProjectID: lb.ProjectID,
			Provider: lb.Provider, ProvisioningStatus: string(lb.Provisioning), OperatingStatus: lb.Operating,
		})
		for j := range lb.Listeners {
			addListener(&s, lb, &lb.Listeners[j])
		}
	}
	sortStatus(&s)
	return s
}

func addListener(s *v1.KuryrLoadBalancerStatus, lb *sdn.LoadBalancer, l *sdn.Listener) {
	s.Listeners = append(s.Listeners, v1.ListenerStatus{
		ID: l.ID, LoadBalancerID: lb.ID, Name: l.Name, Protocol: l.Protocol, Port: l.Port,
		TimeoutClientData: l.TimeoutClientData, TimeoutMemberData: l.TimeoutMemberData,
	})
	if l.Pool == nil {
		return
	}
	s.Pools = append(s.Pools, v1.PoolStatus{
		ID: l.Pool.ID, ListenerID: l.ID, LoadBalancerID: lb.ID, Name: l.Pool.Name, Protocol: l.Pool.Protocol,
	})
	for i := range l.Pool.Members {
		m := &l.Pool.Members[i]
		s.Members = append(s.Members, v1.MemberStatus{
			ID: m.ID, PoolID: l.Pool.ID, Name: m.Name, IP: m.IP, Port: m.Port, SubnetID: m.SubnetID,
		})
	}
}

// sortStatus sorts by names instead of the cloud's order, so that a status is written only if
// it says something new.
func sortStatus(s *v1.KuryrLoadBalancerStatus) {
	slices.SortFunc(s.Listeners, func(a, b v1.ListenerStatus) int {
		return cmp.Or(cmp.Compare(a.LoadBalancerID, b.LoadBalancerID), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(s.Pools, func(a, b v1.PoolStatus) int {
		return cmp.Or(cmp.Compare(a.LoadBalancerID, b.LoadBalancerID), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(s.Members, func(a, b v1.MemberStatus) int {
		return cmp.Or(cmp.Compare(a.PoolID, b.PoolID), cmp.Compare(a.IP, b.IP), cmp.Compare(a.Port, b.Port))
	})
}

// names reports whether a status names the load balancer at an address.
func names(s *v1.KuryrLoadBalancerStatus, vip v1.VIPAddress) bool {
	return slices.ContainsFunc(s.LoadBalancers, func(lb v1.LoadBalancerStatus) bool {
		return lb.ID != "" && sameAddress(lb.IP, vip.IP) && sdn.SameID(lb.SubnetID, vip.SubnetID)
	})
}

// Covers reports whether a status names a load balancer for each that is wanted, and as many parts with
// IDs. Then it describes the cloud, and no person has removed anything from it. publicIP says whether
// it should have a floating IP.
func Covers(s *v1.KuryrLoadBalancerStatus, want []sdn.LoadBalancer, publicIP bool) bool {
	listeners, members := 0, 0
	for i := range want {
		if !names(s, want[i].VIP) {
			return false
		}
		listeners += len(want[i].Listeners)
		for _, l := range want[i].Listeners {
			members += len(l.Pool.Members)
		}
	}
	return (s.PublicIP != nil) == publicIP && len(s.LoadBalancers) == len(want) &&
		len(s.Listeners) == listeners && !slices.ContainsFunc(s.Listeners, func(l v1.ListenerStatus) bool { return l.ID == "" }) &&
		len(s.Pools) == listeners && !slices.ContainsFunc(s.Pools, func(p v1.PoolStatus) bool { return p.ID == "" }) &&
		len(s.Members) == members && !slices.ContainsFunc(s.Members, func(m v1.MemberStatus) bool { return m.ID == "" })
}

// Unsupported returns what a status says of problems: sorted, each field with each reason once.
func Unsupported(problems []Problem) []v1.UnsupportedField {
	var all []v1.UnsupportedField
	for _, p := range problems {
		all = append(all, v1.UnsupportedField{Field: p.Field, Reason: p.Reason})
	}
	slices.SortFunc(all, func(a, b v1.UnsupportedField) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Reason, b.Reason))
	})
	return slices.Compact(all)
}

// ListsMore reports whether a list of a status has something that the status before did not list.
func ListsMore[T comparable](before, now []T) bool {
	return slices.ContainsFunc(now, func(one T) bool { return !slices.Contains(before, one) })
}

// IsReady reports whether the status says that this generation is in the cloud.
func IsReady(klb *v1.KuryrLoadBalancer) bool {
	return slices.ContainsFunc(klb.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1.ConditionReady && c.Status == metav1.ConditionTrue && c.ObservedGeneration == klb.Generation
	})
}

// Named returns the IDs of the load balancers that the status names.
func Named(klb *v1.KuryrLoadBalancer) []string {
	var ids []string
	for _, lb := range klb.Status.LoadBalancers {
		if lb.ID != "" {
			ids = append(ids, lb.ID)
		}
	}
	return ids
}
