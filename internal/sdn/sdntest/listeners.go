// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

func listenersComeAndGo(t *testing.T, f services) {
	want := f.wanted(f.listener("TCP", 80, 1))
	lb := f.balancer(want)
	more := f.listener("TCP", 443, 2)
	f.addListener(lb.ID, more)
	want.Listeners = append(want.Listeners, more)
	got := f.active(lb.ID)
	if diff := cmp.Diff(want, got, likeWanted); diff != "" {
		t.Errorf("LoadBalancer after CreateListener: (-want +got)\n%s", diff)
	}
	err := f.settled(func() error { _, err := f.Backend.CreateListener(f.ctx(), lb.ID, more); return err })
	if !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("CreateListener of a port that has one: %v, want ErrConflict", err)
	}
	gone := got.Listeners[slices.IndexFunc(got.Listeners, func(l sdn.Listener) bool { return l.Port == 80 })]
	f.twice("DeleteListener", lb.ID, func() error { return f.Backend.DeleteListener(f.ctx(), lb.ID, gone.ID) })
	want.Listeners = want.Listeners[1:]
	if diff := cmp.Diff(want, f.active(lb.ID), likeWanted); diff != "" {
		t.Errorf("LoadBalancer after DeleteListener: (-want +got)\n%s", diff)
	}
	err = f.settled(func() error {
		return f.Backend.ChangeMembers(f.ctx(), lb.ID, gone.Pool.ID, []sdn.Member{f.member(2)}, nil)
	})
	if !errors.Is(err, sdn.ErrNotFound) {
		t.Errorf("ChangeMembers of the pool of a listener that is gone: %v, want ErrNotFound", err)
	}
	f.addListener(lb.ID, f.listener("TCP", 80, 0)) // the port is free again
}

func listenersOfOnePort(t *testing.T, f services) {
	if !slices.Contains(f.features.Protocols, "UDP") {
		t.Skip("this provider has TCP only")
	}
	lb := f.balancer(f.wanted(f.listener("TCP", 53, 1)))
	if f.features.ManyProtocols {
		f.addListener(lb.ID, f.listener("UDP", 53, 1))
		if got := f.active(lb.ID); len(got.Listeners) != 2 {
			t.Errorf("listeners %+v, want two of one port", got.Listeners)
		}
		return
	}
	err := f.settled(func() error { _, err := f.Backend.CreateListener(f.ctx(), lb.ID, f.listener("UDP", 53, 1)); return err })
	if !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("CreateListener of a port that one of another protocol has: %v, want ErrConflict", err)
	}
}

func listenerIsUpdated(t *testing.T, f services) {
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 1)))
	old := lb.Listeners[0]
	want := f.listener("TCP", 80, 1)
	want.Name = "default/renamed"
	limit, timeout := int32(77), int64(12000)
	if f.features.ConnectionLimit {
		want.ConnectionLimit = &limit
	}
	if f.features.Timeouts {
		want.TimeoutClientData = &timeout
	}
	if f.features.SourceRanges {
		want.SourceRanges = []string{"10.0.0.0/8", "192.168.0.0/16"}
	}
	f.must("UpdateListener", func() error { return f.Backend.UpdateListener(f.ctx(), lb.ID, old.ID, want) })
	got := f.active(lb.ID).Listeners[0]
	if diff := cmp.Diff(want, got, likeWanted); diff != "" {
		t.Errorf("listener after UpdateListener: (-want +got)\n%s", diff)
	}
	if f.features.ConnectionLimit && (got.ConnectionLimit == nil || *got.ConnectionLimit != limit) ||
		f.features.Timeouts && (got.TimeoutClientData == nil || *got.TimeoutClientData != timeout) {
		t.Errorf("UpdateListener left connection limit %v, client timeout %v", got.ConnectionLimit, got.TimeoutClientData)
	}
	want.ConnectionLimit, want.TimeoutClientData, want.SourceRanges = nil, nil, nil
	f.must("UpdateListener", func() error { return f.Backend.UpdateListener(f.ctx(), lb.ID, old.ID, want) })
	back := f.active(lb.ID).Listeners[0]
	old.Name, old.Operating, old.Pool.Operating = want.Name, back.Operating, back.Pool.Operating
	if diff := cmp.Diff(old.ConnectionLimit, back.ConnectionLimit); diff != "" || !cmp.Equal(old.TimeoutClientData, back.TimeoutClientData) {
		t.Errorf("UpdateListener to defaults: %+v, want %+v", back, old)
	}
	if diff := cmp.Diff(old, back, likeWanted); diff != "" {
		t.Errorf("listener after UpdateListener to defaults: (-want +got)\n%s", diff)
	}
}

func poolComesLater(t *testing.T, f services) {
	want := f.wanted(f.listener("TCP", 80, 2))
	pool := *want.Listeners[0].Pool
	bare := want
	bare.Listeners = slices.Clone(want.Listeners)
	bare.Listeners[0].Pool = nil
	lb := f.balancer(bare)
	l := lb.Listeners[0]
	if l.Pool != nil {
		t.Fatalf("listener %+v, want it without a pool", l)
	}
	pool.Protocol, pool.Algorithm = "", "" // defaults: those of the listener and of the provider
	f.addPool(lb.ID, l.ID, pool)
	if diff := cmp.Diff(want, f.active(lb.ID), likeWanted); diff != "" {
		t.Errorf("LoadBalancer after CreatePool: (-want +got)\n%s", diff)
	}
	err := f.settled(func() error { _, err := f.Backend.CreatePool(f.ctx(), lb.ID, l.ID, pool); return err })
	if !errors.Is(err, sdn.ErrConflict) {
		t.Errorf("CreatePool of a listener that has one: %v, want ErrConflict", err)
	}
	old := f.active(lb.ID).Listeners[0].Pool.ID
	f.twice("DeletePool", lb.ID, func() error { return f.Backend.DeletePool(f.ctx(), lb.ID, old) })
	got := f.active(lb.ID).Listeners
	// OVN's provider 8.0.0 says ACTIVE of a pool whose members it has deleted, before the pool goes.
	for begun := time.Now(); len(got) == 1 && got[0].Pool != nil && time.Since(begun) < callTimeout; pause(begun) {
		got = f.active(lb.ID).Listeners
	}
	if len(got) != 1 || got[0].ID != l.ID || got[0].Pool != nil {
		t.Errorf("listeners after DeletePool %+v, want the same one without a pool", got)
	}
	f.addPool(lb.ID, l.ID, pool)
	if diff := cmp.Diff(want, f.active(lb.ID), likeWanted); diff != "" {
		t.Errorf("LoadBalancer with another pool: (-want +got)\n%s", diff)
	}
}

func affinityIsUpdated(t *testing.T, f services) {
	if !f.features.Affinity {
		t.Skip("this provider has no affinity")
	}
	for _, protocol := range f.features.Protocols {
		if protocol == "SCTP" {
			continue
		}
		want := f.wanted(f.listener(protocol, 80, 2))
		lb := f.balancer(want)
		seconds, zero := int32(600), int32(0)
		states := []*int32{&zero, nil}
		if f.features.TimesAffinity(protocol) {
			states = []*int32{&zero, &seconds, nil}
		}
		for _, s := range states {
			want.Listeners[0].Pool.AffinitySeconds = s
			f.updatePool(lb, want)
		}
		want.Listeners[0].Pool.AffinitySeconds = states[len(states)-2]
		want.VIP = f.vip()
		made := f.balancer(want)
		if made.Listeners[0].Pool.AffinitySeconds == nil { // only an update sets it
			f.updatePool(made, want)
		} else if diff := cmp.Diff(want, made, likeWanted); diff != "" {
			t.Errorf("LoadBalancer made with affinity of %s: (-want +got)\n%s", protocol, diff)
		}
	}
}

// updatePool updates the only pool to that of want, twice.
func (f services) updatePool(lb, want sdn.LoadBalancer) {
	f.t.Helper()
	want.Listeners[0].Pool.Name += "x"
	for range 2 {
		f.must("UpdatePool", func() error {
			return f.Backend.UpdatePool(f.ctx(), lb.ID, lb.Listeners[0].Pool.ID, *want.Listeners[0].Pool)
		})
	}
	if diff := cmp.Diff(want, f.active(lb.ID), likeWanted); diff != "" {
		f.t.Errorf("LoadBalancer after UpdatePool: (-want +got)\n%s", diff)
	}
}

func algorithmIsUpdated(t *testing.T, f services) {
	if len(f.features.Algorithms) > 0 && !slices.Contains(f.features.Algorithms, f.features.Algorithm) || !f.features.Balances(f.features.Algorithm) {
		t.Errorf("Features: %s is none of the algorithms %v", f.features.Algorithm, f.features.Algorithms)
	}
	want := f.wanted(f.listener("TCP", 80, 1))
	lb := f.balancer(want)
	pool := want.Listeners[0].Pool
	for _, algorithm := range append(slices.Clone(f.features.Algorithms), f.features.Algorithm) {
		pool.Algorithm = algorithm
		f.updatePool(lb, want)
	}
	unsaid := *pool
	unsaid.Algorithm = ""
	f.must("UpdatePool", func() error { return f.Backend.UpdatePool(f.ctx(), lb.ID, lb.Listeners[0].Pool.ID, unsaid) })
	if diff := cmp.Diff(want, f.active(lb.ID), likeWanted); diff != "" {
		t.Errorf("LoadBalancer after UpdatePool without an algorithm: (-want +got)\n%s", diff)
	}
	if n := len(f.features.Algorithms); n > 0 {
		pool.Algorithm, want.VIP = f.features.Algorithms[n-1], f.vip()
		if diff := cmp.Diff(want, f.balancer(want), likeWanted); diff != "" {
			t.Errorf("LoadBalancer made with an algorithm: (-want +got)\n%s", diff)
		}
	}
}

func monitorIsUpdated(t *testing.T, f services) {
	if !slices.Contains(f.features.Monitors, "TCP") {
		t.Skip("this provider has no monitor of type TCP")
	}
	want := f.wanted(f.listener("TCP", 80, 1))
	lb := f.balancer(want)
	pool := want.Listeners[0].Pool
	m := v1.MonitorSpec{Type: "TCP", Delay: 10, Timeout: 5, MaxRetries: 3, MaxRetriesDown: 4}
	slower := m
	slower.Delay = 20
	for _, next := range []*v1.MonitorSpec{&m, &slower, nil} {
		pool.Monitor = next
		f.twice("UpdatePool", lb.ID, func() error { return f.Backend.UpdatePool(f.ctx(), lb.ID, lb.Listeners[0].Pool.ID, *pool) })
		if diff := cmp.Diff(want, f.active(lb.ID), likeWanted); diff != "" {
			t.Errorf("LoadBalancer after UpdatePool: (-want +got)\n%s", diff)
		}
	}
}

// change changes members of the only pool, and checks the resulting members.
func (f services) change(lb sdn.LoadBalancer, add, remove, want []sdn.Member) {
	f.t.Helper()
	pool := lb.Listeners[0].Pool
	f.twice("ChangeMembers", lb.ID, func() error { return f.Backend.ChangeMembers(f.ctx(), lb.ID, pool.ID, add, remove) })
	got := f.active(lb.ID).Listeners[0].Pool.Members
	if diff := cmp.Diff(want, got, likeWanted); diff != "" {
		f.t.Errorf("members after %d were added and %d removed: (-want +got)\n%s", len(add), len(remove), diff)
	}
	for _, m := range got {
		if m.ID == "" || m.Provisioning != sdn.ProvisioningActive {
			f.t.Errorf("member %+v, want it ACTIVE and with an ID", m)
		}
	}
}

func membersComeAndGo(_ *testing.T, f services) {
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 0)))
	m := []sdn.Member{f.member(0), f.member(1), f.member(2), f.member(3)}
	m[3].IP, m[3].Port = m[2].IP, 9090 // another port of the same endpoint
	f.change(lb, m[:1], nil, m[:1])
	f.change(lb, m[1:3], nil, m[:3])
	f.change(lb, m[3:], m[:1], m[1:])
	renamed := m[1]
	renamed.Name = "default/renamed"
	f.change(lb, []sdn.Member{renamed}, nil, []sdn.Member{renamed, m[2], m[3]})
	now := f.active(lb.ID).Listeners[0].Pool.Members
	i := slices.IndexFunc(now, func(n sdn.Member) bool { return n.IP == renamed.IP })
	f.change(lb, nil, now[i:i+1], m[2:]) // by ID
	f.change(lb, m[2:], nil, m[2:])
	f.change(lb, nil, m[2:], nil)
	f.change(lb, nil, nil, nil)
	f.refusesMember(lb, sdn.Member{IP: "nonsense", Port: 1, SubnetID: f.Subnet.ID}, sdn.FieldMember)
}

func manyMembers(_ *testing.T, f services) {
	n := 10
	var all []sdn.Member
	for i := range n {
		all = append(all, f.member(i))
	}
	lb := f.balancer(f.wanted(f.listener("TCP", 80, n/2)))
	f.change(lb, all[n/2:], all[:2], all[2:])
}

func farMembers(t *testing.T, f services) {
	if !f.features.FarMembers {
		t.Skip("this provider takes no members of another subnet")
	}
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 1)))
	far := sdn.Member{Name: "a/far", IP: inside(f.Far.Prefix, 9), Port: 80, SubnetID: f.Far.ID}
	f.change(lb, []sdn.Member{far}, nil, []sdn.Member{f.member(0), far})
	far.IP, far.SubnetID = inside(f.Far.Prefix, 10), MissingID
	f.refusesMember(lb, far, sdn.FieldSubnet)
}

// refusesMember checks that a change is refused because of one member, alone and among others.
// The error must name the field and the member.
func (f services) refusesMember(lb sdn.LoadBalancer, bad sdn.Member, field sdn.Field) {
	f.t.Helper()
	for _, add := range [][]sdn.Member{{bad}, {f.member(20), bad, f.member(21)}} {
		err := f.settled(func() error { return f.Backend.ChangeMembers(f.ctx(), lb.ID, lb.Listeners[0].Pool.ID, add, nil) })
		members := sdn.RefusedMembers(err)
		if !errors.Is(err, sdn.ErrInvalid) || sdn.FieldOf(err) != field || len(members) != 1 || members[0].IP != bad.IP {
			f.t.Errorf("ChangeMembers with %s of subnet %s among %d: %v, of field %q and members %v; want ErrInvalid of field %q and that member",
				bad.IP, bad.SubnetID, len(add), err, sdn.FieldOf(err), members, field)
		}
	}
}

// changesAtOnce checks that parallel changes are all made: some later, none is lost.
func changesAtOnce(t *testing.T, f services) {
	const n = 3
	want := f.wanted(f.listener("TCP", 80, 0))
	lb := f.balancer(want)
	pool := lb.Listeners[0].Pool
	var wg sync.WaitGroup
	errs := make(chan error, 2*n)
	for i := range n {
		more := f.listener("TCP", int32(81+i), 0)
		more.Pool = nil
		want.Listeners = append(want.Listeners, more)
		want.Listeners[0].Pool.Members = append(want.Listeners[0].Pool.Members, f.member(i))
		ctx := f.ctx()
		wg.Go(func() {
			errs <- f.settled(func() error { return f.Backend.ChangeMembers(ctx, lb.ID, pool.ID, []sdn.Member{f.member(i)}, nil) }) //nolint:contextcheck // busy reads by itself
		})
		wg.Go(func() {
			errs <- f.settled(func() error { _, err := f.Backend.CreateListener(ctx, lb.ID, more); return err }) //nolint:contextcheck // likewise
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Errorf("a change among others: %v", err)
		}
	}
	if diff := cmp.Diff(want, f.active(lb.ID), likeWanted); diff != "" {
		t.Errorf("LoadBalancer after changes at once: (-want +got)\n%s", diff)
	}
}
