// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// States of a part, compared with the cloud. Any other one says in which way the part differs.
const (
	inSync  = "in sync"
	missing = "missing"
	extra   = "extra" // in the cloud, and not wanted
)

// comparison compares a KuryrLoadBalancer's spec with its status. Parts that the provider cannot do
// are wanted, too: the condition Supported reports them.
type comparison struct {
	status      *v1.KuryrLoadBalancerStatus
	names       map[string]string // of ports
	used        map[string]bool   // IDs of load balancers and listeners that are wanted
	listeners   []listenerRow
	differences []string // of load balancers and the floating IP
}

// listenerRow is a port of a load balancer, with its pool.
type listenerRow struct {
	vip, port, name, state, id, poolID string
	members                            []memberRow
}

// memberRow is an endpoint behind one.
type memberRow struct{ name, address, subnet, state, id string }

// counts says how many of the wanted listeners and members are in sync, as in 1/2; "-": none is wanted.
func (c *comparison) counts() (listeners, members string) {
	if c == nil {
		return "-", "-"
	}
	var l, m share
	for _, row := range c.listeners {
		l.add(row.state)
		for _, member := range row.members {
			m.add(member.state)
		}
	}
	return l.String(), m.String()
}

// share is how many of the wanted parts are in sync.
type share struct{ synced, wanted int }

func (s *share) add(state string) {
	if state != extra {
		s.wanted++
	}
	if state == inSync {
		s.synced++
	}
}

func (s share) String() string { return fmt.Sprintf("%d/%d", s.synced, s.wanted) }

func (c *comparison) differ(format string, args ...any) {
	c.differences = append(c.differences, fmt.Sprintf(format, args...))
}

// compare compares the spec of a KuryrLoadBalancer with its status; nil if nothing
// is wanted: there is none, or it is being deleted.
func compare(klb *v1.KuryrLoadBalancer) *comparison {
	if klb == nil || !klb.DeletionTimestamp.IsZero() {
		return nil
	}
	c := &comparison{status: &klb.Status, names: map[string]string{}, used: map[string]bool{}}
	for _, l := range klb.Spec.Listeners {
		c.names[portOf(l.Protocol, l.Port)] = l.Name
	}
	want, _ := balancer.Want(klb, balancer.Everything())
	for i := range want {
		c.balancer(&want[i])
	}
	for _, lb := range klb.Status.LoadBalancers {
		if !c.used[lb.ID] {
			c.differ("load balancer %s at %s is in the cloud, but not in the spec", lb.ID, lb.IP)
		}
	}
	c.publicIP(klb.Spec.PublicIP, klb.Status.PublicIP)
	return c
}

// plain writes an address as any other way of writing it is written, too.
func plain(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil {
		return a.Unmap().String()
	}
	return ip
}

func (c *comparison) balancer(want *sdn.LoadBalancer) {
	var lb v1.LoadBalancerStatus
	i := slices.IndexFunc(c.status.LoadBalancers, func(lb v1.LoadBalancerStatus) bool {
		return plain(lb.IP) == plain(want.VIP.IP) && sdn.SameID(lb.SubnetID, want.VIP.SubnetID) && !c.used[lb.ID]
	})
	if i < 0 {
		c.differ("there is no load balancer at %s", want.VIP.IP)
	} else {
		lb = c.status.LoadBalancers[i]
		c.used[lb.ID] = true
		if want.Provider != "" && !sdn.SameProvider(lb.Provider, want.Provider) {
			c.differ("the load balancer at %s has provider %s instead of %s", want.VIP.IP, lb.Provider, want.Provider)
		}
		if want.ProjectID != "" && lb.ProjectID != "" && !sdn.SameID(lb.ProjectID, want.ProjectID) {
			c.differ("the load balancer at %s is in project %s instead of %s", want.VIP.IP, lb.ProjectID, want.ProjectID)
		}
	}
	for i := range want.Listeners {
		c.listener(want.VIP, &want.Listeners[i], lb.ID)
	}
	for _, l := range c.status.Listeners { // that nobody wants
		if lb.ID == "" || l.LoadBalancerID != lb.ID || c.used[l.ID] {
			continue
		}
		row := listenerRow{vip: want.VIP.IP, port: portOf(l.Protocol, l.Port), state: extra, id: l.ID}
		if pool := c.pool(l.ID); pool != nil {
			row.poolID, row.members = pool.ID, c.members(nil, pool.ID, "")
		}
		c.listeners = append(c.listeners, row)
	}
}

func portOf(protocol string, port int32) string { return fmt.Sprintf("%s:%d", protocol, port) }

// listener compares one port of the load balancer with an ID, its pool and members.
func (c *comparison) listener(vip v1.VIPAddress, want *sdn.Listener, balancerID string) {
	row := listenerRow{vip: vip.IP, port: portOf(want.Protocol, want.Port), state: missing}
	row.name = c.names[row.port]
	i := slices.IndexFunc(c.status.Listeners, func(l v1.ListenerStatus) bool {
		return l.LoadBalancerID == balancerID && l.Protocol == want.Protocol && l.Port == want.Port
	})
	if i >= 0 && balancerID != "" {
		l := &c.status.Listeners[i]
		c.used[l.ID] = true
		pool := cmp.Or(c.pool(l.ID), &v1.PoolStatus{})
		row.id, row.state, row.poolID = l.ID, state(want, l, pool), pool.ID
	}
	row.members = c.members(want.Pool.Members, row.poolID, vip.SubnetID)
	c.listeners = append(c.listeners, row)
}

// state compares a listener and its pool with what the spec says of them. The cloud chooses the
// timeouts that the spec does not set.
func state(want *sdn.Listener, l *v1.ListenerStatus, pool *v1.PoolStatus) string {
	other := func(want, has *int64) bool { return want != nil && has != nil && *want != 0 && *want != *has }
	switch {
	case pool.ID == "":
		return "without a pool"
	case pool.Protocol != want.Pool.Protocol:
		return fmt.Sprintf("pool of %s instead of %s", pool.Protocol, want.Pool.Protocol)
	case other(want.TimeoutClientData, l.TimeoutClientData):
		return fmt.Sprintf("client timeout %d ms instead of %d ms", *l.TimeoutClientData, *want.TimeoutClientData)
	case other(want.TimeoutMemberData, l.TimeoutMemberData):
		return fmt.Sprintf("member timeout %d ms instead of %d ms", *l.TimeoutMemberData, *want.TimeoutMemberData)
	}
	return inSync
}

// pool returns the pool of a listener; nil: there is none.
func (c *comparison) pool(listenerID string) *v1.PoolStatus {
	i := slices.IndexFunc(c.status.Pools, func(p v1.PoolStatus) bool { return p.ListenerID == listenerID })
	if i < 0 {
		return nil
	}
	return &c.status.Pools[i]
}

// members compares the wanted members with those of a pool. A subnet that is not named is the VIP's.
func (c *comparison) members(want []sdn.Member, poolID, vipSubnet string) (rows []memberRow) {
	found := map[string]v1.MemberStatus{}
	for _, m := range c.status.Members {
		if poolID != "" && m.PoolID == poolID {
			found[address(m.IP, m.Port)] = m
		}
	}
	for _, w := range want {
		row := memberRow{name: w.Name, address: address(w.IP, w.Port), subnet: cmp.Or(w.SubnetID, vipSubnet), state: missing}
		if m, ok := found[row.address]; ok {
			row.state, row.id = inSync, m.ID
			if !sdn.SameID(cmp.Or(m.SubnetID, vipSubnet), row.subnet) {
				row.state = "in another subnet"
			}
			delete(found, row.address)
		}
		rows = append(rows, row)
	}
	for _, m := range c.status.Members { // in their order
		if key := address(m.IP, m.Port); found[key].ID == m.ID && m.PoolID == poolID {
			rows = append(rows, memberRow{name: m.Name, address: key, subnet: cmp.Or(m.SubnetID, vipSubnet), state: extra, id: m.ID})
		}
	}
	return rows
}

func address(ip string, port int32) string {
	return net.JoinHostPort(plain(ip), strconv.Itoa(int(port)))
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
