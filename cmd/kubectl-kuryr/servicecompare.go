// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

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
	status      *v1.KuryrLoadBalancerStatus
	names       map[string]string // of ports
	used        map[string]bool   // IDs of load balancers and listeners that are wanted
	listeners   []listenerRow
	differences []string // of all but members one by one
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
		c.differ("%s %s: the listener is in the cloud, but not in the spec", row.vip, row.port)
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
	switch {
	case balancerID == "":
	case i < 0:
		c.differ("%s %s: the listener is missing", row.vip, row.port)
	default:
		l := &c.status.Listeners[i]
		c.used[l.ID] = true
		row.id, row.state = l.ID, inSync
		c.timeouts(&row, want, l)
		pool := c.pool(l.ID)
		if pool != nil {
			row.poolID = pool.ID
		}
		switch {
		case pool == nil:
			row.state = differs
			c.differ("%s %s: the listener has no pool", row.vip, row.port)
		case pool.Protocol != want.Pool.Protocol:
			row.state = differs
			c.differ("%s %s: the pool has protocol %s instead of %s", row.vip, row.port, pool.Protocol, want.Pool.Protocol)
		}
	}
	row.members = c.members(want.Pool.Members, row.poolID, vip.SubnetID)
	for _, d := range []struct{ state, text string }{{missing, "missing"}, {differs, "in another subnet"}, {extra, "in the cloud, but not in the spec"}} {
		n := 0
		for _, m := range row.members {
			if m.state == d.state {
				n++
			}
		}
		if n > 0 && row.id != "" {
			c.differ("%s %s: %s %s", row.vip, row.port, count(n, "member"), d.text)
		}
	}
	c.listeners = append(c.listeners, row)
}

// pool returns the pool of a listener; nil: there is none.
func (c *comparison) pool(listenerID string) *v1.PoolStatus {
	i := slices.IndexFunc(c.status.Pools, func(p v1.PoolStatus) bool { return p.ListenerID == listenerID })
	if i < 0 {
		return nil
	}
	return &c.status.Pools[i]
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
				row.state = differs
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
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return fmt.Sprintf("%s:%d", ip, port)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(port)).String() //nolint:gosec // a port, as the API server has checked
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
