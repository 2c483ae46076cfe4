// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestConvergence: the Service and other users of the cloud make any changes meanwhile, and the
// cloud may be busy and give any answer. In the end the cloud has what is wanted, once, and is
// left alone. No step takes away what serves if that can be avoided.
func TestConvergence(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := &random{world: newWorld(t), Rand: rand.New(rand.NewPCG(uint64(seed), 5))}
			r.begin()
			for range 40 {
				r.event()
				for range r.IntN(4) {
					r.look()
				}
			}
			r.faults = false
			r.calm()
			r.settle()
			r.check()
		})
	}
}

// random is a world in which random events happen.
type random struct {
	*world
	*rand.Rand
	faults bool
}

func (r *random) begin() {
	bare := r.IntN(3) == 0
	for _, name := range []string{"ovn", "amphora"} {
		f, err := r.sdn.Features(r.t.Context(), name)
		if err != nil {
			r.t.Fatal(err)
		}
		f.ManyProtocols = r.IntN(4) > 0
		p := memory.Provider{Features: f, Bare: bare}
		if name == "amphora" {
			p.Busy = 1 + r.IntN(2)
		}
		r.cloud.SetProvider(p)
	}
	r.faults = true
	lost := errors.New("the answer is lost")
	r.cloud.Before = func(context.Context, string, int) error { return r.fault(sdn.ErrUnavailable) }
	r.cloud.After = func(context.Context, string, int) error { return r.fault(lost) }
}

func (r *random) fault(err error) error {
	if r.faults && r.IntN(12) == 0 {
		return err
	}
	return nil
}

// event is a change of the Service or, without Kuryr's knowledge, of the cloud.
func (r *random) event() {
	if r.IntN(3) == 0 {
		r.edit()
		return
	}
	s := &r.klb.Spec
	switch r.IntN(12) {
	case 0:
		s.VIPs[0].IP = fmt.Sprintf("10.2.0.%d", 10+r.IntN(3))
	case 1:
		s.VIPs = s.VIPs[:1]
		if r.IntN(2) == 0 {
			s.VIPs = append(s.VIPs, v1.VIPAddress{IP: "fd00:2::10", SubnetID: vips6})
		}
	case 2:
		s.Provider = []string{"", "ovn", "amphora"}[r.IntN(3)]
	case 3:
		s.SourceRanges = [][]string{nil, {"192.0.2.0/24"}, {"2001:db8::/32"}}[r.IntN(3)]
	default:
		s.Listeners = r.listeners()
	}
}

func (r *random) listeners() []v1.ListenerSpec {
	var all []v1.ListenerSpec
	for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
		for n := int32(80); n < 83; n++ {
			if r.IntN(3) > 0 {
				continue
			}
			l := v1.ListenerSpec{Protocol: protocol, Port: n}
			for i := 1; i < 6; i++ {
				if r.IntN(2) == 0 {
					l.Members = append(l.Members, member(i))
				}
			}
			if r.IntN(3) == 0 {
				l.AffinitySeconds = new([]int32{60, 10800}[r.IntN(2)])
			}
			if r.IntN(3) == 0 {
				l.TimeoutClientData = new(int64(70000))
			}
			if r.IntN(3) == 0 {
				l.Monitor = monitor("TCP", int32(4+r.IntN(2)))
			}
			if r.IntN(4) == 0 && protocol == "TCP" {
				l.ProxyProtocol = "PROXY"
			}
			all = append(all, l)
		}
	}
	return all
}

// edit is a change by another user of the cloud.
func (r *random) edit() {
	all := r.cloud.LoadBalancers()
	if len(all) == 0 {
		return
	}
	id := all[r.IntN(len(all))].LoadBalancer.ID
	switch r.IntN(8) {
	case 0:
		r.cloud.RemoveLoadBalancer(id)
	case 1:
		r.cloud.SetError(id)
	default:
		r.cloud.EditLoadBalancer(id, r.spoil)
	}
}

func (r *random) spoil(lb *sdn.LoadBalancer) {
	if len(lb.Listeners) == 0 {
		return
	}
	i := r.IntN(len(lb.Listeners))
	l := &lb.Listeners[i]
	switch r.IntN(6) {
	case 0:
		lb.Listeners = slices.Delete(lb.Listeners, i, i+1)
		return
	case 1:
		l.Pool = nil
		return
	case 2:
		l.Provisioning = sdn.ProvisioningError
		return
	case 3:
		l.ConnectionLimit = new(int32(7))
		return
	}
	if l.Pool == nil || len(l.Pool.Members) == 0 {
		return
	}
	p := *l.Pool
	p.Members = slices.Clone(p.Members)
	l.Pool = &p
	j := r.IntN(len(p.Members))
	switch r.IntN(3) {
	case 0:
		p.Members = slices.Delete(p.Members, j, j+1)
	case 1:
		p.Members[j].Provisioning = sdn.ProvisioningError
	default:
		p.Members[j].SubnetID = "elsewhere"
	}
}

// look carries out a part of a plan, and checks each step of it.
func (r *random) look() {
	_, have, p, err := r.plan()
	if err != nil {
		return
	}
	if len(have) > 0 && r.IntN(4) == 0 { // stopped before all is done
		p.Steps = p.Steps[:r.IntN(len(p.Steps)+1)]
		p.Last = nil
	}
	steps := slices.Clone(p.Steps)
	r.now = r.now.Add(cmp.Or(p.Wake, p.Reread))
	for i := range p.Remedies {
		steps = append(steps, p.Remedies[i].Step)
		r.attempts.Tried(&p.Remedies[i], r.now, "")
	}
	if len(steps)+len(p.Busy)+len(p.Unfinished)+len(p.Broken) == 0 {
		steps = p.Last
	}
	mending := len(p.Steps)
	for i, s := range steps {
		before := r.serving()
		err := r.do(s)
		if i < mending {
			r.gap(s, before)
		}
		if err != nil {
			return
		}
	}
}

// service is a port at an address that has a wanted endpoint.
type service struct {
	vip      string
	protocol string
	port     int32
}

// serving returns which of the wanted ports are served.
func (r *random) serving() map[service]bool {
	out := map[service]bool{}
	want, _ := balancer.Want(r.klb, balancer.Everything())
	for _, item := range r.cloud.LoadBalancers() {
		for _, w := range want {
			if item.LoadBalancer.VIP != w.VIP {
				continue
			}
			for _, l := range item.LoadBalancer.Listeners {
				i := slices.IndexFunc(w.Listeners, func(x sdn.Listener) bool { return x.Port == l.Port && x.Protocol == l.Protocol })
				if i < 0 || l.Pool == nil {
					continue
				}
				for _, m := range l.Pool.Members {
					if slices.ContainsFunc(w.Listeners[i].Pool.Members, func(x sdn.Member) bool { return x.IP == m.IP && x.Port == m.Port }) {
						out[service{w.VIP.IP, l.Protocol, l.Port}] = true
					}
				}
			}
		}
	}
	return out
}

// gap checks that a step keeps what is served, except for what the cloud cannot have twice: an
// address, a port of it, a member.
func (r *random) gap(step balancer.Step, before map[service]bool) {
	after := r.serving()
	for s := range before {
		if after[s] {
			continue
		}
		switch d := step.(type) {
		case balancer.DeleteLoadBalancer:
			if contains(d.Because, "its provider is", "another load balancer") {
				continue
			}
		case balancer.DeleteListener:
			if contains(d.Because, "protocol of its pool", "another protocol on its port") {
				continue
			}
		case balancer.ChangeMembers:
			if slices.ContainsFunc(d.Remove, func(m sdn.Member) bool { return m.SubnetID == "elsewhere" }) {
				continue
			}
		}
		r.t.Errorf("%s: nothing serves %+v any more", step, s)
	}
}

// calm ends every state that only other users of the cloud can end.
func (r *random) calm() {
	for _, item := range r.cloud.LoadBalancers() {
		r.cloud.Settle(item.LoadBalancer.ID)
	}
}

// check compares the cloud with what is wanted, by another way than Next.
func (r *random) check() {
	want, have, p, err := r.plan()
	if err != nil {
		r.t.Fatal(err)
	}
	if !atRest(&p) {
		r.t.Fatalf("not at rest: %+v", p)
	}
	if len(have) != len(want) {
		r.t.Fatalf("there are %d load balancers, want %d", len(have), len(want))
	}
	for _, w := range want {
		i := slices.IndexFunc(have, func(h sdn.LoadBalancer) bool { return h.VIP == w.VIP })
		if i < 0 {
			r.t.Fatalf("there is none at %s", w.VIP.IP)
		}
		if got, want := outline(have[i]), outline(w); !slices.Equal(got, want) {
			r.t.Errorf("at %s there is\n%q, want\n%q", w.VIP.IP, got, want)
		}
	}
	status := balancer.Status(have, r.klb.Spec.VIPs)
	if !balancer.Covers(&status, want, false) {
		r.t.Errorf("status %+v does not cover what is wanted", status)
	}
}

// outline describes a load balancer, with a line for each endpoint of each port.
func outline(lb sdn.LoadBalancer) []string {
	var all []string
	for _, l := range lb.Listeners {
		sticky, checked := l.Pool.AffinitySeconds != nil, l.Pool.Monitor
		if checked == nil {
			checked = &v1.MonitorSpec{}
		}
		client := int64(50000)
		if l.TimeoutClientData != nil {
			client = *l.TimeoutClientData
		}
		limit := int32(-1)
		if l.ConnectionLimit != nil {
			limit = *l.ConnectionLimit
		}
		head := fmt.Sprint(l.Provisioning == sdn.ProvisioningError, l.Pool.Provisioning == sdn.ProvisioningError, l.Name, l.Protocol, l.Port, l.SourceRanges, client, limit, l.Pool.Protocol, sticky, *checked)
		all = append(all, head)
		for _, m := range l.Pool.Members {
			all = append(all, head+fmt.Sprint(m.Provisioning == sdn.ProvisioningError, m.Name, m.IP, m.Port, m.SubnetID))
		}
	}
	slices.Sort(all)
	return all
}
