// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"cmp"
	"net/netip"
	"slices"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// differ finds the differences below one load balancer.
type differ struct {
	*place
	planner *planner
	in      Below
	f       sdn.Features
	off     bool // endpoints and ports stay as they are: a change would not end
	steps   []Step
}

// differences returns the steps for what differs below the load balancer at an address. A listener that
// is not wanted is deleted: no client may come in by it, and its replacement may need its quota.
func (p *planner) differences(at *place, off bool) []Step {
	d := differ{place: at, planner: p, in: Below{LoadBalancerID: at.have.ID}, f: p.in.Features, off: off}
	wanted, ports := map[*sdn.Listener]bool{}, map[int32]bool{}
	for i := range d.ports {
		s := &d.ports[i]
		ports[s.want.Port] = true
		if s.have == nil {
			d.add(CreateListener{d.in, *s.want})
			continue
		}
		wanted[s.have] = true
		d.listener(s)
	}
	for i := range d.have.Listeners {
		l := &d.have.Listeners[i]
		because := "the Service no longer has its port"
		if ports[l.Port] && !d.f.ManyProtocols { // in the way of the wanted one
			because = "the Service has another protocol on its port"
		}
		if !wanted[l] {
			d.remove(l, because)
		}
	}
	d.keepAffinity()
	return d.steps
}

func (d *differ) add(s Step) {
	switch s.(type) {
	case ChangeMembers, CreateListener, CreatePool: // new listeners and pools have members, too
		if d.off {
			return
		}
	}
	d.steps = append(d.steps, s)
}

// remove plans the deletion of a listener. That the cloud does not delete it is a fault.
func (d *differ) remove(l *sdn.Listener, because string) {
	step := DeleteListener{Below{d.in.LoadBalancerID, Wider(l.SourceRanges, rangesOf(d.want.Listeners))}, l.ID, because}
	if !d.planner.resists(l.ID) {
		d.add(step)
		return
	}
	reached := slices.ContainsFunc(d.ports, func(s portState) bool { return s.reached })
	d.planner.fault(d.place, "listener "+l.ID+", which the cloud does not delete,", l.ID, "", reached, step)
}

// listener plans the differences of one listener. A broken listener or pool is a fault, and is
// not changed here.
func (d *differ) listener(s *portState) {
	want, have := s.want, s.have
	switch {
	case isBroken(have.Provisioning) || have.Pool != nil && isBroken(have.Pool.Provisioning):
		return
	case have.Pool != nil && have.Pool.Protocol != want.Pool.Protocol:
		// A port has one listener of a protocol, and a listener has one pool, whose protocol is
		// fixed. The protocol towards the endpoints has to change at once, and connections do
		// not outlive that in any case.
		d.remove(have, "the protocol of its pool changes to "+want.Pool.Protocol)
		d.add(CreateListener{d.in, *want})
		return
	}
	if !sameListener(want, have) {
		d.add(UpdateListener{
			Below{d.in.LoadBalancerID, Wider(have.SourceRanges, want.SourceRanges)}, have.ID, *want, !slices.Equal(want.SourceRanges, have.SourceRanges),
		})
	}
	switch with := d.withAffinity(have); {
	case have.Pool == nil:
		d.add(CreatePool{d.in, have.ID, *want.Pool})
		return
	case d.f.AffinityShared && want.Pool.AffinitySeconds == nil && have.Pool.AffinitySeconds != nil && with[len(with)-1] == have:
		if len(with) == 1 { // else it waits for the others
			d.add(DeletePool{d.in, have.Pool.ID, "the provider removes session affinity with a pool only"})
			return
		}
	case !samePool(want.Pool, have.Pool, d.f):
		d.add(UpdatePool{d.in, have.Pool.ID, *want.Pool, false})
	}
	d.members(s)
}

// The provider removes shared affinity when it deletes a pool, for all pools of that protocol, and at
// no update: see sdn.Features.AffinityShared. All ports of a Service want the same. So all pools but the
// last one lose it by an update, and the last one is deleted afterwards. Before another listener is
// deleted, the pools that keep affinity show none: the next plan gives it to them again. What Octavia
// shows is enough for that, so a new process continues.

// withAffinity returns the listeners whose pools share affinity with that of l, and show it.
func (d *differ) withAffinity(l *sdn.Listener) (all []*sdn.Listener) {
	for i := range d.have.Listeners {
		if o := &d.have.Listeners[i]; o.Pool != nil && o.Pool.AffinitySeconds != nil && l.Pool != nil && o.Pool.Protocol == l.Pool.Protocol {
			all = append(all, o)
		}
	}
	return all
}

// keepAffinity plans the updates before listeners are deleted.
func (d *differ) keepAffinity() {
	goes := func(l *sdn.Listener) bool {
		return slices.ContainsFunc(d.steps, func(s Step) bool { del, is := s.(DeleteListener); return is && del.ID == l.ID })
	}
	for i := range d.have.Listeners {
		l := &d.have.Listeners[i]
		if with := d.withAffinity(l); d.f.AffinityShared && slices.Contains(with, l) && !goes(l) && slices.ContainsFunc(with, goes) {
			p := *l.Pool
			p.AffinitySeconds = nil
			d.add(UpdatePool{d.in, p.ID, p, true})
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
		or(want.ConnectionLimit, usualLimit) == or(have.ConnectionLimit, usualLimit) &&
		or(want.TimeoutClientData, usualTimeout) == or(have.TimeoutClientData, usualTimeout) &&
		or(want.TimeoutMemberData, usualTimeout) == or(have.TimeoutMemberData, usualTimeout) &&
		or(want.TimeoutMemberConnect, usualConnect) == or(have.TimeoutMemberConnect, usualConnect) &&
		or(want.TimeoutTCPInspect, usualInspect) == or(have.TimeoutTCPInspect, usualInspect)
}

func or[T any](set *T, usual T) T {
	if set == nil {
		return usual
	}
	return *set
}

func samePool(want, have *sdn.Pool, f sdn.Features) bool {
	return want.Name == have.Name && or(want.Monitor, v1.MonitorSpec{}) == or(have.Monitor, v1.MonitorSpec{}) &&
		(want.Algorithm == "" || have.Algorithm == "" || want.Algorithm == have.Algorithm) &&
		(want.AffinitySeconds == nil) == (have.AffinitySeconds == nil) &&
		(!f.TimesAffinity(want.Protocol) || or(want.AffinitySeconds, 0) == or(have.AffinitySeconds, 0))
}

type memberKey struct {
	ip   string
	port int32
}

func keyOfMember(m *sdn.Member) memberKey { return memberKey{plain(m.IP), m.Port} }

func byKey(members []sdn.Member) map[memberKey]*sdn.Member {
	all := map[memberKey]*sdn.Member{}
	for i := range members {
		all[keyOfMember(&members[i])] = &members[i]
	}
	return all
}

// plain returns an address in its canonical form.
func plain(ip string) string {
	if a, err := netip.ParseAddr(ip); err == nil {
		return a.String()
	}
	return ip
}

func sameAddress(a, b string) bool { return plain(a) == plain(b) }

// members puts all differences of members into one request. A member whose subnet changes
// is removed first, and the next plan adds it again. A broken member is a fault, and so is one that the
// cloud does not delete.
func (d *differ) members(s *portState) {
	want, have := s.want.Pool, s.have.Pool
	c := ChangeMembers{Below: d.in, PoolID: have.ID, Pool: have.Name, has: len(have.Members)}
	resisting := c
	remove := func(m *sdn.Member) {
		in := &c
		if d.planner.resists(m.ID) {
			in = &resisting
		}
		in.Remove = append(in.Remove, *m)
	}
	there, wanted := byKey(have.Members), byKey(want.Members)
	for i := range want.Members {
		w := &want.Members[i]
		switch h := there[keyOfMember(w)]; {
		case h == nil:
			c.Add = append(c.Add, *w)
		case isBroken(h.Provisioning):
		case !sdn.SameID(d.subnetOf(w), d.subnetOf(h)):
			remove(h)
		case h.Name != w.Name:
			c.Add = append(c.Add, *w)
		}
	}
	for i := range have.Members {
		if m := &have.Members[i]; wanted[keyOfMember(m)] == nil && !isBroken(m.Provisioning) {
			remove(m)
		}
	}
	if len(c.Add)+len(c.Remove) > 0 {
		d.add(c)
	}
	if len(resisting.Remove) > 0 && !d.off {
		d.planner.fault(d.place, "member "+resisting.Remove[0].Name+", which the cloud does not delete,", s.name(), s.have.ID, s.reached, resisting)
	}
}

// subnetOf returns the subnet by which a member is reached: that of the VIP if it names none.
func (d *differ) subnetOf(m *sdn.Member) string { return cmp.Or(m.SubnetID, d.want.VIP.SubnetID) }
