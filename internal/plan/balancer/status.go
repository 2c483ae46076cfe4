// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"fmt"
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
		for i, vip := range vips {
			if at(&lb, vip) {
				return i
			}
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

// Covers reports whether a status names all that is wanted and nothing else, with IDs. Then it
// describes the cloud, and no person has removed anything from it. publicIP says whether it
// should have a floating IP.
func Covers(s *v1.KuryrLoadBalancerStatus, want []sdn.LoadBalancer, publicIP bool) bool {
	if (s.PublicIP != nil) != publicIP {
		return false
	}
	var named, wanted []string // each object by the ID of its load balancer and the way from there
	paths := map[string]string{"": ""}
	name := func(id, path string) {
		if id != "" {
			paths[id] = path
		}
		named = append(named, paths[id])
	}
	for _, lb := range s.LoadBalancers {
		name(lb.ID, lb.ID)
	}
	for _, l := range s.Listeners {
		name(l.ID, fmt.Sprintf("%s %s:%d", paths[l.LoadBalancerID], l.Protocol, l.Port))
	}
	for _, p := range s.Pools {
		name(p.ID, paths[p.ListenerID]+" pool")
	}
	for _, m := range s.Members {
		name(m.ID, fmt.Sprintf("%s %s %d", paths[m.PoolID], plain(m.IP), m.Port))
	}
	for i := range want {
		j := slices.IndexFunc(s.LoadBalancers, func(lb v1.LoadBalancerStatus) bool {
			return sameAddress(lb.IP, want[i].VIP.IP) && sdn.SameID(lb.SubnetID, want[i].VIP.SubnetID)
		})
		if j < 0 {
			return false
		}
		id := s.LoadBalancers[j].ID
		wanted = append(wanted, id)
		for k := range want[i].Listeners {
			l := &want[i].Listeners[k]
			path := id + " " + portName(l)
			wanted = append(wanted, path, path+" pool")
			for _, m := range l.Pool.Members {
				wanted = append(wanted, fmt.Sprintf("%s pool %s %d", path, plain(m.IP), m.Port))
			}
		}
	}
	slices.Sort(named)
	slices.Sort(wanted)
	return slices.Equal(named, wanted) && !slices.Contains(named, "")
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

// SaysUnsupported reports whether a status lists exactly these problems.
func SaysUnsupported(s *v1.KuryrLoadBalancerStatus, problems []Problem) bool {
	return slices.Equal(s.Unsupported, Unsupported(problems))
}

// TellsUnsupported reports whether the status before already said all that the status now says
// of problems.
func TellsUnsupported(before, now *v1.KuryrLoadBalancerStatus) bool {
	return !slices.ContainsFunc(now.Unsupported, func(f v1.UnsupportedField) bool { return !slices.Contains(before.Unsupported, f) })
}

// NotChangedAnew reports whether a status lists an unchanged field that was not listed before.
func NotChangedAnew(before, now *v1.KuryrLoadBalancerStatus) bool {
	return slices.ContainsFunc(now.NotChanged, func(d v1.UnchangedField) bool { return !slices.Contains(before.NotChanged, d) })
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
