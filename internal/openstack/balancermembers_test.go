// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/openstack"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/sdntest"
	"github.com/kuryr-go/kuryr/openstacksim"
)

// many returns n endpoints, from the i-th on.
func many(target sdntest.ServiceTarget, i, n int) (out []sdn.Member) {
	for ; n > 0; i, n = i+1, n-1 {
		out = append(out, sdn.Member{IP: fmt.Sprintf("10.252.%d.%d", 2+i/250, i%250), Port: 80, SubnetID: target.Subnet.ID})
	}
	return out
}

// poolOf makes a load balancer whose only pool has these members.
func poolOf(t *testing.T, target sdntest.ServiceTarget, members []sdn.Member) (read func() []sdn.Member, change func(add, remove []sdn.Member) error) {
	t.Helper()
	full := balanced(target, "10.252.0.200", 1, 0)
	full.Listeners[0].Pool.Members = members
	b, ctx := target.Backend, t.Context()
	lb, err := b.CreateLoadBalancer(ctx, serviceOwner, full)
	must(t, err)
	read = func() []sdn.Member {
		now, err := b.LoadBalancer(ctx, lb.ID)
		must(t, err)
		return now.Listeners[0].Pool.Members
	}
	change = func(add, remove []sdn.Member) error {
		return b.ChangeMembers(ctx, lb.ID, lb.Listeners[0].Pool.ID, add, remove)
	}
	for len(read()) < len(members) {
		if err := change(members, nil); err != nil && !errors.As(err, new(*sdn.PendingError)) {
			t.Fatal(err)
		}
	}
	return read, change
}

// turnover is a change of a pool of which only some stay, as the cloud sees it.
type turnover struct {
	t          *testing.T
	has, least int // members
	add        []sdn.Member
	remove     []sdn.Member
	came, went int // one by one, in one call
}

func (o *turnover) see(_ http.ResponseWriter, r *http.Request, body object) bool {
	members, _ := body["members"].([]any)
	switch {
	case !strings.Contains(r.URL.Path, "/members"):
	case r.Method == http.MethodPut:
		o.has = len(members)
	case r.Method == http.MethodPost:
		o.has, o.came = o.has+1, o.came+1
	case r.Method == http.MethodDelete:
		o.has, o.went = o.has-1, o.went+1
	}
	if o.has < o.least {
		o.t.Errorf("the pool has %d members for a while, want %d at least", o.has, o.least)
	}
	if o.came > o.went+1 && o.went < len(o.remove) {
		o.t.Errorf("%d have come one by one, and only %d are gone", o.came, o.went)
	}
	return false
}

// differs notes what of a change is left to do.
func (o *turnover) differs(now, old, fresh []sdn.Member) {
	is := map[string]bool{}
	for _, m := range now {
		is[m.IP] = true
	}
	o.add = slices.DeleteFunc(slices.Clone(fresh), func(m sdn.Member) bool { return is[m.IP] })
	o.remove = slices.DeleteFunc(slices.Clone(old), func(m sdn.Member) bool { return !is[m.IP] })
	o.came, o.went = 0, 0
}

// TestNoPoolRunsLow: whatever changes of a pool, and in however many parts, it has as
// many members on the way as before or after, whichever is less; and those that are to go
// go as those come that take their place.
func TestNoPoolRunsLow(t *testing.T) {
	for _, test := range []struct{ there, stay, fresh int }{
		{100, 0, 100}, {90, 0, 90}, {60, 0, 60}, {50, 0, 100}, {100, 0, 50}, {100, 50, 50}, {120, 0, 120}, {300, 225, 75}, {5, 0, 0}, {120, 0, 0},
	} {
		for _, provider := range []string{"ovn", "amphora"} {
			t.Run(fmt.Sprintf("%s %d keeps %d gets %d", provider, test.there, test.stay, test.fresh), func(t *testing.T) {
				f := newFront(t, recent)
				target := f.services(t, func(c *openstack.Config) { c.PageSize = 500 }).target(t, provider)
				old, fresh := many(target, 0, test.there), many(target, 1000, test.fresh)
				read, change := poolOf(t, target, old)
				o := &turnover{t: t, has: test.there, least: min(test.there, test.stay+test.fresh)}
				f.before = o.see
				var err error = &sdn.PendingError{}
				for calls := 0; err != nil; calls++ {
					if !errors.As(err, new(*sdn.PendingError)) || calls > 20 {
						t.Fatalf("call %d: %v", calls, err)
					}
					o.differs(read(), old[test.stay:], fresh)
					err = change(o.add, o.remove)
				}
				f.before = nil
				if got := len(read()); got != test.stay+test.fresh {
					t.Errorf("%d members in the end, want %d", got, test.stay+test.fresh)
				}
			})
		}
	}
}

// OVN's driver of Zed has health monitors in ERROR where the network has no metadata
// port, as the simulator does; that is read with the load balancer. That of 2025.1 makes a port itself.
func TestMonitorInError(t *testing.T) {
	for _, test := range []struct {
		provider, release string
		broken            bool
	}{{"ovn", "zed", true}, {"ovn", "2025.1", false}, {"amphora", "2025.1", false}} {
		provider, broken := test.provider, test.broken
		f := newFront(t, func(o *openstacksim.Options) { o.Release = test.release })
		target := f.services(t).target(t, provider)
		want := balanced(target, "10.252.0.200", 1, 1)
		want.Listeners[0].Pool.Monitor = &v1.MonitorSpec{Type: "TCP", Delay: 5, Timeout: 3, MaxRetries: 1, MaxRetriesDown: 3}
		made, err := target.Backend.CreateLoadBalancer(t.Context(), serviceOwner, want)
		must(t, err)
		for tries := 0; len(made.Listeners) == 0 || made.Listeners[0].Pool == nil || made.Listeners[0].Pool.Monitor == nil; tries++ {
			if tries > 1000 {
				t.Fatalf("provider %s: there is no monitor: %+v", provider, made)
			}
			time.Sleep(time.Millisecond)
			if len(made.Listeners) > 0 && made.Listeners[0].Pool != nil {
				if err := target.Backend.UpdatePool(t.Context(), made.ID, made.Listeners[0].Pool.ID, *want.Listeners[0].Pool); err != nil && !errors.As(err, new(*sdn.PendingError)) {
					t.Fatal(err)
				}
			}
			made, err = target.Backend.LoadBalancer(t.Context(), made.ID)
			must(t, err)
		}
		if got := made.Listeners[0].Pool.MonitorBroken; got != broken {
			t.Errorf("provider %s of %s: the monitor is broken: %v", provider, test.release, got)
		}
	}
}
