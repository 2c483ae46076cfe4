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
	if len(s.LoadBalancers) != len(want) || (s.PublicIP != nil) != publicIP {
		return false
	}
	c := coverage{s: s, listeners: map[belowKey]string{}, pools: map[string]string{}, members: map[belowKey]bool{}}
	for i := range want {
		if !c.balancer(&want[i]) {
			return false
		}
	}
	return c.found == len(s.Listeners)+len(s.Pools)+len(s.Members)
}

// belowKey is the key of a listener of a load balancer, or of a member of a pool.
type belowKey struct {
	parent, what string
	port         int32
}

type coverage struct {
	s         *v1.KuryrLoadBalancerStatus
	listeners map[belowKey]string // IDs
	pools     map[string]string   // IDs by listener
	members   map[belowKey]bool
	found     int // listeners, pools and members
}

func (c *coverage) index() {
	if len(c.listeners) > 0 {
		return
	}
	for _, l := range c.s.Listeners {
		c.listeners[belowKey{l.LoadBalancerID, l.Protocol, l.Port}] = l.ID
	}
	for _, p := range c.s.Pools {
		c.pools[p.ListenerID] = p.ID
	}
	for _, m := range c.s.Members {
		if m.ID != "" {
			c.members[belowKey{m.PoolID, plain(m.IP), m.Port}] = true
		}
	}
}

func (c *coverage) balancer(want *sdn.LoadBalancer) bool {
	c.index()
	i := slices.IndexFunc(c.s.LoadBalancers, func(lb v1.LoadBalancerStatus) bool {
		return lb.ID != "" && sameAddress(lb.IP, want.VIP.IP) && sdn.SameID(lb.SubnetID, want.VIP.SubnetID)
	})
	if i < 0 {
		return false
	}
	for _, l := range want.Listeners {
		id := c.listeners[belowKey{c.s.LoadBalancers[i].ID, l.Protocol, l.Port}]
		if id == "" || c.pools[id] == "" {
			return false
		}
		c.found += 2
		for _, m := range l.Pool.Members {
			if !c.members[belowKey{c.pools[id], plain(m.IP), m.Port}] {
				return false
			}
			c.found++
		}
	}
	return true
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
