// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"net/netip"
	"slices"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// differ finds the differences below one load balancer.
type differ struct {
	lb *sdn.LoadBalancer
	f  sdn.Features

	// The lists are in the order in which they are carried out.
	affinity  []Step // updates of pools before others are deleted
	less      []Step // listeners that are not wanted, or in the way of a wanted one
	narrower  []Step // updates of listeners that narrow the source ranges
	members   []Step
	listening []Step // other updates of listeners
	more      []Step // new listeners and pools
	pools     []Step // updates of pools
}

func (d *differ) steps() []Step {
	return slices.Concat(d.affinity, d.less, d.narrower, d.members, d.listening, d.more, d.pools)
}

// listeners plans the differences of listeners. A listener that is not wanted is deleted first:
// no client may come in by it, and its replacement may need its quota.
func (d *differ) listeners(want []sdn.Listener) {
	wanted := map[string]*sdn.Listener{}
	ports := map[int32]bool{}
	for i := range want {
		wanted[portName(&want[i])] = &want[i]
		ports[want[i].Port] = true
	}
	there := map[string]bool{}
	for i := range d.lb.Listeners {
		l := &d.lb.Listeners[i]
		w := wanted[portName(l)]
		switch {
		case w != nil && !there[portName(l)]:
			there[portName(l)] = true
			d.listener(w, l)
		case ports[l.Port] && !d.f.ManyProtocols: // in the way of the wanted one
			d.less = append(d.less, d.remove(l, "the Service has another protocol on its port", Wider(l.SourceRanges, rangesOf(want))))
		default:
			d.less = append(d.less, d.remove(l, "the Service no longer has its port", Wider(l.SourceRanges, rangesOf(want))))
		}
	}
	d.keepAffinity()
	for i := range want {
		if !there[portName(&want[i])] {
			d.more = append(d.more, CreateListener{d.lb.ID, want[i]})
		}
	}
}

func (d *differ) remove(l *sdn.Listener, because string, narrows bool) Step {
	return DeleteListener{d.lb.ID, l.ID, because, narrows}
}

// listener plans the differences of one listener. A broken listener or pool is a fault, and is
// not changed here.
func (d *differ) listener(want, have *sdn.Listener) {
	switch {
	case isBroken(have.Provisioning) || have.Pool != nil && isBroken(have.Pool.Provisioning):
		return
	case have.Pool != nil && have.Pool.Protocol != want.Pool.Protocol:
		// A port has one listener of a protocol, and a listener has one pool, whose protocol is
		// fixed. The protocol towards the endpoints has to change at once, and connections do
		// not outlive that in any case.
		d.less = append(d.less, d.remove(have, "the protocol of its pool changes to "+want.Pool.Protocol, Wider(have.SourceRanges, want.SourceRanges)))
		d.more = append(d.more, CreateListener{d.lb.ID, *want})
		return
	}
	if !sameListener(want, have) {
		u := UpdateListener{
			LoadBalancerID: d.lb.ID, ID: have.ID, Listener: *want,
			Ranges: !slices.Equal(want.SourceRanges, have.SourceRanges), Narrows: Wider(have.SourceRanges, want.SourceRanges),
		}
		if u.Narrows {
			d.narrower = append(d.narrower, u)
		} else {
			d.listening = append(d.listening, u)
		}
	}
	if have.Pool == nil {
		d.more = append(d.more, CreatePool{d.lb.ID, have.ID, *want.Pool})
		return
	}
	switch {
	case d.f.AffinityShared && want.Pool.AffinitySeconds == nil && have.Pool.AffinitySeconds != nil && d.isLast(have):
		if len(d.withAffinity(have)) == 1 { // else it waits for the others
			d.less = append(d.less, DeletePool{d.lb.ID, have.Pool.ID, "the provider removes session affinity with a pool only"})
			return
		}
	case !samePool(want.Pool, have.Pool, d.f):
		d.pools = append(d.pools, UpdatePool{d.lb.ID, have.Pool.ID, *want.Pool, false})
	}
	d.memberSteps(want.Pool, have.Pool)
}

// The provider removes shared affinity when it deletes a pool, for all pools of that protocol, and at
// no update: see sdn.Features.AffinityShared. All ports of a Service want the same. So all pools but the
// last one lose it by an update, and the last one is deleted afterwards. Before another listener is
// deleted, the pools that keep affinity show none: the next plan gives it to them again. What Octavia
// shows is enough for that, so a new process continues.

// withAffinity returns the listeners whose pools share affinity with that of l, and show it.
func (d *differ) withAffinity(l *sdn.Listener) (all []*sdn.Listener) {
	for i := range d.lb.Listeners {
		if o := &d.lb.Listeners[i]; o.Pool != nil && o.Pool.AffinitySeconds != nil && l.Pool != nil && o.Pool.Protocol == l.Pool.Protocol {
			all = append(all, o)
		}
	}
	return all
}

func (d *differ) isLast(l *sdn.Listener) bool {
	all := d.withAffinity(l)
	return all[len(all)-1] == l
}

// keepAffinity plans the updates before listeners are deleted.
func (d *differ) keepAffinity() {
	goes := func(l *sdn.Listener) bool {
		return slices.ContainsFunc(d.less, func(s Step) bool { del, is := s.(DeleteListener); return is && del.ID == l.ID })
	}
	for i := range d.lb.Listeners {
		l := &d.lb.Listeners[i]
		if with := d.withAffinity(l); d.f.AffinityShared && slices.Contains(with, l) && !goes(l) && slices.ContainsFunc(with, goes) {
			p := *l.Pool
			p.AffinitySeconds = nil
			d.affinity = append(d.affinity, UpdatePool{d.lb.ID, p.ID, p, true})
		}
	}
}

// The values that Octavia uses where nothing is set. A cloud may be configured otherwise: then
// an update changes nothing, and the caller has to accept that.
const (
	usualTimeout = 50000
	usualConnect = 5000
	usualInspect = 0
	usualLimit   = -1
)

func sameListener(want, have *sdn.Listener) bool {
	return want.Name == have.Name && slices.Equal(want.SourceRanges, have.SourceRanges) &&
		same(want.ConnectionLimit, have.ConnectionLimit, usualLimit) &&
		same(want.TimeoutClientData, have.TimeoutClientData, usualTimeout) &&
		same(want.TimeoutMemberData, have.TimeoutMemberData, usualTimeout) &&
		same(want.TimeoutMemberConnect, have.TimeoutMemberConnect, usualConnect) &&
		same(want.TimeoutTCPInspect, have.TimeoutTCPInspect, usualInspect)
}

func same[T int32 | int64](a, b *T, usual T) bool {
	x, y := usual, usual
	if a != nil {
		x = *a
	}
	if b != nil {
		y = *b
	}
	return x == y
}

func samePool(want, have *sdn.Pool, f sdn.Features) bool {
	if want.Name != have.Name || (want.AffinitySeconds == nil) != (have.AffinitySeconds == nil) {
		return false
	}
	if want.Algorithm != "" && have.Algorithm != "" && want.Algorithm != have.Algorithm {
		return false
	}
	if want.AffinitySeconds != nil && f.TimesAffinity(want.Protocol) && *want.AffinitySeconds != *have.AffinitySeconds {
		return false
	}
	if want.Monitor == nil || have.Monitor == nil {
		return want.Monitor == have.Monitor
	}
	return *want.Monitor == *have.Monitor
}

type memberKey struct {
	ip   string
	port int32
}

func keyOfMember(m *sdn.Member) memberKey { return memberKey{plain(m.IP), m.Port} }

// plain returns an address in its canonical form.
func plain(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil {
		return a.String()
	}
	return ip
}

func sameAddress(a, b string) bool { return plain(a) == plain(b) }

// memberSteps puts all differences of members into one request. A member whose subnet changes
// is removed first, and the next plan adds it again. A broken member is a fault.
func (d *differ) memberSteps(want, have *sdn.Pool) {
	c := ChangeMembers{LoadBalancerID: d.lb.ID, PoolID: have.ID, Pool: have.Name}
	there := map[memberKey]*sdn.Member{}
	for i := range have.Members {
		there[keyOfMember(&have.Members[i])] = &have.Members[i]
	}
	wanted := map[memberKey]bool{}
	for i := range want.Members {
		w := &want.Members[i]
		wanted[keyOfMember(w)] = true
		switch h := there[keyOfMember(w)]; {
		case h == nil:
			c.Add = append(c.Add, *w)
		case isBroken(h.Provisioning):
		case !sdn.SameID(d.subnetOf(w), d.subnetOf(h)):
			c.Remove = append(c.Remove, *h)
		case h.Name != w.Name:
			c.Add = append(c.Add, *w)
		}
	}
	for i := range have.Members {
		if m := &have.Members[i]; !wanted[keyOfMember(m)] && !isBroken(m.Provisioning) {
			c.Remove = append(c.Remove, *m)
		}
	}
	if len(c.Add)+len(c.Remove) > 0 {
		d.members = append(d.members, c)
	}
}

// subnetOf returns the subnet by which a member is reached: that of the VIP if it names none.
func (d *differ) subnetOf(m *sdn.Member) string {
	if m.SubnetID == "" {
		return d.lb.VIP.SubnetID
	}
	return m.SubnetID
}
