// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// States of a wanted part, compared with the cloud.
const (
	inSync  = "in sync"
	missing = "missing"
	extra   = "extra"
	differs = "differs"
)

// comparison compares a KuryrLoadBalancer's spec with its status. Parts that the provider cannot do
// are wanted, too: the condition Supported reports them.
type comparison struct {
	listeners   []listenerRow
	members     []memberRow
	differences []string // of all but members one by one

	wanted, synced                   int // members
	wantedListeners, syncedListeners int
}

// listenerRow is a port of a load balancer, with its pool.
type listenerRow struct{ vip, port, name, state, id, poolID string }

// memberRow is an endpoint behind one.
type memberRow struct{ vip, port, name, address, subnet, state, id string }

// count is how many of the members that are wanted are there.
func (c *comparison) count() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", c.synced, c.wanted)
}

func (c *comparison) countListeners() string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", c.syncedListeners, c.wantedListeners)
}

func (c *comparison) differ(format string, args ...any) {
	c.differences = append(c.differences, fmt.Sprintf(format, args...))
}

// compare compares the spec of a KuryrLoadBalancer with its status; nil if nothing
// is wanted: there is none, or it is being deleted.
func compare(klb *v1.KuryrLoadBalancer) *comparison {
	if klb == nil || !klb.DeletionTimestamp.IsZero() {
		return nil
	}
	c := &comparison{}
	has := newShown(&klb.Status)
	names := map[string]string{} // of ports
	for _, l := range klb.Spec.Listeners {
		names[portOf(l.Protocol, l.Port)] = l.Name
	}
	want, _ := balancer.Want(klb, balancer.Everything())
	for i := range want {
		c.balancer(&want[i], has, names)
	}
	for i := range klb.Status.LoadBalancers {
		if lb := &klb.Status.LoadBalancers[i]; !has.used[lb.ID] {
			c.differ("load balancer %s at %s is in the cloud, but not in the spec", lb.ID, lb.IP)
		}
	}
	c.publicIP(klb.Spec.PublicIP, klb.Status.PublicIP)
	return c
}

// shown is a status by what things are known by.
type shown struct {
	status    *v1.KuryrLoadBalancerStatus
	listeners map[string][]*v1.ListenerStatus // by load balancer
	pools     map[string]*v1.PoolStatus       // by listener
	members   map[string][]*v1.MemberStatus   // by pool
	used      map[string]bool                 // IDs of load balancers and listeners that are wanted
}

func newShown(s *v1.KuryrLoadBalancerStatus) *shown {
	h := &shown{
		status: s, listeners: map[string][]*v1.ListenerStatus{}, pools: map[string]*v1.PoolStatus{},
		members: map[string][]*v1.MemberStatus{}, used: map[string]bool{},
	}
	for i := range s.Listeners {
		l := &s.Listeners[i]
		h.listeners[l.LoadBalancerID] = append(h.listeners[l.LoadBalancerID], l)
	}
	for i := range s.Pools {
		h.pools[s.Pools[i].ListenerID] = &s.Pools[i]
	}
	for i := range s.Members {
		m := &s.Members[i]
		h.members[m.PoolID] = append(h.members[m.PoolID], m)
	}
	return h
}

func (h *shown) balancer(vip v1.VIPAddress) *v1.LoadBalancerStatus {
	for i := range h.status.LoadBalancers {
		if lb := &h.status.LoadBalancers[i]; plain(lb.IP) == plain(vip.IP) && sdn.SameID(lb.SubnetID, vip.SubnetID) && !h.used[lb.ID] {
			return lb
		}
	}
	return nil
}

func (h *shown) listener(balancer string, want *sdn.Listener) *v1.ListenerStatus {
	for _, l := range h.listeners[balancer] {
		if l.Protocol == want.Protocol && l.Port == want.Port {
			return l
		}
	}
	return nil
}

// plain writes an address as any other way of writing it is written, too.
func plain(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil {
		return a.Unmap().String()
	}
	return ip
}

func (c *comparison) balancer(want *sdn.LoadBalancer, has *shown, names map[string]string) {
	lb := has.balancer(want.VIP)
	if lb == nil {
		c.differ("there is no load balancer at %s", want.VIP.IP)
		lb = &v1.LoadBalancerStatus{}
	} else {
		has.used[lb.ID] = true
		if want.Provider != "" && !sdn.SameProvider(lb.Provider, want.Provider) {
			c.differ("the load balancer at %s has provider %s instead of %s", want.VIP.IP, lb.Provider, want.Provider)
		}
		if want.ProjectID != "" && lb.ProjectID != "" && !sdn.SameID(lb.ProjectID, want.ProjectID) {
			c.differ("the load balancer at %s is in project %s instead of %s", want.VIP.IP, lb.ProjectID, want.ProjectID)
		}
	}
	for i := range want.Listeners {
		c.listener(want, &want.Listeners[i], lb, has, names)
	}
	for _, l := range has.listeners[lb.ID] {
		if lb.ID != "" && !has.used[l.ID] {
			c.strange(want.VIP.IP, l, has)
		}
	}
}

func portOf(protocol string, port int32) string { return fmt.Sprintf("%s:%d", protocol, port) }

// listener compares one port, its pool and members.
func (c *comparison) listener(lb *sdn.LoadBalancer, want *sdn.Listener, in *v1.LoadBalancerStatus, has *shown, names map[string]string) {
	row := listenerRow{vip: lb.VIP.IP, port: portOf(want.Protocol, want.Port), state: inSync}
	row.name = names[row.port]
	var members []*v1.MemberStatus
	l := has.listener(in.ID, want)
	if l == nil || in.ID == "" {
		row.state = missing
		if in.ID != "" {
			c.differ("%s %s: the listener is missing", row.vip, row.port)
		}
	} else {
		has.used[l.ID] = true
		row.id = l.ID
		c.timeouts(&row, want, l)
		pool := has.pools[l.ID]
		switch {
		case pool == nil:
			row.state = differs
			c.differ("%s %s: the listener has no pool", row.vip, row.port)
		case pool.Protocol != want.Pool.Protocol:
			row.state = differs
			c.differ("%s %s: the pool has protocol %s instead of %s", row.vip, row.port, pool.Protocol, want.Pool.Protocol)
		}
		if pool != nil {
			row.poolID = pool.ID
			members = has.members[pool.ID]
		}
	}
	c.wantedListeners++
	if row.state == inSync {
		c.syncedListeners++
	}
	c.listeners = append(c.listeners, row)
	c.pool(&row, lb.VIP.SubnetID, want.Pool.Members, members)
}

// timeouts compares the timeouts that the spec sets. The cloud chooses the others.
func (c *comparison) timeouts(row *listenerRow, want *sdn.Listener, l *v1.ListenerStatus) {
	for _, t := range []struct {
		name      string
		want, has *int64
	}{{"client", want.TimeoutClientData, l.TimeoutClientData}, {"member", want.TimeoutMemberData, l.TimeoutMemberData}} {
		if t.want != nil && t.has != nil && *t.want != 0 && *t.want != *t.has {
			row.state = differs
			c.differ("%s %s: the timeout of %ss is %d ms instead of %d ms", row.vip, row.port, t.name, *t.has, *t.want)
		}
	}
}

// pool compares the members of a port. A subnet that is not named is the VIP's.
func (c *comparison) pool(at *listenerRow, vipSubnet string, want []sdn.Member, have []*v1.MemberStatus) {
	found := map[string]*v1.MemberStatus{}
	for _, m := range have {
		found[address(m.IP, m.Port)] = m
	}
	counts := map[string]int{}
	add := func(row memberRow) {
		row.vip, row.port = at.vip, at.port
		row.subnet = or(row.subnet, vipSubnet)
		counts[row.state]++
		c.members = append(c.members, row)
	}
	for _, w := range want {
		row := memberRow{name: w.Name, address: address(w.IP, w.Port), subnet: w.SubnetID, state: missing}
		if m := found[row.address]; m != nil {
			row.state, row.id = inSync, m.ID
			if !sdn.SameID(or(m.SubnetID, vipSubnet), or(w.SubnetID, vipSubnet)) {
				row.state = differs
			}
			delete(found, row.address)
		}
		add(row)
	}
	for _, m := range have { // in their order
		if key := address(m.IP, m.Port); found[key] != nil {
			add(memberRow{name: m.Name, address: key, subnet: m.SubnetID, state: extra, id: m.ID})
		}
	}
	c.wanted += len(want)
	c.synced += counts[inSync]
	for _, d := range []struct{ state, text string }{{missing, "missing"}, {differs, "in another subnet"}, {extra, "in the cloud, but not in the spec"}} {
		if n := counts[d.state]; n > 0 && at.id != "" {
			c.differ("%s %s: %s %s", at.vip, at.port, count(n, "member"), d.text)
		}
	}
}

func address(ip string, port int32) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return fmt.Sprintf("%s:%d", ip, port)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(port)).String() //nolint:gosec // a port, as the API server has checked
}

// strange notes a listener that nobody wants.
func (c *comparison) strange(vip string, l *v1.ListenerStatus, has *shown) {
	row := listenerRow{vip: vip, port: portOf(l.Protocol, l.Port), state: extra, id: l.ID}
	c.differ("%s %s: the listener is in the cloud, but not in the spec", vip, row.port)
	var members []*v1.MemberStatus
	if p := has.pools[l.ID]; p != nil {
		row.poolID, members = p.ID, has.members[p.ID]
	}
	c.listeners = append(c.listeners, row)
	c.pool(&listenerRow{vip: vip, port: row.port}, "", nil, members) // they go with it: no word about each
}

func (c *comparison) publicIP(want *v1.PublicIPSpec, has *v1.PublicIPStatus) {
	switch {
	case want != nil && has == nil:
		c.differ("there is no floating IP")
	case want == nil && has != nil:
		c.differ("floating IP %s is in the cloud, but not in the spec", has.IP)
	case want != nil && want.Address != "" && want.Address != has.IP:
		c.differ("the floating IP is %s instead of %s", has.IP, want.Address)
	}
}
