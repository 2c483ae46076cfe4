// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sdntest

import (
	"errors"
	"testing"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

func busyIsPending(t *testing.T, f services) {
	one, two := f.balancer(f.wanted(f.listener("TCP", 80, 1))), f.balancer(f.wanted(f.listener("TCP", 80, 1)))
	if !f.Cloud.Slow(t) {
		t.Skip("this cloud cannot be made slow")
	}
	pool := one.Listeners[0].Pool
	if err := f.Backend.ChangeMembers(f.ctx(), one.ID, pool.ID, []sdn.Member{f.member(1)}, nil); err != nil {
		t.Fatalf("ChangeMembers: %v", err)
	}
	for call, err := range map[string]error{
		"ChangeMembers":      f.Backend.ChangeMembers(f.ctx(), one.ID, pool.ID, []sdn.Member{f.member(2)}, nil),
		"UpdateListener":     f.Backend.UpdateListener(f.ctx(), one.ID, one.Listeners[0].ID, sdn.Listener{Name: "x", Protocol: "TCP"}),
		"DeleteListener":     f.Backend.DeleteListener(f.ctx(), one.ID, one.Listeners[0].ID),
		"DeletePool":         f.Backend.DeletePool(f.ctx(), one.ID, pool.ID),
		"CreateListener":     second(f.Backend.CreateListener(f.ctx(), one.ID, f.listener("TCP", 81, 0))),
		"DeleteLoadBalancer": f.Backend.DeleteLoadBalancer(f.ctx(), one.ID),
	} {
		var pending *sdn.PendingError
		if !errors.As(err, &pending) || pending.Retry <= 0 {
			t.Errorf("%s of a busy load balancer: %v, want a PendingError that says when to retry", call, err)
		}
	}
	if err := f.Backend.ChangeMembers(f.ctx(), two.ID, two.Listeners[0].Pool.ID, []sdn.Member{f.member(1)}, nil); err != nil {
		t.Errorf("ChangeMembers of another load balancer meanwhile: %v", err)
	}
	got := f.active(one.ID)
	if len(got.Listeners) != 1 || got.Listeners[0].Pool == nil || len(got.Listeners[0].Pool.Members) != 2 || got.Listeners[0].Name != one.Listeners[0].Name {
		t.Errorf("calls that were refused had effects: %+v", got.Listeners)
	}
	// Creating a listener with its pool takes several calls.
	f.addListener(one.ID, f.listener("TCP", 81, 2))
	f.must("DeleteListener", func() error { return f.Backend.DeleteListener(f.ctx(), one.ID, one.Listeners[0].ID) })
	if got = f.active(one.ID); len(got.Listeners) != 1 || got.Listeners[0].Port != 81 || got.Listeners[0].Pool == nil || len(got.Listeners[0].Pool.Members) != 2 {
		t.Errorf("listeners after one was added and one removed: %+v", got.Listeners)
	}
}

func disabledIsRead(t *testing.T, f services) {
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 2), f.listener("TCP", 81, 2)))
	check := func(want bool) {
		t.Helper()
		got := f.active(lb.ID)
		off := map[string]bool{"load balancer " + got.ID: got.Disabled}
		for _, l := range got.Listeners {
			off["listener "+l.Name], off["pool "+l.Name] = l.Disabled, l.Pool.Disabled
			for _, m := range l.Pool.Members {
				if f.NoHeartbeats {
					m.Disabled = want
				}
				off["member "+m.IP+" of "+l.Name] = m.Disabled
			}
		}
		for what, is := range off {
			if is != want || len(off) != 9 {
				t.Errorf("%s is read as disabled: %t, want %t (%d of 9 are read)", what, is, want, len(off))
			}
		}
	}
	check(false)
	if !f.Cloud.Disable(t, lb.ID) {
		t.Skip("in this cloud nobody switches a load balancer off")
	}
	check(true)
}

func inError(t *testing.T, f services) {
	lb := f.balancer(f.wanted(f.listener("TCP", 80, 1)))
	if !f.Cloud.Break(t, lb.ID) {
		t.Skip("this cloud breaks no load balancers")
	}
	if got := f.listed(f.Backend)[lb.ID]; got.Provisioning != sdn.ProvisioningError {
		t.Fatalf("ListLoadBalancers shows %+v, want it in ERROR", got)
	}
	err := f.Backend.ChangeMembers(f.ctx(), lb.ID, lb.Listeners[0].Pool.ID, []sdn.Member{f.member(2)}, nil)
	if err != nil && !errors.As(err, new(*sdn.PendingError)) {
		t.Errorf("ChangeMembers of one in ERROR: %v, want none or a PendingError", err)
	}
	err = f.settled(func() error { return f.Backend.FailOver(f.ctx(), lb.ID) })
	switch {
	case f.features.FailOver && err != nil:
		t.Errorf("FailOver: %v", err)
	case f.features.FailOver:
		f.active(lb.ID)
	case !errors.Is(err, sdn.ErrUnsupported):
		t.Errorf("FailOver: %v, want ErrUnsupported", err)
	}
	f.must("DeleteLoadBalancer", func() error { return f.Backend.DeleteLoadBalancer(f.ctx(), lb.ID) })
}
