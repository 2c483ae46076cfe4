// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// likeWanted compares a load balancer with the requested one. It ignores order, defaults, and
// fields that only the cloud sets.
var likeWanted = cmp.Options{
	cmpopts.IgnoreFields(sdn.LoadBalancer{}, "ID", "Owner", "ProjectID", "Provider", "VIPPortID", "Provisioning", "Operating"),
	cmpopts.IgnoreFields(sdn.Listener{}, "ID", "Provisioning", "Operating",
		"ConnectionLimit", "TimeoutClientData", "TimeoutMemberData", "TimeoutMemberConnect", "TimeoutTCPInspect"),
	cmpopts.IgnoreFields(sdn.Pool{}, "ID", "Provisioning", "Operating", "MonitorBroken"),
	cmpopts.IgnoreFields(sdn.Member{}, "ID", "Provisioning", "Operating"),
	cmpopts.SortSlices(func(a, b sdn.Listener) bool { return a.Port < b.Port || a.Port == b.Port && a.Protocol < b.Protocol }),
	cmpopts.SortSlices(func(a, b sdn.Member) bool { return a.IP < b.IP || a.IP == b.IP && a.Port < b.Port }),
	cmpopts.EquateEmpty(),
}

func featuresAreTold(t *testing.T, f services) {
	if f.features.Provider == "" || f.features.Algorithm == "" || !slices.Contains(f.features.Protocols, "TCP") {
		t.Errorf("Features(%q) = %+v; want a name, an algorithm and TCP at least", f.Provider, f.features)
	}
	if f.Provider != "" && f.features.Provider != f.Provider {
		t.Errorf("Features(%q) are those of %q", f.Provider, f.features.Provider)
	}
	if ovn := f.features.Provider == "ovn"; f.features.KeepsUDPClients != ovn {
		t.Errorf("Features of %q: KeepsUDPClients %t, want %t", f.features.Provider, f.features.KeepsUDPClients, ovn)
	}
	_, err := f.Backend.Features(f.ctx(), f.Missing)
	if !errors.Is(err, sdn.ErrInvalid) || sdn.FieldOf(err) != sdn.FieldProvider || !strings.Contains(err.Error(), f.Missing) {
		t.Errorf("Features of a provider that is not there: %v, want ErrInvalid of the provider, naming it", err)
	}
	if usual, err := f.Backend.Features(f.ctx(), ""); err != nil || usual.Provider == "" {
		t.Errorf("Features of the default provider = %+v, %v; want its name", usual, err)
	}
}

func balancerIsComplete(t *testing.T, f services) {
	want := f.wanted(f.listener("TCP", 80, 2), f.listener("TCP", 443, 0))
	if slices.Contains(f.features.Protocols, "UDP") {
		want.Listeners = append(want.Listeners, f.listener("UDP", 53, 1))
	}
	want.Listeners[1].Pool = nil
	made, err := f.tryBalancer(want)
	if err != nil || made.ID == "" || made.VIPPortID == "" || made.Provider == "" || made.Owner != f.owner {
		t.Fatalf("CreateLoadBalancer = %+v, %v", made, err)
	}
	if len(made.Listeners) > 0 {
		if diff := cmp.Diff(want, made, likeWanted); diff != "" {
			t.Errorf("the answer of CreateLoadBalancer: (-want +got)\n%s", diff)
		}
	}
	f.active(made.ID)
	if len(made.Listeners) == 0 {
		for _, l := range want.Listeners {
			f.addListener(made.ID, l)
		}
	}
	f.isAsMade(want, made)
}

// isAsMade compares a completed load balancer with the requested and with the returned one.
func (f services) isAsMade(want, made sdn.LoadBalancer) {
	t := f.t
	t.Helper()
	got := f.active(made.ID)
	if diff := cmp.Diff(want, got, likeWanted); diff != "" {
		t.Errorf("LoadBalancer: (-want +got)\n%s", diff)
	}
	if got.VIPPortID != made.VIPPortID || got.Owner != f.owner || got.Operating == "" || got.Provider != made.Provider {
		t.Errorf("LoadBalancer = %+v, want it as it was made: %+v", got, made)
	}
	for _, l := range got.Listeners {
		if l.ID == "" || l.Provisioning != sdn.ProvisioningActive || l.Pool != nil && l.Pool.ID == "" {
			t.Errorf("listener %+v, want it ACTIVE and with IDs", l)
		}
	}
	again, err := f.Fresh(t).LoadBalancer(f.ctx(), made.ID)
	if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" || err != nil {
		t.Errorf("LoadBalancer of a process that has just begun: %v (-want +got)\n%s", err, diff)
	}
}

func balancerOfIPv6(t *testing.T, f services) {
	m := sdn.Member{Name: "a/b", IP: inside(f.Six.Prefix, 16), Port: 80, SubnetID: f.Six.ID}
	want := f.wanted(f.listener("TCP", 80, 0))
	want.VIP = v1.VIPAddress{IP: inside(f.Six.Prefix, 100), SubnetID: f.Six.ID}
	want.Listeners[0].Pool.Members = []sdn.Member{m}
	if diff := cmp.Diff(want, f.balancer(want), likeWanted); diff != "" {
		t.Errorf("LoadBalancer: (-want +got)\n%s", diff)
	}
}

func balancerOwnerIsKnown(t *testing.T, f services) {
	made, err := f.tryBalancer(f.wanted())
	if err != nil {
		t.Fatalf("CreateLoadBalancer: %v", err)
	}
	for _, b := range []Services{f.Backend, f.Fresh(t)} {
		got, ok := f.listed(b)[made.ID]
		if !ok || got.Owner != f.owner || got.Provisioning == "" || got.VIPPortID == "" || got.VIPPortID != made.VIPPortID {
			t.Errorf("ListLoadBalancers right after CreateLoadBalancer shows %+v (%t), want %v and VIP port %s", got, ok, f.owner, made.VIPPortID)
		}
	}
	if _, ok := f.listed(f.Other)[made.ID]; ok {
		t.Error("another cluster lists it")
	}
}

func balancerAnswerIsLost(t *testing.T, f services) {
	if !f.Cloud.LoseAnswer(t) {
		t.Skip("this cloud loses no answers")
	}
	want := f.wanted(f.listener("TCP", 80, 1))
	if _, err := f.tryBalancer(want); !errors.Is(err, sdn.ErrUnavailable) {
		t.Errorf("CreateLoadBalancer with its answer lost: %v, want ErrUnavailable", err)
	}
	ids := f.mine()
	for _, id := range ids {
		f.balancerGoes(f.Backend, id)
	}
	if len(ids) != 1 {
		t.Fatalf("ListLoadBalancers shows %d of the owner, want 1", len(ids))
	}
	if _, err := f.tryBalancer(want); !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("CreateLoadBalancer again: %v, want ErrConflict", err)
	}
	if got := f.active(ids[0]); got.VIP != want.VIP || got.Owner != f.owner {
		t.Errorf("LoadBalancer = %+v, want what was asked for", got)
	}
}

func vipIsTaken(t *testing.T, f services) {
	want := f.wanted()
	made := f.balancer(want)
	_, err := f.tryBalancer(want)
	if !errors.Is(err, sdn.ErrConflict) || !strings.Contains(err.Error(), want.VIP.IP) {
		t.Errorf("CreateLoadBalancer at a VIP that is taken: %v, want ErrConflict naming it", err)
	}
	if got := f.mine(); len(got) != 1 {
		t.Errorf("%d load balancers are left, want 1", len(got))
	}
	f.must("DeleteLoadBalancer", func() error { return f.Backend.DeleteLoadBalancer(f.ctx(), made.ID) })
	if again := f.balancer(want); again.VIP != want.VIP {
		t.Errorf("CreateLoadBalancer after the other has gone is at %v", again.VIP)
	}
}

func vipIsFreed(t *testing.T, f services) {
	want := f.wanted()
	for range 2 {
		if err := f.Backend.FreeVIP(f.ctx(), want.ProjectID, want.VIP, ""); err != nil {
			t.Errorf("FreeVIP of an address that nothing has: %v", err)
		}
	}
	made := f.balancer(want)
	if err := f.Backend.FreeVIP(f.ctx(), want.ProjectID, want.VIP, ""); err != nil {
		t.Errorf("FreeVIP of a load balancer's VIP: %v", err)
	}
	if left, err := f.Backend.LeftVIPs(f.ctx(), want.ProjectID, want.VIP.SubnetID); err != nil || left[made.VIPPortID].IP != "" {
		t.Errorf("LeftVIPs = %v, %v, with the VIP of a load balancer", left, err)
	}
	if got := f.active(made.ID); got.VIPPortID != made.VIPPortID {
		t.Errorf("after FreeVIP the load balancer has port %s, want %s", got.VIPPortID, made.VIPPortID)
	}
	if _, err := f.tryBalancer(want); !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("CreateLoadBalancer at a VIP that FreeVIP had to leave alone: %v, want ErrConflict", err)
	}
}

func balancerRefused(t *testing.T, f services) {
	for name, c := range map[string]struct {
		change func(*sdn.LoadBalancer)
		field  sdn.Field
	}{
		"a missing subnet":                 {func(lb *sdn.LoadBalancer) { lb.VIP.SubnetID = MissingID }, sdn.FieldSubnet},
		"an address outside of the subnet": {func(lb *sdn.LoadBalancer) { lb.VIP.IP = "198.51.100.7" }, sdn.FieldSubnet},
		"a missing provider":               {func(lb *sdn.LoadBalancer) { lb.Provider = f.Missing }, sdn.FieldProvider},
		"a missing flavor":                 {func(lb *sdn.LoadBalancer) { lb.FlavorID = MissingID }, sdn.FieldFlavor},
	} {
		lb := f.wanted()
		c.change(&lb)
		_, err := f.tryBalancer(lb)
		// This cloud has no flavors.
		if lb.FlavorID != "" && errors.Is(err, sdn.ErrUnsupported) {
			continue
		}
		if !errors.Is(err, sdn.ErrInvalid) || errors.Is(err, sdn.ErrNotFound) || sdn.FieldOf(err) != c.field {
			t.Errorf("CreateLoadBalancer with %s: %v, of field %q; want ErrInvalid of field %q", name, err, sdn.FieldOf(err), c.field)
		}
	}
	if got := f.mine(); len(got) != 0 {
		t.Errorf("refused requests have left %d load balancers", len(got))
	}
}

// asks returns listeners with features that not every provider has.
func (f services) asks() map[string]sdn.Listener {
	all := map[string]sdn.Listener{}
	ask := func(what string, can bool, change func(*sdn.Listener)) {
		if l := f.listener("TCP", 8000, 1); !can {
			change(&l)
			all[what] = l
		}
	}
	seconds, zero := int32(60), int32(0)
	monitor := v1.MonitorSpec{Type: "HTTP", Delay: 5, Timeout: 3, MaxRetries: 2, MaxRetriesDown: 2}
	ask("HTTP", slices.Contains(f.features.Protocols, "HTTP"), func(l *sdn.Listener) { l.Protocol, l.Pool.Protocol = "HTTP", "HTTP" })
	ask("source ranges", f.features.SourceRanges, func(l *sdn.Listener) { l.SourceRanges = []string{"10.0.0.0/8"} })
	ask("PROXY", f.features.ProxyProtocol, func(l *sdn.Listener) { l.Pool.Protocol = "PROXY" })
	ask("affinity", f.features.Affinity, func(l *sdn.Listener) { l.Pool.AffinitySeconds = &zero })
	ask("timeout", f.features.TimesAffinity("TCP") || !f.features.Affinity, func(l *sdn.Listener) { l.Pool.AffinitySeconds = &seconds })
	for _, name := range []string{"ROUND_ROBIN", "SOURCE_IP_PORT"} {
		ask(name, f.features.Balances(name), func(l *sdn.Listener) { l.Pool.Algorithm = name })
	}
	ask("monitor", slices.Contains(f.features.Monitors, "HTTP"), func(l *sdn.Listener) { l.Pool.Monitor = &monitor })
	return all
}

func unsupportedIsSaid(t *testing.T, f services) {
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 0)))
	for what, l := range f.asks() {
		_, err := f.tryBalancer(f.wanted(l))
		if !errors.Is(err, sdn.ErrUnsupported) || !strings.Contains(err.Error(), what) {
			t.Errorf("CreateLoadBalancer with %s: %v, want ErrUnsupported naming it", what, err)
		}
		err = f.settled(func() error { _, err := f.Backend.CreateListener(f.ctx(), lb.ID, l); return err })
		if !errors.Is(err, sdn.ErrUnsupported) || !strings.Contains(err.Error(), what) {
			t.Errorf("CreateListener with %s: %v, want ErrUnsupported naming it", what, err)
		}
		pool := lb.Listeners[0].Pool
		if l.Protocol != "TCP" || len(l.SourceRanges) > 0 || l.Pool.Protocol != "TCP" {
			// The feature is not one of the pool, or it is fixed at creation.
			continue
		}
		l.Pool.Name = pool.Name
		if err = f.settled(func() error { return f.Backend.UpdatePool(f.ctx(), lb.ID, pool.ID, *l.Pool) }); !errors.Is(err, sdn.ErrUnsupported) {
			t.Errorf("UpdatePool with %s: %v, want ErrUnsupported", what, err)
		}
	}
	if got := f.active(lb.ID); len(got.Listeners) != 1 || len(f.mine()) != 1 {
		t.Errorf("refused requests have left %+v, of %d load balancers", got.Listeners, len(f.mine()))
	}
}

func balancerDeletedTwice(t *testing.T, f services) {
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 1)))
	for range 2 {
		f.must("DeleteLoadBalancer", func() error { return f.Backend.DeleteLoadBalancer(f.ctx(), lb.ID) })
	}
	if _, err := f.Backend.LoadBalancer(f.ctx(), lb.ID); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("LoadBalancer of one that is gone: %v, want ErrNotFound", err)
	}
	if _, ok := f.listed(f.Backend)[lb.ID]; ok || f.Cloud.HasLoadBalancer(t, lb.ID) {
		t.Error("it is there after DeleteLoadBalancer")
	}
	f.outOfReachBelow(lb)
}

// outOfReachBelow checks that nothing below a load balancer can be seen, changed or deleted.
func (f services) outOfReachBelow(lb sdn.LoadBalancer) {
	f.t.Helper()
	l := lb.Listeners[0]
	for call, err := range map[string]error{
		"UpdateListener": f.Backend.UpdateListener(f.ctx(), lb.ID, l.ID, l),
		"CreatePool":     second(f.Backend.CreatePool(f.ctx(), lb.ID, l.ID, *l.Pool)),
		"UpdatePool":     f.Backend.UpdatePool(f.ctx(), lb.ID, l.Pool.ID, *l.Pool),
		"ChangeMembers":  f.Backend.ChangeMembers(f.ctx(), lb.ID, l.Pool.ID, []sdn.Member{f.member(7)}, nil),
		"LoadBalancer":   second(f.Backend.LoadBalancer(f.ctx(), lb.ID)),
		"FailOver":       f.Backend.FailOver(f.ctx(), lb.ID),
	} {
		if !errors.Is(err, sdn.ErrNotFound) {
			f.t.Errorf("%s: %v, want ErrNotFound", call, err)
		}
	}
	for call, err := range map[string]error{
		"DeleteListener":     f.Backend.DeleteListener(f.ctx(), lb.ID, l.ID),
		"DeletePool":         f.Backend.DeletePool(f.ctx(), lb.ID, l.Pool.ID),
		"DeleteLoadBalancer": f.Backend.DeleteLoadBalancer(f.ctx(), lb.ID),
	} {
		if err != nil {
			f.t.Errorf("%s: %v, want nil as for one that is gone", call, err)
		}
	}
}

func balancingOfMissing(_ *testing.T, f services) {
	l := f.listener("TCP", 80, 1)
	l.ID, l.Pool.ID = MissingID, MissingID
	f.outOfReachBelow(sdn.LoadBalancer{ID: MissingID, Listeners: []sdn.Listener{l}})
}

func foreignBalancer(t *testing.T, f services) {
	id := f.Cloud.MakeForeignLoadBalancer(t, f.vip())
	if _, ok := f.listed(f.Backend)[id]; ok {
		t.Error("ListLoadBalancers shows it")
	}
	if _, err := f.Backend.CreateListener(f.ctx(), id, f.listener("TCP", 80, 0)); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("CreateListener: %v, want ErrNotFound", err)
	}
	if err := f.Backend.DeleteLoadBalancer(f.ctx(), id); err != nil || !f.Cloud.HasLoadBalancer(t, id) {
		t.Errorf("DeleteLoadBalancer: %v, want nil and that it is left there", err)
	}
	if _, err := f.Backend.LoadBalancer(f.ctx(), id); !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("LoadBalancer: %v, want ErrNotFound", err)
	}
}

func otherClustersBalancer(t *testing.T, f services) {
	theirs := f
	theirs.Backend = f.Other
	lb := theirs.balancer(f.wanted(f.listener("TCP", 80, 1)))
	if _, ok := f.listed(f.Backend)[lb.ID]; ok {
		t.Error("ListLoadBalancers shows it")
	}
	f.outOfReachBelow(lb)
	if diff := cmp.Diff(lb, theirs.active(lb.ID), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the other cluster's load balancer has changed: (-before +now)\n%s", diff)
	}
}

func balancerQuota(t *testing.T, f services) {
	if !f.Cloud.LimitLoadBalancers(t, 1) {
		t.Skip("this cloud's quota of load balancers cannot be changed")
	}
	f.balancer(f.wanted())
	if _, err := f.tryBalancer(f.wanted()); !errors.Is(err, sdn.ErrQuota) || len(f.mine()) != 1 {
		t.Errorf("CreateLoadBalancer with no room: %v, %d are left; want ErrQuota and 1", err, len(f.mine()))
	}
}
